"""What clients have paid in privacy, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["histogram_words", "spent_words"]


def spent_words(spent: Mapping[str, Any]) -> str:
    """Return what was spent of a privacy budget, in words; empty without one."""
    sent = histogram_words(spent)
    if "epsilon" not in spent:
        return sent
    of = "" if spent["budget"] is None else f" of {spent['budget']:g}"
    words = f"epsilon {spent['epsilon']:.3f}{of} at delta {spent['delta']:g} for a {spent['unit']}"
    if spent["epsilon_participation"] != spent["epsilon"]:
        words += f", {spent['epsilon_participation']:.3f} for those who see who takes part"
    words += f"; noise {spent['noise']:g}, clip {spent['clip']:g}"
    beside = [sent] if sent else []
    return "; ".join([words, *beside, *(f"not covered: {note}" for note in spent["not_covered"])])


def histogram_words(spent: Mapping[str, Any]) -> str:
    """Return what clients have paid for their label histograms, in words; empty if none was sent with noise.

    It may protect another unit than the noise of the model, so it is no part of that epsilon.
    """
    sent = spent.get("histograms")
    if not sent:
        return ""
    delta = f" at delta {sent['delta']:g}" if sent["delta"] else ""
    return f"label histograms epsilon {sent['epsilon']:g}{delta} for a {sent['unit']} ({sent['noise']} noise)"
