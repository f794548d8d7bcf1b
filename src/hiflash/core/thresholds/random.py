"""Random thresholds: those of HiFL, and uneven ones for fitting surrogates."""

from __future__ import annotations

from hiflash.core.registry import Key, Part
from hiflash.core.state import Stateful
from hiflash.core.thresholds.policy import REFUSE, CloudView
from hiflash.seeding import once, rng

__all__ = ["PARTS", "RandomThreshold", "UnevenThreshold"]

REFUSALS = (0.0, 0.0, 0.9, 1.0)  # probabilities that an uneven policy refuses an edge: 0 for half of them


class RandomThreshold(Stateful):
    """Uniform on 0..maximum, drawn anew at every decision: the paper's baseline of learned thresholds."""

    STATE = ("asked",)

    def __init__(self, maximum: int, seed: int) -> None:
        self.maximum = maximum
        self.seed = seed
        self.asked = 0

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the next draw."""
        self.asked += 1
        return int(once(self.seed, "threshold", self.asked).integers(self.maximum + 1))


class UnevenThreshold(RandomThreshold):
    """Random thresholds, but some edges are refused often or always: for fitting surrogates.

    Under random thresholds every edge takes part, so a fit cannot learn the price of leaving an edge out. The
    probability of refusing an edge is drawn once per run.
    """

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the next draw, or `REFUSE`."""
        self.asked += 1
        stream = rng(self.seed, "threshold", self.asked)
        if stream.random() < self._refusal(view, edge):
            return REFUSE
        return int(stream.integers(self.maximum + 1))

    def _refusal(self, view: CloudView, edge: int) -> float:
        """Return the probability of refusing an edge; if it is 1 for all, the first is never refused."""
        peopled = sorted(m for m, examples in view.examples.items() if examples)
        first = peopled[:1] == [edge]
        return 0.0 if first and all(self._drawn(m) == 1 for m in peopled) else self._drawn(edge)

    def _drawn(self, edge: int) -> float:
        return float(rng(self.seed, "refusal", edge).choice(REFUSALS))


THRESHOLD_MAX = Key(
    "threshold_max",
    int,
    default=16,
    low=0,
    high=1_000_000,
    about="async: tau_max, random and uneven thresholds are uniform on 0..threshold_max",
    anywhere=True,  # a dataset sets its own value for every threshold policy
)

PARTS = (
    Part(
        "random",
        "uniform on 0..`threshold_max`, drawn at every ask",
        lambda config: RandomThreshold(config.cloud.threshold_max, config.seed),
        keys=(THRESHOLD_MAX,),
    ),
    Part(
        "uneven",
        "as `random`, but every edge is refused with a probability drawn once in a run (0 for half of them, "
        "0.9 or 1): for calibration",
        lambda config: UnevenThreshold(config.cloud.threshold_max, config.seed),
        reads=("threshold_max",),
    ),
)
