"""Edge rounds under secure sums: the models of simulated clients meet only as a masked sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hiflash.errors import ConfigError
from hiflash.messages import ClientUpdate, Weights
from hiflash.weights import finite

__all__ = ["OpenedRound", "SecureRules", "open_round", "require_packages"]


class SecureRules(NamedTuple):
    """How edge rounds are summed: the largest change of a value, and the seed of the simulated keys."""

    bound: float
    seed: int


class OpenedRound(NamedTuple):
    """What an edge learns from a round: one model, all samples together, who took part, clipped values."""

    weights: Weights
    examples: int
    clients: tuple[int, ...]
    clipped: int


def open_round(
    rules: SecureRules,
    place: tuple[int, int, int],
    asked: Sequence[tuple[int, int]],
    updates: Sequence[ClientUpdate],
    quorum: int,
    base: Weights,
) -> OpenedRound | None:
    """Return the sum of a round, None if fewer than `quorum` of its clients have something to send.

    `place` has edge, lease and round. `asked` are all clients of the round with their samples; those without
    an update were late, and are lost when the others send their vectors. A client whose model is not finite
    sends nothing.
    """
    from hiflash.privacy.sums.edge import Opened
    from hiflash.privacy.sums.fixed_point import FixedPoint, ceiling
    from hiflash.privacy.sums.in_memory import sum_in_memory
    from hiflash.privacy.sums.messages import Terms, Words

    most = sum(ceiling(examples) for _, examples in asked)
    clients = tuple(sorted(client for client, _ in asked))
    terms = Terms("simulation", *place, clients, base.size, rules.bound, most)
    form, sent = FixedPoint.of(terms), {update.client: update for update in updates}

    def vector_of(client: int) -> Words | None:
        update = sent.get(client)
        if update is None or not finite(update.weights):
            return None
        return form.encode(update.weights.astype("float64") - base, update.examples)

    opened = sum_in_memory(terms, rules.seed, vector_of, quorum=quorum)
    if not isinstance(opened, Opened):
        return None
    summed = opened.summed
    return OpenedRound(summed.applied(base), summed.examples, opened.clients, summed.clipped)


def require_packages() -> None:
    """Raise if a package is missing that secure sums need."""
    try:
        import hiflash.privacy.sums.in_memory  # noqa: F401  # it imports all of them
    except ImportError as error:
        raise ConfigError(
            f'edge.secure = "secagg" needs a package that is not installed ({error.name}): '
            'pip install "hiflash[serve]"'
        ) from None
