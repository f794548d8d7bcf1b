"""Claims about methods side by side: communications to a target, and the trade-off."""

from __future__ import annotations

from dataclasses import replace

from hiflash.study.paper.accuracy_rules import NATURAL, SLIGHT
from hiflash.study.paper.claims import Claim
from hiflash.study.paper.pair_rules import fewer
from hiflash.study.paper.reasons import (
    ASYNC,
    KEPT,
    MIXING,
    OPEN,
    READINGS,
    STALE_EPOCHS,
    readings,
)
from hiflash.study.paper.rule_makers import (
    best_near,
    fewest,
    fewest_everywhere,
    grows,
    misses,
    needs,
    share_falls,
    to_both_best,
)
from hiflash.study.paper.runs import Runs

__all__ = [
    "cifar10_communications",
    "epochs_communications",
    "femnist_communications",
    "mnist_communications",
    "trade_off_claims",
]

BELOW_HIERFAVG = "hifl_below_hierfavg_noniid2"
RIVALS = ("fedavg", "fedasync", "hierfavg", "fedat", "hifl")


def mnist_communications() -> list[Claim[Runs]]:
    """Return the claims about communications to a target on MNIST, as written and in other readings."""
    two, one = "noniid2", "noniid1"
    return [
        _fewer("hifl", "fedat", two, -31.9, "HiFL needs up to 31.9 % fewer communications than FedAT",
               why="FedAT as shipped has H = 1 and ten tiers: cheap communications that carry little"),
        _fewer("hifl", "fedat-h", two, -31.9, "the same with FedAT's H drawn from 1, 2, 3 like HiFL's",
               why=MIXING, of="hifl_below_fedat_noniid2", reading="FedAT with HiFL's H"),
        _fewer("hifl", "hierfavg", two, -28.2,
               "HiFL needs up to 28.2 % fewer than HierFAVG (2 edges a round)", why=MIXING),
        _fewer("hifl", "hierfavg-5", two, -28.2, "the same with 5 edges a round, as the results have it",
               why=MIXING, of=BELOW_HIERFAVG, reading="5 edges a round"),
        _fewer("hifl", "hierfavg-5-equal", two, -28.2,
               "the same with HiFL's H and all clients of an edge",
               why=MIXING, of=BELOW_HIERFAVG, reading="5 edges, equal H and participation"),
        _fewer("hifl-tau2", "hierfavg-5", two, -28.2, "the same with threshold 2 for HiFL",
               why=MIXING, of=BELOW_HIERFAVG, reading="5 edges, threshold 2"),
        _fewer("hifl", "fedavg", two, -77.6, "HiFL needs up to 77.6 % fewer than FedAvg", why=MIXING),
        *_hierarchy(two),
        Claim("fedasync_misses_90_noniid2", "FedAsync cannot reach 90 % on Non-IID(2)",
              misses("fedasync", two, 0.9, "hifl"), 0.9, "accuracy", ASYNC),
        Claim("fedasync_exp_misses_90_noniid2", "the same with HiFL's exponential weighting",
              misses("fedasync-exp", two, 0.9, "hifl"), 0.9, "accuracy", ASYNC,
              "fedasync_misses_90_noniid2", "HiFL's exponential weighting"),
        Claim("fedasync_misses_70_noniid1", "FedAsync even fails to reach 70 % on Non-IID(1)",
              misses("fedasync", one, 0.7, "hifl"), 0.7, "accuracy", ASYNC),
        Claim("fedasync_exp_misses_70_noniid1", "the same with HiFL's exponential weighting",
              misses("fedasync-exp", one, 0.7, "hifl"), 0.7, "accuracy", ASYNC,
              "fedasync_misses_70_noniid1", "HiFL's exponential weighting"),
        _fewer("hiflash", "hifl", one, -10.0, "HiFlash needs 10 % fewer than HiFL on Non-IID(1)"),
        _fewer("fedasync", "hifl", "iid", None, "FedAsync needs fewer than HiFL on IID data",
               why="a communication of HiFL carries about 20 client tasks, one of FedAsync a single one"),
        Claim("hifl_is_best_noniid2", "HiFL needs the fewest of all but FedAsync and HiFlash",
              fewest("hifl", two, ("fedavg", "hierfavg", "fedat")), why=MIXING),
        Claim("hifl_is_best_everywhere", "the same on every partition and for every target that HiFL reaches",
              fewest_everywhere("hifl", ("iid", two, one), ("fedavg", "hierfavg", "fedat")),
              unit="% of them", why=MIXING),
        Claim("needs_grow_with_heterogeneity",
              "what a method needs grows from IID to Non-IID(2) to Non-IID(1), whichever method",
              grows(("fedavg", "hierfavg", "fedat", "hifl", "hiflash"), ("iid", two, one)),
              unit="% in order"),
        _lead(("iid", two, one)),
    ]  # fmt: skip


def epochs_communications() -> list[Claim[Runs]]:
    """Return those of them that are about Non-IID(2): there the reading with local epochs is run."""
    return [
        replace(
            claim,
            of=f"communications-mnist/{claim.of or claim.name}",
            reading=", ".join(filter(None, ("c = 3 epochs", claim.reading))),
            why=ASYNC if "fedasync" in claim.name else STALE_EPOCHS,
        )
        for claim in mnist_communications()
        if claim.name.endswith("noniid2")
    ]


