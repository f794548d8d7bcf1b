"""Claims about accuracy against client work; each speaks of one partition."""

from __future__ import annotations

from dataclasses import replace

from hiflash.study.paper.claims import Claim
from hiflash.study.paper.pair_rules import near, rougher
from hiflash.study.paper.reasons import ASYNC, KEPT, ONE_METHOD, OVERFITS, ROUGHNESS, TIERS, readings
from hiflash.study.paper.rule_makers import highest, slightly_below
from hiflash.study.paper.runs import Runs

__all__ = ["NATURAL", "SLIGHT", "accuracy_claims"]

NEAR = 2.0  # points of accuracy: "comparable", without a number
SLIGHT = 3.0  # points of accuracy: "slightly", without a number
PAPER_METHODS = ("fedavg", "hierfavg", "fedat", "fedasync", "hifl", "hiflash")
WHY = {"hierfavg": KEPT, "fedat": TIERS, "fedasync": ASYNC}
"""Why HiFL or HiFlash may not be above a method at equal client work."""
NATURAL = "writer"
OF_WRITERS = {f"hiflash_above_{theirs}_{NATURAL}" for theirs in ("hierfavg", "fedat")}
"""What the paper says of accuracy on FEMNIST: HiFlash is above other hierarchical methods."""


def accuracy_claims(partitions: tuple[str, ...]) -> list[Claim[Runs]]:
    """Return the claims about accuracy against client steps.

    On FEMNIST most of them are those of MNIST and CIFAR-10, which the paper does not repeat there.
    """
    claims: list[Claim[Runs]] = []
    for partition in partitions:
        found = [claim for ours in ("hifl", "hiflash") for claim in _against_others(ours, partition)]
        found += [
            Claim(
                f"fedavg_above_hierfavg_{partition}",
                f"HierFAVG uses client work less well than FedAvg on {partition}",
                near("fedavg", "hierfavg", partition),
                unit="points",
                why=ONE_METHOD,
            ),
            Claim(
                f"fedasync_is_rougher_{partition}",
                f"FedAsync's curve oscillates more than HiFL's on {partition}",
                rougher("fedasync", "hifl", partition),
                unit="times",
                why=ROUGHNESS,
            ),
        ]
        claims += [_whose(claim) if partition == NATURAL else claim for claim in found]
    claims.append(
        Claim(
            "centralized_is_the_upper_bound",
            "pooled data give the highest accuracy of all, on every partition",
            highest("centralized", partitions, PAPER_METHODS),
            unit="points",
            why=OVERFITS,
        )
    )
    return claims


def _against_others(ours: str, part: str) -> list[Claim[Runs]]:
    """Return the claims about the accuracy of HiFL or HiFlash at equal client work."""
    if part == "iid":
        name, word, rule = "near", "comparable with", near(ours, "fedavg", part, NEAR)
        bound, why = f"at most {NEAR:g} points below", KEPT
    else:
        name, word, rule = "slightly_below", "slightly below", slightly_below(ours, "fedavg", part, SLIGHT)
        bound = f"by at most {SLIGHT:g} points"
        helped = "where it is above, both its parts help; where it is far below: "
        why = KEPT if ours == "hifl" else helped + KEPT
    says = f"{ours} is {word} FedAvg ({bound}; the bound is ours) on {part}"
    claims = [Claim(f"{ours}_{name}_fedavg_{part}", says, rule, None, "points", why)]
    for theirs in ("hierfavg", "fedat", "fedasync"):
        for label, reading in readings(theirs):
            name = f"{ours}_above_{label}_{part}".replace("-", "_")
            says = f"{ours} is above {label} at equal client work on {part}"
            of = f"{ours}_above_{theirs}_{part}" if reading else ""
            rule, why = near(ours, label, part), WHY.get(theirs, "")
            claims.append(Claim(name, says, rule, None, "points", why, of, reading))
    return claims


def _whose(claim: Claim[Runs]) -> Claim[Runs]:
    """Return a claim on FEMNIST as the paper's or, if it does not make it there, ours."""
    return claim if (claim.of or claim.name) in OF_WRITERS else replace(claim, whose="ours")
