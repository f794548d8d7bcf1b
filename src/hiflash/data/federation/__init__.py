"""Federations that were measured and not drawn: from files, or from arrays in Python (docs/federation.md).

May import the vocabulary.
"""

from __future__ import annotations

from .arrays import FederationData
from .availability import EVENTS, Availability, ClientEvent
from .files import from_anywhere, is_remembered, read_federation, remember

__all__ = [
    "EVENTS",
    "Availability",
    "ClientEvent",
    "FederationData",
    "from_anywhere",
    "is_remembered",
    "read_federation",
    "remember",
]
