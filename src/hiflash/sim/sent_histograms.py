"""Label histograms that clients have sent with noise before a run, for its privacy ledger."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hiflash.config import Config
from hiflash.core.association.parts import BY_LABELS
from hiflash.privacy.accounting import Mechanism
from hiflash.privacy.histograms import Release, release_of

__all__ = ["HISTOGRAM", "SentHistograms", "sent_histograms"]

HISTOGRAM = "label histogram"


@dataclass(frozen=True)
class SentHistograms:
    """What every client of a run has sent once: its histogram, with the noise of a release."""

    release: Release
    clients: int

    @property
    def mechanism(self) -> Mechanism:
        """Return the noise as a ledger counts it."""
        return Mechanism(self.release.multiplier, self.release.noise)

    def report(self) -> dict[str, Any]:
        """Return what was promised, for `result.json`; epsilon and delta are those of each client."""
        return {**asdict(self.release), "clients": self.clients}


def sent_histograms(
    config: Config, clients: int, *, deployed: bool, mobile: bool = False
) -> SentHistograms | None:
    """Return what clients have sent for their association; None if nobody asked, or histograms were exact.

    Where clients are `mobile`, joins and repairs look at labels too.

    Deployed clients are associated beforehand, from what `hiflash histogram` has written. Nodes know the
    result alone, so one with `serve.data = "own"` and an association in files counts as made that way.
    """
    release = release_of(config.privacy, deployed=deployed)
    if release is None or config.federation.flat or config.cloud.schedule == "centralized":
        return None
    association = config.federation.association
    if deployed:
        asked = config.serve.data == "own" and association == "given"
    else:
        asked = association in BY_LABELS or mobile
    return SentHistograms(release, clients) if asked else None
