"""A method of your own: a mixing rule that trusts edges which agree with the global model's last move."""

import numpy as np

import hiflash


class Agreeing(hiflash.Stateful):
    """`w <- w + a (1 + cos) / 2 * delta`: an update counts the more, the more it follows the last one."""

    STATE = ("last",)  # what a resumed run needs

    def __init__(self, config: hiflash.Config) -> None:
        self.alpha, self.weighting, self.last = config.cloud.alpha, hiflash.weighting(config), None

    def mix(self, weights, update, base, edge, staleness):
        """Return the next global model. If the cloud refuses that, it takes `last` back as well."""
        delta = update - base
        cosine = 1.0 if self.last is None else similarity(delta, self.last)
        self.last = delta
        return weights + np.float32(self.alpha * self.weighting(staleness) * (1 + cosine) / 2) * delta


def similarity(one, other) -> float:
    """Return the cosine of the angle between two updates."""
    return np.dot(one, other) / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12)


hiflash.register(
    "mixing",
    hiflash.Part(
        "agreeing",
        "adds the change, the more the better it agrees with the last one",
        lambda config, trained: Agreeing(config),
    ),
)
hiflash.register_method(
    "hifl_agreeing", "HiFL that trusts edges which agree", {"cloud.mixing": "agreeing", "cloud.alpha": 1.0}
)


def main() -> None:
    """Compare it with HiFL's own rule."""
    comparison = hiflash.compare(methods=["hifl", "hifl_agreeing"], seeds=1, cloud={"threshold": 2})
    for result in comparison.results:
        print(f"{result.method}: {result.accuracy:.3f} after {result.communications} communications")


if __name__ == "__main__":
    main()
