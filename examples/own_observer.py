"""An observer of your own: it follows several runs, and tells which edge's updates were the stalest."""

from collections import Counter

import hiflash


class StaleEdges(hiflash.Observer):
    """Adds up the staleness of every edge's uploads, run by run."""

    def __init__(self) -> None:
        self.total: dict[str, Counter[int]] = {}

    def started(self, run: hiflash.RunInfo) -> None:
        """Begin anew: a resumed run shows its rows from the first on."""
        self.total[run.name] = Counter()

    def event(self, run: hiflash.RunInfo, row) -> None:
        """Take note of an upload; docs/metrics.md lists the other rows."""
        if row["event"] == "upload":
            self.total[run.name][row["edge"]] += row["staleness"]

    def evaluation(self, run: hiflash.RunInfo, row) -> None:
        """Print the test loss at its exact number of communications."""
        print(f"{run.name}: loss {row['loss']:.3f} after {row['communications']} communications")

    def finished(self, run: hiflash.RunInfo, result: hiflash.Result) -> None:
        """Print the answer."""
        ((edge, _),) = self.total[run.name].most_common(1)
        print(f"{run.name}: edge {edge} sent the stalest updates, accuracy {result.accuracy:.3f}")


def main() -> None:
    """Observe HiFL with two thresholds."""
    stale, budget = StaleEdges(), {"communications": 60}
    hiflash.sweep(method="hifl", grid={"cloud.threshold": [2, 16]}, stop=budget, observers=[stale])


if __name__ == "__main__":
    main()