def femnist_communications() -> list[Claim[Runs]]:
    """Return the claims about communications to a target on FEMNIST."""
    return _fewest_of_all(NATURAL, "hiflash_is_best", "HiFlash needs the fewest communications of all")


def cifar10_communications() -> list[Claim[Runs]]:
    """Return the claims about communications to a target on CIFAR-10."""
    one = "noniid1"
    return [
        Claim("hiflash_communications_noniid1", "HiFlash reaches 60 % with 6,403 communications",
              needs("hiflash", one, 0.6, 6403), 6403, "communications", "another model and scale"),
        *(_fewer("hiflash", label, one, paper, f"HiFlash needs {-paper} % fewer than {label} on {one}",
                 why=MIXING if theirs == "hierfavg" else "",
                 of=f"hiflash_below_{theirs}_{one}" if reading else "", reading=reading)
          for theirs, paper in (("fedat", -23.07), ("hierfavg", -42.23), ("fedavg", -89.82))
          for label, reading in readings(theirs)),
        *(claim for part in ("iid", "noniid2", one) for claim in _fewest_of_all(
            part, f"hiflash_is_best_{part}", f"HiFlash needs the fewest of all on {part}")),
        _lead(("iid", "noniid2", one)),
    ]  # fmt: skip


def trade_off_claims() -> list[Claim[Runs]]:
    """Return the claims about highest accuracy and the communications that it took, CIFAR-10 Non-IID(2)."""
    two, ours = "noniid2", "hiflash"
    claims = [
        Claim("fewer_than_fedavg", "HiFlash needs 87 % fewer communications than FedAvg to its best accuracy",
              to_both_best(ours, "fedavg", two), -87.0, "percent"),
        Claim("accuracy_near_fedavg", f"its best accuracy is 2.1 points lower (up to {SLIGHT:g} are slight)",
              best_near(ours, "fedavg", two, SLIGHT), -2.1, "points", KEPT),
        Claim("accuracy_above_fedasync", "FedAsync misses a satisfactory accuracy: HiFlash is above at best",
              best_near(ours, "fedasync", two), unit="points", why=ASYNC),
    ]  # fmt: skip
    for theirs, mixing, kept in (("fedat", "", ""), ("hierfavg", MIXING, KEPT)):
        for label, reading in readings(theirs):
            less, above = (f"{what}_{theirs}" if reading else "" for what in ("fewer_than", "accuracy_above"))
            name = label.replace("-", "_")
            claims += [
                Claim(f"fewer_than_{name}", f"HiFlash needs more than 5 % fewer communications than {label}",
                      to_both_best(ours, label, two, 5.0), -5.0, "percent", mixing, less, reading),
                Claim(f"accuracy_above_{name}", f"its best accuracy is 16 points above that of {label}",
                      best_near(ours, label, two), 16.0, "points", kept, above, reading),
            ]  # fmt: skip
    return claims


def _fewest_of_all(part: str, name: str, says: str) -> list[Claim[Runs]]:
    """Return the claim that HiFlash needs the fewest for every target, also in other readings of rivals."""
    why = f"where another needs fewer: {MIXING}; {OPEN}"
    claims = [
        Claim(
            name,
            f"{says}, for every target",
            fewest_everywhere("hiflash", (part,), RIVALS),
            unit="% of them",
            why=why,
        )
    ]
    for method, others in READINGS.items():
        for label, reading in others.items():
            rivals = tuple(label if rival == method else rival for rival in RIVALS)
            rule, own = fewest_everywhere("hiflash", (part,), rivals), f"{name}_{label}".replace("-", "_")
            claims.append(
                Claim(
                    own, f"{says}, with {label}", rule, None, "% of them", why, name, f"{method}: {reading}"
                )
            )
    return claims


def _hierarchy(part: str) -> list[Claim[Runs]]:
    """Return the claim that HierFAVG needs fewer communications than FedAvg."""
    return [
        _fewer("hierfavg", "fedavg", part, None, "HierFAVG (2 edges a round) needs much fewer than FedAvg"),
        _fewer("hierfavg-5", "fedavg", part, None, "the same with 5 edges a round",
               of=f"hierfavg_below_fedavg_{part}", reading="5 edges a round"),
    ]  # fmt: skip


def _lead(partitions: tuple[str, ...]) -> Claim[Runs]:
    """Return the claim that heterogeneity makes HiFlash's lead larger."""
    return Claim(
        "lead_grows_with_heterogeneity",
        "what HiFlash needs, as a share of what FedAvg, HierFAVG and FedAT need, falls with heterogeneity",
        share_falls("hiflash", ("fedavg", "hierfavg", "fedat"), partitions),
        unit="% in order",
        why="FedAT's needs grow less with heterogeneity, as its tiers report after every edge round; so may "
        "FedAvg's",
    )


def _fewer(
    ours: str, theirs: str, part: str, paper: float | None, says: str, *, why: str = "", of: str = "",
    reading: str = "",
) -> Claim[Runs]:  # fmt: skip
    name = f"{ours}_below_{theirs}_{part}".replace("-", "_")
    return Claim(name, says, fewer(ours, theirs, part), paper, "percent", why, of, reading)
