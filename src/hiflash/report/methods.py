"""How each method is written and drawn, the same in every figure and table."""

from collections.abc import Iterable
from dataclasses import dataclass

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
    "tifl": ("TiFL", Look("#DDAA33", "-.", "P")),
    "fedat": ("FedAT", Look("#AA4499", "--", "X")),
    "hifl": ("HiFL", Look("#CC6677", "-", "p")),
    "hiflash": ("HiFlash", Look("#882255", "-.", "h")),
}
# Tol's "vibrant" scheme: none of these can be mistaken for a known method's colour.
_COLOURS = ("#EE7733", "#0077BB", "#CC3311", "#009988", "#EE3377", "#33BBEE", "#000000")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("<", ">", "d", "*", "8")


def label(name: str) -> str:
    """Return a method's name as papers write it, or the label as given."""
    return _KNOWN[name][0] if name in _KNOWN else name


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return how each name is drawn: methods always alike, other labels in the order of the list."""
    chosen: dict[str, Look] = {}
    others = 0
    for name in names:
        if name in _KNOWN:
            chosen[name] = _KNOWN[name][1]
        elif name not in chosen:
            # The three lengths have no common divisor: 140 labels pass before two look the same.
            chosen[name] = Look(
                _COLOURS[others % len(_COLOURS)],
                _DASHES[others % len(_DASHES)],
                _MARKERS[others % len(_MARKERS)],
            )
            others += 1
    return chosen
