"""Edge rounds under secure sums: the models of simulated clients meet only as a masked sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from hiflash.messages import ClientUpdate, Weights
from hiflash.privacy.mechanism import PrivateSum
from hiflash.weights import finite

if TYPE_CHECKING:
    from hiflash.privacy.sums.messages import Terms, Words

__all__ = ["OpenedRound", "PrivateRounds", "SecureRules", "open_round"]


@dataclass(frozen=True, slots=True)
class PrivateRounds:
    """Edge rounds whose sums are private: how a sum is made, and the fixed divisor of every edge."""

    sum: PrivateSum
    divisors: tuple[float, ...]


class SecureRules(NamedTuple):
    """How edge rounds are summed: the largest change of a value, and the seed of the simulated keys.

    With `private` every client adds its share of the noise, and nobody sees a sum without it.
    """

    bound: float
    seed: int
    private: PrivateRounds | None = None


class OpenedRound(NamedTuple):
    """What an edge learns from a round: one model, all samples together, who took part, clipped values.

    Samples and clipped values of a private round stay with its clients: both are 0.
    """

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
    sends nothing, or in a private round no change.
    """
    from hiflash.privacy.sums.edge import Opened
    from hiflash.privacy.sums.fixed_point import ceiling
    from hiflash.privacy.sums.in_memory import sum_in_memory
    from hiflash.privacy.sums.messages import Terms, model_digest
    from hiflash.privacy.sums.noised import NoisedSum

    clients = tuple(sorted(client for client, _ in asked))
    most = sum(ceiling(examples) for _, examples in asked)
    model = model_digest(base.tobytes())
    terms = Terms("simulation", *place, clients, base.size, rules.bound, most, model=model)
    if rules.private is not None:
        how = rules.private.sum
        terms = replace(terms, bound=how.clip, most_examples=len(clients), noise=how.noise)
    sent = {update.client: update for update in updates}

    def vector_of(client: int) -> Words | None:
        return None if client not in sent else _vector(terms, rules.private, sent[client], base)

    opened = sum_in_memory(terms, rules.seed, vector_of, quorum=quorum)
    if not isinstance(opened, Opened):
        return None
    summed = opened.summed
    if isinstance(summed, NoisedSum):
        divisor = 1.0 if rules.private is None else rules.private.divisors[terms.edge]
        return OpenedRound(summed.applied(base, divisor), 0, opened.clients, 0)
    return OpenedRound(summed.applied(base), summed.examples, opened.clients, summed.clipped)


def _vector(terms: Terms, private: PrivateRounds | None, update: ClientUpdate, base: Weights) -> Words | None:
    """Return what a client puts into a sum, None if it has nothing to send."""
    from hiflash.privacy.sums.fixed_point import FixedPoint
    from hiflash.privacy.sums.noised import Noised

    if private is not None:
        names = (terms.lease_id, terms.round, update.client)
        stream = private.sum.randomness.stream("client noise", *names)
        return Noised.of(terms).encode(update.weights, base, stream)
    if not finite(update.weights):
        return None
    return FixedPoint.of(terms).encode(update.weights.astype("float64") - base, update.examples)
