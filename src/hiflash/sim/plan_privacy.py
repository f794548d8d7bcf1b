"""The numbers of a private run from its configuration: noise, planned rounds, divisors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hiflash.config import Config
from hiflash.core.association.parts import BY_LABELS
from hiflash.core.edge import taking_part
from hiflash.errors import ConfigError
from hiflash.privacy.accounting import Mechanism, epsilon, noise_for
from hiflash.privacy.ledger import Budget
from hiflash.privacy.sums.messages import MOST_CLIENTS
from hiflash.privacy.sums.noised import spread_noise
from hiflash.sim.machines import least_clients
from hiflash.sim.population import Population
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.resources import local_steps
from hiflash.sim.sent_histograms import SentHistograms, sent_histograms

__all__ = ["plan_of", "planned_rounds"]


def plan_of(
    config: Config, population: Population, size: int, *, deployed: bool = False
) -> PrivacyPlan | None:
    """Return the plan of a run with models of this size, None without differential privacy."""
    dp = config.dp
    if dp.unit == "off":
        return None
    examples = population.examples.tolist()
    steps = [local_steps(config, count) for count in examples]
    rounds = planned_rounds(config, steps) if dp.noise == "auto" else None
    at_cloud = dp.unit == "client" and config.federation.flat and config.cloud.schedule == "sync"
    probability = _probability(config)
    rates = [min(1.0, config.client.batch / count) for count in examples] if dp.unit == "sample" else []
    mobile = population.mobile(config)
    sent = sent_histograms(config, len(examples), deployed=deployed, mobile=mobile)
    beside = [(sent.mechanism, 1)] if sent is not None and sent.release.unit == dp.unit else []
    _check_histograms(config, beside)
    noise = dp.noise
    if noise == "auto":
        noise = _calibrated(config, rounds or 1, probability, rates, steps, beside)
    charged, divisors = noise, _divisors(config, population)
    if dp.where == "clients":
        # Not the largest cluster: clients may move into it.
        charged = spread_noise(noise, min(len(examples), MOST_CLIENTS), size)
    plan = PrivacyPlan(
        unit=dp.unit,
        clip=dp.clip,
        noise=noise,
        charged=charged,
        budget=Budget(None if dp.epsilon == "none" else dp.epsilon, dp.delta),
        clients=len(examples),
        sampling=probability,
        where=dp.where,
        divisors=divisors,
        at_cloud=at_cloud,
        rounds=rounds,
        cloud_divisor=float(config.cloud.participants if dp.clients == "auto" else dp.clients),
        rates=tuple(rates),
        steps=tuple(steps) if rates else (),
        notes=_notes(config, sent, mobile=mobile),
        histograms=sent,
        least=least_clients(config),
    )
    _check_first_round(plan, beside)
    return plan


def planned_rounds(config: Config, steps: Sequence[int]) -> int:
    """Return how many edge rounds a client pays for if the limits of a run are shared out evenly.

    A fixed choice of clients is charged for the rounds in which it takes part; with Poisson sampling every
    client of a cluster is charged for all of them.
    """
    dp, stop, clients = config.dp, config.stop, len(steps)
    if dp.rounds != "auto":
        return dp.rounds
    size = clients / config.federation.edges
    share = 1.0 if config.federation.flat else _share(config, size)
    per_lease = 1.0 if config.federation.flat else sum(config.edge.edge_rounds) / len(config.edge.edge_rounds)
    found = []
    if stop.communications != "none":
        found.append(stop.communications / config.units * per_lease * share)
    if stop.client_steps != "none":
        found.append(stop.client_steps / sum(steps))
    return max(1, math.ceil(min(found) / _probability(config)))


def _probability(config: Config) -> float:
    """Return the probability with which a client joins a round; 1 without Poisson sampling."""
    if config.dp.unit != "client" or config.dp.sampling == "none":
        return 1.0
    if config.federation.flat:
        return config.cloud.participants / config.federation.clients
    return float(config.edge.clients_per_round)


def _share(config: Config, size: float) -> float:
    """Return the share of a cluster that takes part in an edge round."""
    wanted = config.edge.clients_per_round
    if wanted == "all":
        return 1.0
    return float(wanted) if wanted < 1 else min(1.0, wanted / size)


def _divisors(config: Config, population: Population) -> tuple[float, ...]:
    if config.federation.flat:
        return (1.0,) * len(population.clusters)
    if config.dp.clients != "auto":
        return (float(config.dp.clients),) * len(population.clusters)
    probability = _probability(config)
    wanted = None if config.edge.clients_per_round == "all" else config.edge.clients_per_round
    sizes = [len(cluster) for cluster in population.clusters]
    if probability < 1:
        return tuple(max(1.0, probability * size) for size in sizes)
    return tuple(float(max(1, taking_part(wanted, size))) for size in sizes)


def _calibrated(
    config: Config,
    rounds: int,
    probability: float,
    rates: Sequence[float],
    steps: Sequence[int],
    beside: Sequence[tuple[Mechanism, int]],
) -> float:
    dp = config.dp
    if dp.epsilon == "none":
        raise ConfigError('dp.noise = "auto" needs dp.epsilon')
    if not rates:
        return noise_for(dp.epsilon, dp.delta, rounds, probability, beside)
    tasks = set(zip(rates, steps, strict=True))
    return max(noise_for(dp.epsilon, dp.delta, rounds * count, rate, beside) for rate, count in tasks)


def _check_histograms(config: Config, beside: Sequence[tuple[Mechanism, int]]) -> None:
    """Raise if the histogram that a client has sent costs its whole budget."""
    dp, cost = config.dp, epsilon(beside, config.dp.delta)
    if dp.epsilon != "none" and cost >= dp.epsilon:
        raise ConfigError(
            f"dp.epsilon = {dp.epsilon:g} is used up by the label histogram of a client, which costs epsilon "
            f'{cost:.4g} at delta {dp.delta:g} (privacy.unit = "{dp.unit}"); lower privacy.epsilon, or raise '
            "dp.epsilon"
        )


def _check_first_round(plan: PrivacyPlan, beside: Sequence[tuple[Mechanism, int]]) -> None:
    """Raise if no client can pay for a single round."""
    if plan.budget.epsilon is None or any(plan.left(plan.ledger(), range(plan.clients))):
        return
    mechanism, _ = next(iter(plan.entries.values()))
    times = min(plan.steps, default=1)
    cost = epsilon([(mechanism, times), *beside], plan.budget.delta)
    needed = noise_for(plan.budget.epsilon, plan.budget.delta, times, mechanism.sampling, beside)
    it = "it and the label histogram cost" if beside else "it costs"
    raise ConfigError(
        f"dp.epsilon = {plan.budget.epsilon:g} does not pay for one edge round: at dp.noise = "
        f"{plan.noise:g} {it} epsilon {cost:.4g} at delta {plan.budget.delta:g}. One round needs "
        f"dp.noise >= {needed:g}; raise dp.epsilon or dp.noise, or leave dp.noise out to have it calibrated"
    )


def _notes(config: Config, sent: SentHistograms | None, *, mobile: bool) -> tuple[str, ...]:
    """Return what the noise of a run does not cover."""
    notes = []
    if config.dp.unit == "client" and config.dp.delta * config.federation.clients >= 1:
        notes.append(
            f"dp.delta = {config.dp.delta:g} is not below 1 / {config.federation.clients:,} clients: who "
            "gives some of them away could keep this promise"
        )
    if mobile and sent is None and not config.federation.flat:
        notes.append("clients that join or are moved were placed by their label counts")
    if sent is None and not config.federation.flat and config.federation.association in BY_LABELS:
        read = "label counts of clients"
        if config.privacy.histograms == "group":
            read = f"label counts of groups of {config.privacy.group} clients"
        notes.append(f'federation.association = "{config.federation.association}" read {read}')
    if config.cloud.schedule == "sync" and config.cloud.selection == "tiers":
        notes.append('cloud.selection = "tiers" read label counts of clients')
    return tuple(notes)
