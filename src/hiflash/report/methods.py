"""How each method is written and coloured, the same in every figure and table."""

from zlib import crc32

__all__ = ["CENTRALIZED", "colour", "label"]

CENTRALIZED = "centralized"
"""The reference that sends nothing: a level line in figures, no competitor in tables."""

# Paul Tol's "muted" scheme, safe for the common kinds of colour blindness; related methods get related hues.
_KNOWN = {
    CENTRALIZED: ("Centralized", "#444444"),
    "fedavg": ("FedAvg", "#332288"),
    "fedprox": ("FedProx", "#88CCEE"),
    "fedasync": ("FedAsync", "#117733"),
    "fedbuff": ("FedBuff", "#44AA99"),
    "hierfavg": ("HierFAVG", "#999933"),
    "tifl": ("TiFL", "#DDCC77"),
    "fedat": ("FedAT", "#AA4499"),
    "hifl": ("HiFL", "#CC6677"),
    "hiflash": ("HiFlash", "#882255"),
}
# Tol's "vibrant" scheme: none of these can be mistaken for a known method's colour.
_OTHERS = ("#EE7733", "#0077BB", "#CC3311", "#009988", "#EE3377", "#33BBEE")


def label(method: str) -> str:
    """Return the method's name as papers write it, or the name as given."""
    return _KNOWN[method][0] if method in _KNOWN else method


def colour(method: str) -> str:
    """Return the method's colour, depending on nothing but its name."""
    if method in _KNOWN:
        return _KNOWN[method][1]
    return _OTHERS[crc32(method.encode()) % len(_OTHERS)]
