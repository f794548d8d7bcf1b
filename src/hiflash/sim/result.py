"""The result of a run: the numbers of `result.json`, the final model and the run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.messages import Weights

__all__ = ["Result"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Every number of a run by its name in `result.json`; docs/metrics.md says what each one means."""

    name: str
    method: str
    data: str
    partition: str
    model: str
    seed: int
    config_digest: str
    digest: str
    trainer: str
    stop_reason: str
    stop_target: float | None
    parameters: int
    version: int
    communications: int
    client_uploads: int
    client_steps: int
    wasted_client_steps: int
    virtual_s: float
    wan_bytes: int
    wan_bytes_up: int
    wan_bytes_down: int
    lan_bytes: int
    lan_bytes_up: int
    lan_bytes_down: int
    compute_cost: float
    send_cost: float
    total_cost: float
    response_latency_ms: float
    latency_per_edge_ms: list[float]
    waiting_ms: float
    waiting_per_edge_ms: list[float]
    total_js: float | None
    js_per_edge: list[float]
    cluster_sizes: list[int]
    sample_overlap: float
    accuracy: float | None
    best_accuracy: float | None
    loss: float | None
    evaluations: list[dict[str, Any]]
    targets: dict[str, dict[str, Any] | None]
    targets_stable: dict[str, dict[str, Any] | None]
    staleness: dict[str, Any]
    thresholds: dict[str, int]
    grants_per_edge: list[int]
    applied_per_edge: list[int]
    refused: int
    waited: int
    cancelled: int
    discarded: int
    rejected: int
    abandoned: int
    wall_s: float
    targets_interpolated: dict[str, dict[str, float] | None] = field(default_factory=dict)
    rejections: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    mobility: dict[str, Any] = field(default_factory=dict)
    task: str = "classification"
    metric: str = "accuracy"
    metric_better: str = "higher"
    metric_unit: str = "share"
    scores: dict[str, float | None] = field(default_factory=dict)
    best: float | None = None
    chance: float | None = None
    stop_set: str | None = "test"
    validation: dict[str, Any] = field(default_factory=dict)
    made_by: list[dict[str, Any]] = field(default_factory=list)
    clients: dict[str, Any] = field(default_factory=dict)
    client_metrics: dict[str, float] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)
    secure: dict[str, Any] = field(default_factory=dict)
    agent: str | None = None
    path: Path | None = None
    weights: Weights = field(default_factory=lambda: np.zeros(0, np.float32), repr=False)

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any], **more: Any) -> Result:
        """Return the result with the numbers of a `result.json`."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in numbers.items() if name in names}, **more)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `result.json`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("path", "weights")}
