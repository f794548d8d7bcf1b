"""The paper's items in words for readers: data, partitions, labels, and the texts of verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hiflash.report.methods import label

__all__ = ["data_words", "in_words", "label_words", "over_seeds_words", "part_title", "part_words"]

DATA = {"mnist": "MNIST", "femnist": "FEMNIST", "cifar10": "CIFAR-10"}
PARTS = {"iid": "IID", "writer": "one writer per client", "pooled": "pooled data"}
DETAILS = {
    "5": "5 edges",
    "5-equal": "5 edges and HiFL's H",
    "5x2": "5 edges of 2 clients",
    "agent": "agent alone",
    "aware": "association alone",
    "edge-iid": "Edge-IID",
    "edge-noniid": "Edge-NonIID",
    "exp": "HiFL's weighting",
    "h": "HiFL's H",
    "momentum": "momentum",
    "ours": "ours",
    "paper": "paper's accounting",
    "tau2": "threshold 2",
    "slot-10ms": "slots of 0.01 s",
    "slot-100ms": "slots of 0.1 s",
    "slot-500ms": "slots of 0.5 s",
    "wan-off": "no WAN delays",
    "wan-slow": "a slow WAN",
}
"""What follows a method in a label."""
WHOLE = {
    "fedat-5": ("FedAT", "5 tiers"),
    "edge-iid": ("Edge-IID", ""),
    "edge-noniid": ("Edge-NonIID", ""),
}
"""Labels whose parts alone mean something else."""
NAMES = {
    "lenet": "LeNet",
    "femnist_cnn": "the CNN",
    "resnet": "the network",
    "resnet18": "ResNet-18",
    "agent-16": "the DDQN for tau_max 16",
    "agent-4": "the DDQN for tau_max 4",
    "total_js": "total JS divergence",
}
"""Other raw names in the texts of verdicts."""

_METHOD = r"(?:fed|hi|tifl|scaffold|centralized)[a-z]*"
_LABEL = rf"(?:{_METHOD}(?:[-+][a-z0-9]+)*|edge-(?:non)?iid|tau-(?:\d+|inf)(?:-discard)?)"
_SETTING = r"tau-(?:\d+|inf)(?:-discard)?|edge-(?:non)?iid|\d[\d.]*/\d[\d.]*"
_WORD = r"(?<![\w/+.-]){}(?![\w/+-])"  # a whole name, and not a part of another


def data_words(name: str) -> str:
    """Return a dataset as papers write it.

    >>> data_words("mnist"), data_words("mine")
    ('MNIST', 'mine')
    """
    return DATA.get(name, name)


def part_words(name: str) -> str:
    """Return a partition as the paper writes it.

    >>> [part_words(name) for name in ("noniid2", "noniid1-balanced", "iid", "dirichlet0.5")]
    ['Non-IID(2)', 'balanced Non-IID(1)', 'IID', 'dirichlet0.5']
    """
    found = re.fullmatch(r"noniid(\d+)(-balanced)?", name)
    if found is None:
        return PARTS.get(name, name)
    return ("balanced " if found[2] else "") + f"Non-IID({found[1]})"


def part_title(name: str) -> str:
    """Return a partition for the start of a line.

    >>> part_title("noniid1-balanced")
    'Balanced Non-IID(1)'
    """
    words = part_words(name)
    return words[:1].upper() + words[1:]


def label_words(name: str) -> str:
    """Return the label of a method, a variant or a point of a grid.

    >>> label_words("hifl-paper"), label_words("hierfavg-5+wan-off")
    ("HiFL, paper's accounting", 'HierFAVG, 5 edges, no WAN delays')
    >>> label_words("tau-inf"), label_words("0.7/0.99"), label_words("mine")
    ('tau = inf', 'alpha 0.7, upsilon 0.99', 'mine')
    """
    head, details = _parts(name)
    return ", ".join([head, *details])


def over_seeds_words(seeds: int, words: str = "mean of {} seeds") -> str:
    """Return how many seeds a figure shows, for the end of its title.

    >>> over_seeds_words(3), over_seeds_words(1)
    ('(mean of 3 seeds)', '(one seed)')
    """
    return f"({words.format(seeds)})" if seeds > 1 else "(one seed)"


def in_words(text: str) -> str:
    """Return a text of a verdict with names of settings in words.

    >>> in_words("communications to 90 %: hiflash 208, hierfavg-5 621, on noniid2-balanced")
    'communications to 90 %: HiFlash 208, HierFAVG (5 edges) 621, on balanced Non-IID(2)'
    >>> in_words("mean fall: tau-2 0.08, tau-inf 0.14 points")
    'mean fall: 0.08 with tau = 2, 0.14 points with tau = inf'
    >>> in_words("mean_latency_ms 37.5 at lambda 0, 43.2 at 1000")
    'mean response latency 37.5 ms at lambda 0, 43.2 ms at 1000'
    >>> in_words("hiflash is above hierfavg on writer")
    'HiFlash is above HierFAVG with one writer per client'
    """
    text = re.sub(r"\bon writer\b", f"with {PARTS['writer']}", text)
    if "mean_latency_ms" in text:
        text = re.sub(r"(?<=\d) at ", " ms at ", text.replace("mean_latency_ms", "mean response latency"))
    # "tau = 2 0.08" would be two numbers side by side.
    told = re.compile(_WORD.format(rf"({_SETTING}) (\d(?:[\d,.]*\d)?(?: (?:points|%|ms)(?!\w))?)"))
    text = told.sub(lambda found: f"{found[2]} with {_point(found[1])}", text)
    text = re.sub(_WORD.format(r"(noniid\d+(?:-balanced)?|iid)"), lambda found: part_words(found[1]), text)
    text = re.sub(_WORD.format(f"({_LABEL})"), lambda found: _running(found[1]), text)
    names = "|".join(sorted(NAMES, key=len, reverse=True))
    return re.sub(_WORD.format(f"({names})"), lambda found: NAMES[found[1]], text)


def _parts(name: str) -> tuple[str, Sequence[str]]:
    """Return the head of a label and its details in words."""
    base, *under = name.split("+")
    if base in WHOLE:
        head, detail = WHOLE[base]
        return head, [each for each in (detail, *map(_detail, under)) if each]
    if tau := re.fullmatch(r"tau-(\d+|inf)(-discard)?", base):
        return f"tau = {tau[1]}", ["late models dropped"] if tau[2] else []
    if point := re.fullmatch(r"([\d.]+)/([\d.]+)", base):
        return f"alpha {point[1]}", [f"upsilon {point[2]}"]
    if re.match(r"(lambda|classes)-\d", base):
        return _detail(base), []
    method, _, detail = base.partition("-")
    if label(method) == method:
        return name, []  # as the user spelled it
    return label(method), [_detail(each) for each in (detail, *under) if each]


def _detail(name: str) -> str:
    if found := re.fullmatch(r"(tau|lambda)-?(\d+)", name):
        return f"{found[1]} = {found[2]}"
    if found := re.fullmatch(r"classes-(\d+)", name):
        return f"{found[1]} classes per edge"
    return DETAILS.get(name, name)


def _running(name: str) -> str:
    """Return a label for the middle of a sentence: details in brackets, for commas part one from the next."""
    head, details = _parts(name)
    return f"{head} ({', '.join(details)})" if details else head


def _point(name: str) -> str:
    """Return a setting for the end of "90.6 % with"."""
    head, details = _parts(name)
    return " and ".join([head, *details])
