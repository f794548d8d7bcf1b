"""Numbers in the units people read: 14.3 k, 1.2 MB, 12m 05s, 91.3%; an unknown number is "-"."""

from math import floor, isfinite, log10
from typing import Literal

__all__ = ["UNKNOWN", "Unit", "count", "duration", "goal", "percent", "size", "spread"]

UNKNOWN = "-"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_COUNTS, _BYTES = ("", "k", "M", "G", "T"), ("B", "kB", "MB", "GB", "TB")

Unit = Literal["count", "bytes", "seconds", "share"]


def count(value: float | None) -> str:
    """Write three significant digits with k, M, G or T: 290, 14.3 k, 1.25 M."""
    return _scaled(value, _COUNTS)


def size(value: float | None) -> str:
    """Write bytes in decimal units: 512 B, 1.2 MB."""
    return _scaled(value, _BYTES)


def duration(seconds: float | None) -> str:
    """Write seconds in their two largest units, at most seven characters: 4.2s, 12m 05s, 3h 20m, 2d 04h."""
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


def goal(target: float) -> str:
    """Write a target accuracy: 90%, 92.5%."""
    return percent(target).replace(".0%", "%")


def spread(mean: float | None, deviation: float | None, unit: Unit) -> str:
    """Write a mean and its deviation in the same unit, the mean with three digits.

    >>> spread(1960, 120, "count"), spread(1960, None, "count"), spread(0.91, 0.014, "share")
    ('1.96±0.12 k', '1.96 k', '91.0±1.4%')
    """
    if mean is None or not isfinite(mean):
        return UNKNOWN
    scale, suffix = _unit(mean, unit)
    whole = floor(log10(max(abs(mean) / scale, 1.0)) + 1e-9)
    digits = 1 if unit == "share" else max(2 - whole, 0)
    number = f"{mean / scale:.{digits}f}"
    if deviation is not None:
        return f"{number}±{deviation / scale:.{digits}f}{suffix}"
    # Without a deviation, trailing zeros would only pretend to be digits: 290, not 290.0.
    return f"{mean / scale:.3g}{suffix}" if unit != "share" else f"{number}{suffix}"


def _unit(mean: float, unit: Unit) -> tuple[float, str]:
    if unit == "share":
        return 0.01, "%"
    if unit == "seconds":
        steps = ((10 * _MINUTE, 1, " s"), (2 * _HOUR, _MINUTE, " min"), (2 * _DAY, _HOUR, " h"))
        return next(((size, name) for limit, size, name in steps if mean < limit), (_DAY, " d"))
    names = _COUNTS if unit == "count" else _BYTES
    step = 0
    while abs(mean) / 1000**step >= 999.5 and step < len(names) - 1:
        step += 1
    return 1000.0**step, f" {names[step]}".rstrip()


def _scaled(value: float | None, suffixes: tuple[str, ...]) -> str:
    if value is None or not isfinite(value):
        return UNKNOWN
    scaled, step = float(value), 0
    # From 999.5 on, three digits round up to 1000, which prints as 1e+03.
    while abs(scaled) >= 999.5 and step < len(suffixes) - 1:
        scaled, step = scaled / 1000, step + 1
    digits = f"{scaled:.3g}" if abs(scaled) < 999.5 else f"{scaled:.0f}"
    return f"{digits} {suffixes[step]}".rstrip()
