"""Rules between keys: each is a small function that returns a problem, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hiflash.config.private_rules import PRIVATE_RULES
from hiflash.core.association.parts import BY_LABELS
from hiflash.core.edge import taking_part
from hiflash.methods.kinds import KINDS
from hiflash.methods.registry import aggregate, chosen, with_keys
from hiflash.privacy.sums.messages import LEAST_CLIENTS, MOST_CLIENTS, MOST_OF_A_CLIENT

if TYPE_CHECKING:
    from hiflash.config.tree import Config

__all__ = ["broken_rules"]

MOBILE_PAIRS = 500_000_000  # client-edge pairs: 4 GB of paths


def broken_rules(config: Config) -> list[str]:
    """Return the problems between the keys of a configuration; each key by itself is valid."""
    problems = [*(rule(config) for rule in RULES), *_problems_of_parts(config)]
    return [problem for problem in problems if problem]


def _problems_of_parts(config: Config) -> Iterator[str | None]:
    """Yield what the chosen parts report about a configuration."""
    for kind in KINDS.values():
        for key in kind.keys:
            section, _, name = key.partition(".")
            if kind.name_in(getattr(getattr(config, section), name)) is None:
                continue
            part = chosen(config, key)
            if part.problem is not None:
                yield part.problem(config, section) if len(kind.sections) > 1 else part.problem(config)


def _an_edge_has_a_client(config: Config) -> str | None:
    edges, clients = config.federation.edges, config.federation.clients
    if edges <= clients:
        return None
    return (
        f"federation.edges ({edges}) must not exceed federation.clients ({clients}): an edge needs a client"
    )


def _capacity_suffices(config: Config) -> str | None:
    federation = config.federation
    capacity, edges, clients = federation.capacity, federation.edges, federation.clients
    if capacity == "none" or capacity * edges >= clients:
        return None
    return (
        f"federation.capacity ({capacity}) x federation.edges ({edges}) leaves no room for "
        f"federation.clients ({clients}); it must be at least {-(-clients // edges)}"
    )


def _enough_participants(config: Config) -> str | None:
    cloud = config.cloud
    if cloud.schedule != "sync" or cloud.participants <= config.units:
        return None
    return f"cloud.participants ({cloud.participants}) must not exceed {_units(config)}"


def _edge_can_aggregate(config: Config) -> str | None:
    wanted, clients = config.edge.clients_per_round, config.federation.clients
    if wanted == "all":
        return _can_aggregate(config, "edge", clients, "federation.clients")
    if wanted < 1:  # what counts is the cluster, and the largest one has all clients
        most = taking_part(wanted, clients)
        return _can_aggregate(config, "edge", most, f"edge.clients_per_round = {wanted} of all clients")
    return _can_aggregate(config, "edge", int(wanted), "edge.clients_per_round")


def _cloud_can_aggregate(config: Config) -> str | None:
    if config.cloud.schedule != "sync":
        return None
    return _can_aggregate(config, "cloud", config.cloud.participants, "cloud.participants")


def _can_aggregate(config: Config, section: str, most: int, what: str) -> str | None:
    """Return the problem of an aggregation rule that gets at most `most` models."""
    least = aggregate(config, section).least
    if most >= least:
        return None
    return f"{with_keys(config, f'{section}.aggregate')} needs {least} models, and {what} is {most}"


def _attack_has_clients(config: Config) -> str | None:
    share, clients = config.attack.share, config.federation.clients
    if config.attack.kind == "none" or share * clients >= 0.5:
        return None
    return f"attack.share = {share} of federation.clients = {clients} is less than one client; raise it"


def _flat_means_one_round(config: Config) -> str | None:
    rounds = list(config.edge.edge_rounds)
    if not config.federation.flat or rounds == [1]:
        return None
    return f"edge.edge_rounds must be [1] without edges (federation.flat), got {rounds}"


def _slow_edge_stays(config: Config) -> str | None:
    if not _mobile(config) or config.resources.slow_edge == 1:
        return None
    return "resources.slow_edge needs fixed clusters; leave out mobility.*"


def _paths_of_mobile_clients_fit_in_memory(config: Config) -> str | None:
    federation = config.federation
    pairs = federation.clients * federation.edges
    if not _mobile(config) or federation.flat or pairs <= MOBILE_PAIRS:
        return None
    return (
        f"with mobility federation.clients * federation.edges must be at most {MOBILE_PAIRS:,}, got "
        f"{pairs:,}: the path of every client to every edge is kept; use fewer edges"
    )


def _groups_fit(config: Config) -> str | None:
    federation, privacy = config.federation, config.privacy
    if privacy.histograms != "group" or federation.flat or config.cloud.schedule == "centralized":
        return None
    if _mobile(config):
        return (
            'privacy.histograms = "group" associates groups once, and mobility.* places single clients; use '
            '"single" with a privacy.epsilon, or leave out mobility.*'
        )
    if federation.association not in BY_LABELS:
        return (
            f'privacy.histograms = "group" works with {", ".join(BY_LABELS)}, and federation.association is '
            f'"{federation.association}", which would see single clients; leave it out'
        )
    if privacy.group * federation.edges > federation.clients:
        return (
            f"privacy.group ({privacy.group}) x federation.edges ({federation.edges}) exceeds "
            f"federation.clients ({federation.clients}): an edge needs a group; lower one of them"
        )
    return None


def _no_data_no_training(config: Config) -> str | None:
    if config.data.name != "none" or config.trainer == "none":
        return None
    return 'data.name = "none" needs trainer = "none": there is no data to train on'


def _centralized_trains(config: Config) -> str | None:
    if config.cloud.schedule != "centralized" or config.trainer != "none":
        return None
    return f'trainer = "none" trains nothing, and {config.method} only trains; use another trainer or method'


def _a_run_ends(config: Config) -> str | None:
    stop = config.stop
    if any(limit != "none" for limit in (stop.communications, stop.client_steps, stop.virtual_s)):
        return None
    return "one of stop.communications, stop.client_steps and stop.virtual_s must be a number"


def _mobile(config: Config) -> bool:
    return config.mobility.active and config.cloud.schedule != "centralized"


def _units(config: Config) -> str:
    """Return the key that counts the peers of the cloud, and its value."""
    return f"{'federation.clients' if config.federation.flat else 'federation.edges'} ({config.units})"


def _target_suits_the_metric(config: Config) -> str | None:
    stop, by_class = config.stop, config.data.task in ("auto", "classification", "sequence")
    if stop.target == "none" or not (stop.metric == "accuracy" or (stop.metric == "auto" and by_class)):
        return None
    if 0 < stop.target <= 1 or config.data.name == "own":  # one's own data says its task later
        return None
    return f'stop.target must be in (0, 1] or "none" for accuracy, got {stop.target:g}'


def _secure_sums_are_means(config: Config) -> str | None:
    rule = config.edge.aggregate
    if config.edge.secure == "off" or rule == "mean":
        return None
    return (
        f'{_SECURE} opens the sum of an edge round, and edge.aggregate = "{rule}" looks at single clients; '
        f'use "mean" (cloud.norm_bound still bounds the models of edges), or edge.secure = "off"'
    )


def _secure_sums_are_of_models(config: Config) -> str | None:
    client = config.client
    if config.edge.secure == "off" or client.algorithm == "sgd":
        return None
    if client.algorithm == "function" and not client.extra_values:
        return None
    sends = "adds up what single clients send beside their models"
    if client.algorithm == "fednova":
        sends = "weighs every client by its own steps"
    return (
        f'{_SECURE} opens the sum of models alone, and client.algorithm = "{client.algorithm}" {sends}; use '
        '"sgd", or edge.secure = "off"'
    )


def _secure_sums_hide_samples(config: Config) -> str | None:
    if config.edge.secure == "off" or config.client.local_epochs == "none":
        return None
    return (
        f"{_SECURE} hides how many samples a client has, and the steps of client.local_epochs = "
        f"{config.client.local_epochs} tell it; use client.local_steps"
    )


def _secure_sums_can_count(config: Config) -> str | None:
    most = config.serve.client_examples
    if config.edge.secure == "off" or config.serve.data != "own" or most <= MOST_OF_A_CLIENT:
        return None
    return (
        f"{_SECURE} counts at most {MOST_OF_A_CLIENT} samples of a client, and serve.client_examples allows "
        f"{most}; lower it"
    )


def _secure_sums_have_clients(config: Config) -> str | None:
    wanted, most = config.edge.clients_per_round, config.federation.clients // config.federation.edges
    if config.edge.secure == "off" or config.federation.flat:
        return None
    if wanted != "all" and wanted >= 1 and wanted < LEAST_CLIENTS:
        return f"{_NEEDS_CLIENTS}, and edge.clients_per_round is {wanted}"
    if most < LEAST_CLIENTS:
        return (
            f"{_NEEDS_CLIENTS}, and federation.clients = {config.federation.clients} on federation.edges = "
            f"{config.federation.edges} have fewer; use fewer edges"
        )
    largest = -(-config.federation.clients // config.federation.edges)  # one edge at least has so many
    drawn = taking_part(None if wanted == "all" else wanted, largest)
    if drawn > MOST_CLIENTS:
        return (
            f"{_SECURE} adds up at most {MOST_CLIENTS} clients in an edge round, and federation.clients = "
            f"{config.federation.clients} on federation.edges = {config.federation.edges} give a round of "
            f"{drawn}; use more edges, or edge.clients_per_round = {MOST_CLIENTS} or less"
        )
    return None


_SECURE = 'edge.secure = "secagg"'
_NEEDS_CLIENTS = f"{_SECURE} needs {LEAST_CLIENTS} clients in an edge round"

RULES: tuple[Callable[[Config], str | None], ...] = (
    _an_edge_has_a_client,
    _capacity_suffices,
    _enough_participants,
    _edge_can_aggregate,
    _attack_has_clients,
    _cloud_can_aggregate,
    _flat_means_one_round,
    _slow_edge_stays,
    _paths_of_mobile_clients_fit_in_memory,
    _groups_fit,
    _no_data_no_training,
    _centralized_trains,
    _a_run_ends,
    _target_suits_the_metric,
    *PRIVATE_RULES,
    _secure_sums_are_means,
    _secure_sums_are_of_models,
    _secure_sums_hide_samples,
    _secure_sums_can_count,
    _secure_sums_have_clients,
)
