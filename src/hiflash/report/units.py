"""Numbers in the units people read: 14.3 k, 1.2 MB, 12m 05s, 91.3%; an unknown number is "-"."""

from math import isfinite

__all__ = ["UNKNOWN", "count", "duration", "percent", "size"]

UNKNOWN = "-"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def count(value: float | None) -> str:
    """Write three significant digits with k, M, G or T: 290, 14.3 k, 1.25 M."""
    return _scaled(value, ("", "k", "M", "G", "T"))


def size(value: float | None) -> str:
    """Write bytes in decimal units: 512 B, 1.2 MB."""
    return _scaled(value, ("B", "kB", "MB", "GB", "TB"))


def duration(seconds: float | None) -> str:
    """Write seconds as the two leading units, at most seven characters: 4.2s, 12m 05s, 3h 20m, 2d 04h."""
    if seconds is None or not isfinite(seconds):
        return UNKNOWN
    if seconds < _MINUTE - 0.05:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02d}m"
    days = f"{whole // _DAY}d"
    return f"{days} {whole % _DAY // _HOUR:02d}h" if whole < 100 * _DAY else days


def percent(fraction: float | None) -> str:
    """Write a fraction as a percentage with one decimal: 91.3%."""
    return UNKNOWN if fraction is None or not isfinite(fraction) else f"{fraction:.1%}"


def _scaled(value: float | None, suffixes: tuple[str, ...]) -> str:
    if value is None or not isfinite(value):
        return UNKNOWN
    scaled, step = float(value), 0
    # 999.5 is where three digits would round up to 1000 and print as 1e+03.
    while abs(scaled) >= 999.5 and step < len(suffixes) - 1:
        scaled, step = scaled / 1000, step + 1
    digits = f"{scaled:.3g}" if abs(scaled) < 999.5 else f"{scaled:.0f}"
    return f"{digits} {suffixes[step]}".rstrip()
