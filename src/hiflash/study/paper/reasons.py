"""Why a claim about methods may not hold, and the other readings of what the paper says of a method."""

from __future__ import annotations

__all__ = [
    "ASYNC", "ASYNC_EPOCHS", "KEPT", "MIXING", "ONE_METHOD", "OPEN", "OVERFITS", "READINGS", "STALE_EPOCHS",
    "TIERS", "readings",
]  # fmt: skip

READINGS = {
    "hierfavg": {"hierfavg-5": "5 edges a round", "hierfavg-5-equal": "5 edges, equal H and participation"},
    "fedat": {"fedat-h": "HiFL's H"},
    "fedasync": {"fedasync-exp": "HiFL's exponential weighting"},
}
"""Labels that are a method in another reading of the paper."""

MIXING = (
    "at equal H an asynchronous hierarchy needs (1/a + staleness) / E times HierFAVG's communications (a: "
    "mixing weight, E: edges in a round of HierFAVG); the paper has 2 and 5 for E, and gives neither the WAN "
    "nor the slot"
)
KEPT = (
    "ten client tasks are a whole step of FedAvg and HierFAVG; HiFL and HiFlash keep the share "
    "1 / (1/a + staleness) of it (a: mixing weight)"
)
ONE_METHOD = (
    "a round of HierFAVG is two rounds of 5 clients at each of 2 edges, whose models hardly part before the "
    "cloud averages them"
)
ASYNC = (
    "three local steps do not take a client's model far off: mixing it in moves the cloud's about as far as "
    "an average of ten clients does, for a tenth of the work"
)
TIERS = (
    "FedAT's tiers report after every edge round (H = 1), before their models part; with HiFL's H it falls "
    "behind where clients have one class"
)
OVERFITS = "where a model overfits, pooled training passes its best early; averages of clients overfit later"
OPEN = (
    "a target that both pass before their first evaluation, or that one of them misses within the budget, "
    "may decide nothing"
)
STALE_EPOCHS = (
    "random thresholds take stale models, and thirty steps take them far apart: a seed of HiFL that misses "
    "the target needs more than it spent, which decides only against those that need less"
)
ASYNC_EPOCHS = "mixing weights below 1 average clients over time, with thirty local steps as with three"


def readings(method: str) -> list[tuple[str, str]]:
    """Return the labels of a method with their readings, first the one that is as written."""
    return [(method, ""), *READINGS.get(method, {}).items()]
