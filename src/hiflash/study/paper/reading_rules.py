"""Claims about what the paper leaves open: the WAN, the slot, and how shards are dealt, on MNIST.

Each repeats a claim of `communications-mnist` under one reading.
"""

from __future__ import annotations

from hiflash.study.paper.claims import Claim, Whose
from hiflash.study.paper.pair_rules import fewer
from hiflash.study.paper.runs import Runs

__all__ = ["SETTINGS", "partition_claims", "sensitivity_claims"]

SETTINGS = {
    "": "the defaults",
    "+wan-off": "no WAN delays",
    "+wan-slow": "a slow WAN",
    "+slot-10ms": "slots of 0.01 s",
    "+slot-100ms": "slots of 0.1 s",
    "+slot-500ms": "slots of 0.5 s",
}
BELOW_HIERFAVG = "sensitivity-mnist/hiflash_below_hierfavg_5_noniid2"
PAIRS = (
    ("hifl", "hierfavg-5", "HiFL needs fewer communications than HierFAVG with 5 edges", ("noniid2", -28.2),
     "communications-mnist/hifl_below_hierfavg_noniid2", "5 edges"),
    ("hifl", "fedat-h", "HiFL needs fewer than FedAT with HiFL's H", ("noniid2", -31.9),
     "communications-mnist/hifl_below_fedat_noniid2", "HiFL's H"),
    ("hifl", "fedavg", "HiFL needs fewer than FedAvg", ("noniid2", -77.6),
     "communications-mnist/hifl_below_fedavg_noniid2", ""),
    ("hiflash", "hifl", "HiFlash needs fewer than HiFL", ("noniid1", -10.0),
     "communications-mnist/hiflash_below_hifl_noniid1", ""),
    ("hiflash", "hierfavg-5", "HiFlash needs fewer than HierFAVG with 5 edges", None, BELOW_HIERFAVG, ""),
)  # fmt: skip
"""Two labels, what is claimed, the partition and number of the paper, the claim, the baseline's form."""

NAMES = {
    "noniid2": "Non-IID(2)",
    "noniid2-balanced": "Non-IID(2) with balanced shards",
    "noniid1": "Non-IID(1)",
    "noniid1-balanced": "Non-IID(1) with balanced shards",
}
WHY = (
    "edges that work at the same time make each other stale; with a faster WAN or longer slots fewer of them "
    "do, and HiFL needs fewer communications"
)
SHARDS = "balanced shards help every method; how stale models are decides (sensitivity-mnist)"


def sensitivity_claims() -> list[Claim[Runs]]:
    """Return the claims under other WANs and slots, and against FedAT with five tiers."""
    claims = []
    for suffix, words in SETTINGS.items():
        for ours, theirs, says, paper, of, form in PAIRS:
            itself = of == BELOW_HIERFAVG and not suffix
            elsewhere = "" if paper is None or paper[0] == "noniid2" else NAMES["noniid2"]
            under = (WHY, "" if itself else of, _told(form, elsewhere, words))
            claims.append(_claim(ours, theirs, f"{says}, under {words}", suffix, "noniid2", paper, *under))
    tiers = "FedAT with 5 tiers and H = 2"
    return [
        *claims,
        Claim("hifl_below_fedat_5", f"HiFL needs fewer than {tiers}", fewer("hifl", "fedat-5", "noniid2"),
              -31.9, "percent", WHY, "communications-mnist/hifl_below_fedat_noniid2", tiers),
        Claim("hifl_below_hierfavg_5x2", "HiFL needs fewer than HierFAVG with 5 edges of 2 clients a round",
              fewer("hifl", "hierfavg-5x2", "noniid2"), -28.2, "percent", WHY,
              "communications-mnist/hifl_below_hierfavg_noniid2", "5 edges, 2 clients each"),
    ]  # fmt: skip


def partition_claims() -> list[Claim[Runs]]:
    """Return the claims on random shards and on balanced, disjoint ones."""
    return [
        _claim(ours, theirs, f"{says}, on {words}", "", part, paper, SHARDS, of, _told(form, words))
        for part, words in NAMES.items()
        for ours, theirs, says, paper, of, form in PAIRS
    ]


def _claim(
    ours: str, theirs: str, says: str, suffix: str, part: str, paper: tuple[str, float] | None, why: str,
    of: str, reading: str,
) -> Claim[Runs]:  # fmt: skip
    name = f"{ours}_below_{theirs}_{part}{suffix}".replace("-", "_").replace("+", "_")
    rule = fewer(f"{ours}{suffix}", f"{theirs}{suffix}", part)
    number = paper[1] if paper is not None and paper[0] == part.removesuffix("-balanced") else None
    whose: Whose = "ours" if paper is None else "paper"
    return Claim(name, says, rule, number, "percent", why, of, reading, whose)


def _told(*words: str) -> str:
    """Return a reading in words: the form of the baseline, the partition, and what is tried, where told."""
    return ", ".join(filter(None, words))
