"""Claims about HiFL's own parts: Edge-IID, cost, latency, accuracy against JS."""

from __future__ import annotations

import math

from hiflash.study.paper.claims import Claim, Found, on_balanced
from hiflash.study.paper.pair_rules import Rule, fewer, near
from hiflash.study.paper.runs import STRONG, Runs, correlation

__all__ = [
    "cost_claims",
    "edge_iid_claims",
    "js_accuracy_claims",
    "latency_claims",
]


def edge_iid_claims() -> list[Claim[Runs]]:
    """Return the claims about Edge-IID against Edge-NonIID."""
    claims = []
    for part in ("noniid1", "noniid1-balanced"):
        claims += [
            Claim(f"faster_{part}", f"Edge-IID converges faster on {part}",
                  fewer("edge-iid", "edge-noniid", part, "client_steps"), None, "percent", "",
                  *on_balanced("faster", part)),
            Claim(f"higher_{part}", f"Edge-IID converges to a higher accuracy on {part}",
                  near("edge-iid", "edge-noniid", part), None, "points", "",
                  *on_balanced("higher", part)),
        ]  # fmt: skip
    return claims


def cost_claims() -> list[Claim[Runs]]:
    """Return the claims about the total cost of HiFL and HiFlash."""
    cheaper, whole = "total_cost", "hiflash_is_cheaper"
    return [
        Claim(whole, "HiFlash has a lower system cost than HiFL", fewer("hiflash", "hifl", None, cheaper),
              unit="percent"),
        Claim("hiflash_is_cheaper_paper_accounting", "the same with the paper's literal reward",
              fewer("hiflash-paper", "hifl-paper", None, cheaper), unit="percent",
              of=whole, reading="the paper's literal reward"),
        # The paper credits staleness control with the whole difference.
        Claim("thresholds_alone", "the agent alone lowers the cost, under HiFL's random association",
              fewer("hifl-agent", "hifl", None, cheaper), unit="percent",
              of=whole, reading="the agent alone"),
        Claim("association_alone", "the association alone lowers the cost, with random thresholds",
              fewer("hifl-aware", "hifl", None, cheaper), unit="percent",
              of=whole, reading="the association alone"),
    ]  # fmt: skip


def latency_claims() -> list[Claim[Runs]]:
    """Return the claims about response latency and waiting time."""
    hierarchies = ("hierfavg", "fedat", "hifl", "hiflash")
    return [
        *(Claim(f"fedasync_lowest_{short}", f"FedAsync has the lowest {words}",
                _lowest("fedasync", hierarchies, name), unit="ms")
          for short, words, name in MEASURES),
        *(Claim(f"fedat_below_hiflash_{short}", f"FedAT has a lower {words} than HiFlash",
                _lowest("fedat", ("hiflash",), name), unit="ms") for short, words, name in MEASURES),
        *(Claim(f"hiflash_below_hifl_{short}", f"HiFlash has a lower {words} than random association",
                _lowest("hiflash", ("hifl",), name), unit="ms", whose="ours")
          for short, words, name in MEASURES),
    ]  # fmt: skip


PAPER_JS = 1.9  # the highest total divergence that the paper shows
MEASURES = (
    ("latency", "response latency", "response_latency_ms"),
    ("waiting", "waiting time", "waiting_ms"),
)


def js_accuracy_claims() -> list[Claim[Runs]]:
    """Return the claims about accuracy against the total JS divergence of the edges."""
    return [
        Claim("accuracy_falls_with_js", "accuracy falls as the total JS divergence rises (rank correlation)",
              _falls_with_js, unit="correlation"),
        Claim("drop", "accuracy drops by 12 points (77 to 65 %) from the lowest to the highest divergence",
              _drop(), -12.0, "points", "another task and scale: the paper does not say which it was"),
        Claim("drop_in_range", f"the same within the paper's range of divergences (up to {PAPER_JS:g})",
              _drop(PAPER_JS), -12.0, "points", "", "drop", f"up to a divergence of {PAPER_JS:g}"),
    ]  # fmt: skip


def _lowest(label: str, others: tuple[str, ...], name: str) -> Rule:
    """Return a rule: every other mean is above this one. Our number is the mean."""

    def rule(runs: Runs) -> Found:
        values = {each: runs.mean(each, name) for each in (label, *others)}
        known = {each: value for each, value in values.items() if value is not None}
        if len(known) < len(values):
            return Found(
                None, None, "needs runs of " + ", ".join(each for each in values if each not in known)
            )
        told = ", ".join(f"{each} {value:.1f}" for each, value in known.items())
        return Found(all(known[label] < known[each] for each in others), known[label], f"{told} ms")

    return rule


def _points(runs: Runs) -> list[tuple[float, float]]:
    """Return total JS and accuracy of HiFL's labels, means over seeds, the lowest JS first."""
    labels = dict.fromkeys(str(cell["label"]) for cell in runs.cells if cell["method"] == "hifl")
    pairs = [(runs.mean(label, "total_js"), runs.accuracy(label)) for label in labels]
    return sorted((js, accuracy) for js, accuracy in pairs if js is not None and accuracy is not None)


def _falls_with_js(runs: Runs) -> Found:
    points = _points(runs)
    found = correlation([js for js, _ in points], [accuracy for _, accuracy in points])
    told = ", ".join(f"JS {js:.2f}: {100 * accuracy:.1f} %" for js, accuracy in points)
    return Found(None if found is None else found <= -STRONG, found, told)


def _drop(most: float = math.inf) -> Rule:
    """Return a rule: of divergences up to some, the highest has a lower accuracy than the lowest."""

    def rule(runs: Runs) -> Found:
        points = [point for point in _points(runs) if point[0] <= most]
        if len(points) < 2:
            return Found(None, None, "needs several associations")
        (low, first), (high, last) = points[0], points[-1]
        told = f"{100 * first:.1f} % at {low:.2f}, {100 * last:.1f} % at {high:.2f}"
        return Found(last < first, 100 * (last - first), told)

    return rule
