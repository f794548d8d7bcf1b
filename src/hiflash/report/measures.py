"""Names and units of the measures, the same in every table and figure."""

from dataclasses import dataclass

from hiflash.report.units import Unit

__all__ = ["COSTS", "EVALUATED", "MEASURES", "Measure"]


@dataclass(frozen=True)
class Measure:
    """A measure of a run: its name in a sentence, its unit, and its head in a table."""

    words: str
    unit: Unit
    head: str

    @property
    def title(self) -> str:
        """The name with a capital letter, for an axis or a title."""
        return self.words[0].upper() + self.words[1:]

    @property
    def axis(self) -> str:
        """The title with the unit of the plotted numbers."""
        return self.title + {"seconds": " (s)", "share": " (%)"}.get(self.unit, "")


MEASURES = {
    "communications": Measure("communications", "count", "comms"),
    "client_steps": Measure("client steps", "count", "client\nsteps"),
    "virtual_s": Measure("virtual time", "seconds", "virtual\ntime"),
    "wan_bytes": Measure("WAN bytes", "bytes", "WAN\nbytes"),
    "total_cost": Measure("total cost", "count", "total\ncost"),
    "compute_cost": Measure("cost of computing", "count", "computing"),
    "send_cost": Measure("cost of sending", "count", "sending"),
    "time_cost": Measure("cost of time", "count", "time"),
    "accuracy": Measure("final accuracy", "share", "final\naccuracy"),
    "best_accuracy": Measure("best accuracy", "share", "best\naccuracy"),
    "worst_edge_accuracy": Measure("accuracy of the worst edge", "share", "worst\nedge"),
    "loss": Measure("final loss", "count", "final\nloss"),
}
"""Every measure by its name in a result."""

COSTS = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")
"""What a run spends until it reaches a target; results, evaluations and targets all have these."""

EVALUATED = (
    "total_cost",
    "compute_cost",
    "send_cost",
    "time_cost",
    "communications",
    "virtual_s",
    "client_steps",
    "worst_edge_accuracy",
)
"""The measures by which policies are compared, in the order of the tables."""
