"""A threshold: an upload may be as stale as there are open leases, and `slack` more.

hiflash run --plugin examples/plugins/threshold.py --cloud.threshold crowd --cloud.slack 2
"""

import hiflash


class Crowd(hiflash.Stateful):
    """Lets an edge be overtaken once by everybody who works at the moment."""

    def __init__(self, slack: int) -> None:
        self.slack = slack

    def decide(self, view, edge: int) -> int:
        """Return how stale the upload of an edge may be."""
        return len(view.leases) + self.slack


hiflash.register(
    "threshold",
    hiflash.Part(
        "crowd",
        "the number of open leases plus `slack`",
        lambda config: Crowd(config.cloud.slack),
        keys=(
            hiflash.Key("slack", int, default=1, low=0, high=1000, about="threshold crowd: extra versions"),
        ),
    ),
)
