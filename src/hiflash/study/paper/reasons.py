"""Why a claim about methods may not hold, and the other readings of what the paper says of a method."""

from __future__ import annotations

__all__ = [
    "ASYNC", "KEPT", "MIXING", "ONE_METHOD", "OPEN", "OVERFITS", "READINGS", "ROUGHNESS", "STALE_EPOCHS",
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
    "the client tasks of a round (10; 25 with five edges, 50 with all clients) are a whole step of FedAvg "
    "and HierFAVG; HiFL and HiFlash keep the share 1 / (1/a + staleness) of an edge round (a: mixing weight)"
)
ONE_METHOD = (
    "a round of HierFAVG is two rounds of 5 clients at each of 2 edges, whose models hardly part before the "
    "cloud averages them"
)
ASYNC = (
    "mixing weights below 1 average clients over time: a client task of FedAsync keeps the share "
    "1 / (1/a + staleness) of its step, about the tenth that it has in an average of ten clients; HiFL "
    "averages first, and its cloud keeps a share of that again (a: mixing weight)"
)
ROUGHNESS = (
    "an update of HiFL mixes in up to alpha of a cluster's model, one of FedAsync alpha / sqrt(staleness + "
    "1) of a client's: where clusters lack classes, the first moves the cloud further"
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


def readings(method: str) -> list[tuple[str, str]]:
    """Return the labels of a method with their readings, first the one that is as written."""
    return [(method, ""), *READINGS.get(method, {}).items()]
