"""The kinds of parts: the keys that choose them, what makes them, and what they must be able to do.

A new kind is a table of parts beside their code, a row here, and a key in a section of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hiflash.agents import find_agent
from hiflash.core.aggregation import AGGREGATES
from hiflash.core.association.parts import ASSOCIATIONS
from hiflash.core.attack import ATTACKS
from hiflash.core.compression import COMPRESSIONS
from hiflash.core.mixing import MIXINGS
from hiflash.core.optimizers import OPTIMIZERS
from hiflash.core.registry import Key, Part, discover
from hiflash.core.selection import SELECTIONS
from hiflash.core.thresholds.agent import AgentPolicy
from hiflash.core.weighting import WEIGHTINGS
from hiflash.data.datasets import DATASETS
from hiflash.data.partition import PARTITIONS, split_name
from hiflash.data.poison import LABEL_FLIP
from hiflash.methods.models import MODELS
from hiflash.methods.tasks import TASKS

__all__ = ["KINDS", "THRESHOLDS", "Kind", "kind_of"]


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of part. `keys` choose its parts, `arguments` are what `make` gets, in words.

    What `make` returns must have the `methods` and `attributes`; `returns` says it in words. `words` are
    values of the keys that name no part.
    """

    word: str
    keys: tuple[str, ...]
    parts: dict[str, Part]
    arguments: str
    returns: str
    methods: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[str, ...]:
        """Return the sections of the configuration with keys of this kind.

        With more than one, `make` and `problem` get the name of the section.
        """
        return tuple(dict.fromkeys(key.partition(".")[0] for key in self.keys))

    def name_in(self, value: Any) -> str | None:
        """Return the name of a part in the value of a key, None if the value names none.

        >>> KINDS["partition"].name_in("noniid2"), KINDS["threshold"].name_in(3)
        ('noniid', None)
        """
        if not isinstance(value, str):
            return None
        name = split_name(value)[0] if self.word == "partition" else value
        return name if name in self.parts else None


def _agent_policy(config: Any) -> AgentPolicy:
    return AgentPolicy(
        find_agent(config),
        edges=config.units,
        threshold_max=config.cloud.threshold_max,
        temperature=config.cloud.temperature,
        seed=config.seed,
    )


AGENT = Part(  # not in core, because an agent is a file
    "agent",
    "the choice of a trained agent: a threshold up to `threshold_max`, or a refusal",
    _agent_policy,
    keys=(
        Key(
            "agent",
            str,
            default="auto",
            low=1,
            high=4096,
            allowed='"auto", the name of a shipped agent, or the path of a file',
            about="threshold agent: the agent that decides; auto chooses by dataset and association",
        ),
        Key(
            "temperature",
            float,
            default=0.0,
            low=0,
            high=1e6,
            about="threshold agent: 0 takes the best action, more draws from the softmax of the Q-values",
        ),
    ),
    reads=("threshold_max",),
)

_found = discover("hiflash.core.algorithms")
ALGORITHMS: dict[str, Part] = {"sgd": _found["sgd"], **_found}  # the default first
THRESHOLDS: dict[str, Part] = {**discover("hiflash.core.thresholds"), AGENT.name: AGENT}

STATE = ("snapshot", "restore")

KINDS: dict[str, Kind] = {
    kind.word: kind
    for kind in (
        Kind(
            "association",
            ("federation.association",),
            ASSOCIATIONS,
            "config, scene",
            "the clients of each edge, as lists",
        ),
        Kind(
            "client algorithm",
            ("client.algorithm",),
            ALGORITHMS,
            "config",
            "a `ClientAlgorithm`: what clients do with a model",
            ("traffic", "before", "after", "cloud", "rule"),
            ("keeps", "gathers"),
        ),
        Kind(
            "aggregate",
            ("edge.aggregate", "cloud.aggregate"),
            AGGREGATES,
            "config, section",
            "a rule that makes one model of many",
            ("combine",),
            ("least",),
        ),
        Kind(
            "selection",
            ("cloud.selection",),
            SELECTIONS,
            "config, peers",
            "what chooses the participants of synchronous rounds",
            ("wants_recall", "observe", "choose", *STATE),
        ),
        Kind(
            "optimizer",
            ("cloud.optimizer",),
            OPTIMIZERS,
            "config, trained",
            "an optimiser of the cloud for synchronous rounds",
            ("step", *STATE),
        ),
        Kind(
            "mixing",
            ("cloud.mixing",),
            MIXINGS,
            "config, trained",
            "a rule that takes an edge model into the global model",
            ("mix", *STATE),
        ),
        Kind(
            "weighting",
            ("cloud.weighting",),
            WEIGHTINGS,
            "config",
            "a function of the staleness",
            ("__call__",),
        ),
        Kind(
            "threshold",
            ("cloud.threshold",),
            THRESHOLDS,
            "config",
            "a policy that decides how stale an upload may be",
            ("decide", *STATE),
        ),
        Kind(
            "attack",
            ("attack.kind",),
            {**ATTACKS, LABEL_FLIP.name: LABEL_FLIP},
            "config, malicious",
            "an attack of the malicious clients",
            ("tamper", "poison"),
        ),
        Kind(
            "compression",
            ("wan.upload", "wan.download"),
            COMPRESSIONS,
            "config, spec",
            "a codec for models of this shape",
            ("encode", "decode"),
            ("partial", "payload_bytes"),
        ),
        Kind(
            "dataset",
            ("data.name",),
            DATASETS,
            "config",
            "a `Dataset`",
            ("normalised",),
            ("x", "y", "x_test", "y_test", "classes"),
            words=("none", "own"),
        ),
        Kind(
            "partition",
            ("data.partition",),
            PARTITIONS,
            "config, samples, clients, number, stream",
            "the sample indices of each client, as lists",
        ),
        Kind(
            "model",
            ("model.name",),
            MODELS,
            "config, shape, classes",
            "a torch module",
            words=("auto", "own"),
        ),
        Kind(
            "task",
            ("data.task",),
            TASKS,
            "config",
            "a `Task`: a loss with metrics",
            ("losses", "loss", "sums", "scores", "fitted", "targets", "check"),
            ("metrics",),
            words=("auto",),
        ),
    )
}


_BY_KEY = {key: kind for kind in KINDS.values() for key in kind.keys}


def kind_of(key: str) -> Kind | None:
    """Return the kind of part that a key chooses, None for other keys."""
    return _BY_KEY.get(key)
