"""Claims about HiFL's own parts: thresholds, Edge-IID, mixing weights, cost, latency, accuracy against JS.

Written before the runs that are reported.
"""

from __future__ import annotations

from hiflash.study.paper.claims import Claim, Found, on_balanced
from hiflash.study.paper.runs import Rule, Runs, correlation, count_words, fewer, near, ordered, steadier

__all__ = [
    "cost_claims",
    "edge_iid_claims",
    "js_accuracy_claims",
    "latency_claims",
    "mixing_claims",
    "point_label",
    "threshold_claims",
]

TAUS = ("tau-0", "tau-2", "tau-8", "tau-inf")
CHOSEN, WITHIN = "0.7/0.99", 1000


def point_label(point: dict[str, float]) -> str:
    """Return the label of a point of the grid: alpha/upsilon.

    >>> point_label({"cloud.alpha": 0.7, "cloud.penalty": 0.99})
    '0.7/0.99'
    """
    return f"{point['cloud.alpha']:g}/{point['cloud.penalty']:g}"


def threshold_claims() -> list[Claim[Runs]]:
    """Return the claims about fixed thresholds."""
    admitted = "under admit a fixed threshold already keeps all but tau + 1 edges from starting"
    return [
        Claim("tau2_below_inf", "tau <= 2 needs less than 1/5 of the client work of tau = inf to 90 %",
              _share("tau-2", "tau-inf", 0.2), 9.8e4 / 5.3e5, "ratio", admitted),
        Claim("tau2_steps", "tau <= 2 reaches 90 % within 98,000 client updates",
              _within("tau-2", 9.8e4), 9.8e4, "client steps"),
        Claim("inf_steps", "tau = inf takes 530,000 client updates (more than 98,000) to 90 %",
              _beyond("tau-inf", 9.8e4), 5.3e5, "client steps",
              "ten edges with a WAN have a mean staleness of about 8; the paper's may be larger"),
        Claim("inf_fluctuates", "a larger tau causes larger fluctuations of accuracy",
              steadier("tau-2", "tau-inf"), unit="times"),
        Claim("computing_rises", "a smaller tau costs less computing",
              ordered(TAUS, "compute_cost"), unit="% in order"),
        Claim("sending_rises", "a smaller tau costs less communication",
              ordered(TAUS, "communications"), unit="% in order"),
        Claim("time_falls", "a smaller tau prolongs training",
              ordered(TAUS, "virtual_s", rising=False), unit="% in order",
              why="a larger tau also needs more updates, and that eats what parallel edges save"),
    ]  # fmt: skip


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


def mixing_claims() -> list[Claim[Runs]]:
    """Return the claims about the grid of alpha and upsilon."""
    return [
        Claim("converges_within_1000", "the model converges (90 %) within 1,000 communications",
              _within(CHOSEN, WITHIN, "communications"), WITHIN, "communications"),
        Claim("chosen_is_best", "alpha 0.7, upsilon 0.99 does best (within 1 point of the best at the end)",
              _near_best(CHOSEN, 1.0), unit="points"),
        Claim("high_alpha_fluctuates", "alpha 0.9 fluctuates more than 0.7",
              steadier(CHOSEN, "0.9/0.99"), unit="times"),
    ]  # fmt: skip


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
    others = ("fedavg", "hierfavg", "fedat", "hifl", "hiflash")
    return [
        *(Claim(f"fedasync_lowest_{short}", f"FedAsync has the lowest {words}",
                _lowest("fedasync", others, name), unit="ms",
                why="a client of FedAsync answers alone, so that its mean is over all clients")
          for short, words, name in MEASURES),
        *(Claim(f"fedat_below_hiflash_{short}", f"FedAT has a lower {words} than HiFlash",
                _lowest("fedat", ("hiflash",), name), unit="ms") for short, words, name in MEASURES),
        *(Claim(f"hiflash_below_hifl_{short}", f"HiFlash has a lower {words} than random association",
                _lowest("hiflash", ("hifl",), name), unit="ms") for short, words, name in MEASURES),
    ]  # fmt: skip


MEASURES = (
    ("latency", "response latency", "response_latency_ms"),
    ("waiting", "waiting time", "waiting_ms"),
)


def js_accuracy_claims() -> list[Claim[Runs]]:
    """Return the claims about accuracy against the total JS divergence of the edges."""
    return [
        Claim("accuracy_falls_with_js", "accuracy falls as the total JS divergence rises (rank correlation)",
              _falls_with_js, -1.0, "correlation"),
        Claim("drop", "accuracy drops by 12 points (77 to 65 %) from the lowest to the highest divergence",
              _drop, -12.0, "points", "another task and scale: the paper does not say which it was"),
    ]  # fmt: skip


def _share(ours: str, theirs: str, limit: float) -> Rule:
    """Return a rule: one label needs less than a share of another's client steps to the target.

    One that did not reach it needs more than it spent. Our number is the share.
    """

    def rule(runs: Runs) -> Found:
        a, b = (runs.to_target(label, None, "client_steps") for label in (ours, theirs))
        told = f"client steps: {ours} {count_words(a)}, {theirs} {count_words(b)}"
        if a is not None and b is not None:
            return Found(a / b < limit, a / b, told)
        spent = runs.work([theirs])
        return Found(True if a is not None and spent and a / spent < limit else None, None, told)

    return rule


def _within(label: str, limit: float, measure: str = "client_steps") -> Rule:
    def rule(runs: Runs) -> Found:
        needs, spent = runs.to_target(label, None, measure), runs.mean(label, measure)
        if needs is not None:
            return Found(needs <= limit, needs, f"{label} {needs:,.0f}")
        enough = spent is not None and spent >= limit
        return Found(False if enough else None, None, f"{label} not within {spent or 0:,.0f}")

    return rule


def _beyond(label: str, limit: float) -> Rule:
    def rule(runs: Runs) -> Found:
        found = _within(label, limit)(runs)
        return Found(None if found.holds is None else not found.holds, found.ours, found.words)

    return rule


def _near_best(label: str, points: float) -> Rule:
    def rule(runs: Runs) -> Found:
        ends = {each: runs.accuracy(each) for each in dict.fromkeys(str(c["label"]) for c in runs.cells)}
        known = {each: value for each, value in ends.items() if value is not None}
        if label not in known:
            return Found(None, None, f"needs runs of {label}")
        best = max(known, key=lambda each: known[each])
        gap = 100 * (known[label] - known[best])
        told = f"{label} {100 * known[label]:.1f} %, best {best} {100 * known[best]:.1f} %"
        return Found(gap >= -points, gap, told)

    return rule


def _lowest(label: str, others: tuple[str, ...], name: str) -> Rule:
    """Return a rule: no other mean is below this one. Our number is the mean."""

    def rule(runs: Runs) -> Found:
        values = {each: runs.mean(each, name) for each in (label, *others)}
        known = {each: value for each, value in values.items() if value is not None}
        if len(known) < len(values):
            return Found(None, None, "needs runs of " + ", ".join(set(values) - set(known)))
        told = ", ".join(f"{each} {value:.0f}" for each, value in known.items())
        return Found(all(known[label] <= known[each] for each in others), known[label], f"{told} ms")

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
    return Found(None if found is None else found <= -0.5, found, told)


def _drop(runs: Runs) -> Found:
    points = _points(runs)
    if len(points) < 2:
        return Found(None, None, "needs several associations")
    (low, first), (high, last) = points[0], points[-1]
    change = 100 * (last - first)
    return Found(change < 0, change, f"{100 * first:.1f} % at {low:.2f}, {100 * last:.1f} % at {high:.2f}")
