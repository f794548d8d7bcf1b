"""Name, colour and marker of each method, the same in every figure, table and live view."""

from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_lowercase

__all__ = ["CENTRALIZED", "Look", "label", "looks"]

CENTRALIZED = "centralized"


@dataclass(frozen=True)
class Look:
    """Colour, dashes and marker: any two methods differ in colour and in one of the others."""

    colour: str
    dashes: str = "-"
    marker: str = "o"


# Paul Tol's "muted" scheme, safe for the common kinds of colour blindness; related methods get related hues.
_KNOWN = {
    CENTRALIZED: ("Centralized", Look("#444444", "--", "")),
    "fedavg": ("FedAvg", Look("#332288", "-", "o")),
    "fedprox": ("FedProx", Look("#88CCEE", "--", "s")),
    "fedasync": ("FedAsync", Look("#117733", "-", "^")),
    "fedbuff": ("FedBuff", Look("#44AA99", "--", "v")),
    "hierfavg": ("HierFAVG", Look("#999933", "-", "D")),
    "scaffold": ("SCAFFOLD", Look("#225555", "-", ">")),
    "feddyn": ("FedDyn", Look("#663333", "--", "<")),
    "fednova": ("FedNova", Look("#AAAA00", "-.", "*")),
    "fedavgm": ("FedAvgM", Look("#6699CC", "-", "d")),
    "fedadam": ("FedAdam", Look("#997700", "--", "8")),
    "fedyogi": ("FedYogi", Look("#994455", "-.", "H")),
    "tifl": ("TiFL", Look("#DDAA33", "-.", "P")),
    "fedat": ("FedAT", Look("#AA4499", "--", "X")),
    "hifl": ("HiFL", Look("#CC6677", "-", "p")),
    "hiflash": ("HiFlash", Look("#882255", "-.", "h")),
    "hidelta": ("HiDelta", Look("#7A4FE0", "--", "*")),
}
# Tol's "vibrant" scheme: no colour here is close to that of a known method.
_COLOURS = ("#EE7733", "#0077BB", "#CC3311", "#009988", "#EE3377", "#33BBEE", "#000000")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("<", ">", "d", "*", "8")


def label(name: str) -> str:
    """Return a method's name as papers write it, also at the start of a variant's label.

    >>> label("hierfavg"), label("hifl+delta"), label("hierfavg-5"), label("mine")
    ('HierFAVG', 'HiFL + delta', 'HierFAVG-5', 'mine')
    """
    rest = name.lstrip(ascii_lowercase)
    method = name.removesuffix(rest)
    if method not in _KNOWN or rest[:1].isalnum():
        return name  # as the user spelled it
    return _KNOWN[method][0] + rest.replace("+", " + ")


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each name: methods have a fixed one, other labels get theirs in order."""
    chosen: dict[str, Look] = {}
    others = 0
    for name in names:
        if name in _KNOWN:
            chosen[name] = _KNOWN[name][1]
        elif name not in chosen:
            # Lengths 7, 4 and 5 have no common divisor, so the first 140 labels all look different.
            chosen[name] = Look(
                _COLOURS[others % len(_COLOURS)],
                _DASHES[others % len(_DASHES)],
                _MARKERS[others % len(_MARKERS)],
            )
            others += 1
    return chosen
