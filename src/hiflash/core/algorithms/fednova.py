"""FedNova (Wang et al. 2020): averages the changes per step, so that more steps do not weigh more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hiflash.core.aggregation import Rule
from hiflash.core.algorithms.algorithm import ClientAlgorithm
from hiflash.core.registry import Part
from hiflash.messages import Weights
from hiflash.weights import weighted_mean

__all__ = ["PARTS", "FedNova", "NormalisedMean"]


@dataclass(frozen=True)
class FedNova(ClientAlgorithm):
    """Clients train as with plain SGD; only the mean of their models changes."""

    def rule(self, rule: Rule, trained: int) -> Rule:
        """Return the normalised mean."""
        return NormalisedMean(trained)


@dataclass(frozen=True, slots=True)
class NormalisedMean:
    """`w + tau_eff sum_i p_i (u_i - w) / a_i`: p_i by samples, a_i steps, `tau_eff = sum_i p_i a_i`.

    The entries after the first `trained` are running statistics, which get their mean by samples.
    """

    trained: int
    least = 1

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the normalised mean of models that were trained from `base`."""
        if len(models) == 1:
            return models[0]
        total = float(sum(counts))
        tau_eff = sum(count / total * own for count, own in zip(counts, steps, strict=True))
        moved = base[: self.trained].astype(np.float64)
        for model, count, own in zip(models, counts, steps, strict=True):
            change = model[: self.trained].astype(np.float64) - base[: self.trained]
            moved += tau_eff * count / (total * own) * change
        statistics = weighted_mean([model[self.trained :] for model in models], counts)
        return np.concatenate([moved.astype(np.float32), statistics])


def _problem(config: Any) -> str | None:
    asynchronous = config.cloud.schedule == "async"
    if config.federation.flat and asynchronous:
        return (
            'client.algorithm = "fednova" changes how the models of a round are averaged, and a flat '
            "asynchronous method averages none; use edges or a synchronous method"
        )
    for section in ("edge", "cloud"):
        rule = getattr(config, section).aggregate
        if rule != "mean" and not (section == "cloud" and asynchronous):
            return f'client.algorithm = "fednova" is itself a mean; leave out {section}.aggregate = "{rule}"'
    if config.client.optimizer == "sgd":
        return None
    return (
        'client.algorithm = "fednova" counts SGD steps, and the steps of client.optimizer = '
        f'"{config.client.optimizer}" have other lengths; use "sgd"'
    )


PARTS = (
    Part(
        "fednova",
        "SGD whose models are averaged per step, so that more steps weigh no more (Wang et al. 2020)",
        lambda _: FedNova(),
        problem=_problem,
    ),
)
