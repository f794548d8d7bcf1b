"""Rules between keys: each is a small function that returns a problem, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hiflash.methods.registry import THRESHOLDS

if TYPE_CHECKING:
    from hiflash.config.method_sections import Aggregation
    from hiflash.config.tree import Config

__all__ = ["broken_rules"]

MOBILE_PAIRS = 500_000_000  # client-edge pairs: 4 GB of paths
BY_LABELS = ("heterogeneity", "data", "edge-iid", "edge-noniid")
BY_REACH = ("heterogeneity", "data")


def broken_rules(config: Config) -> list[str]:
    """Return the problems between the keys of a configuration; each key by itself is valid."""
    return [problem for rule in RULES if (problem := rule(config))]


def _an_edge_has_a_client(config: Config) -> str | None:
    edges, clients = config.federation.edges, config.federation.clients
    if edges <= clients:
        return None
    return (
        f"federation.edges ({edges}) must not exceed federation.clients ({clients}): an edge needs a client"
    )


def _association_by_labels_has_labels(config: Config) -> str | None:
    association = config.federation.association
    if config.data.name != "none" or association not in BY_LABELS:
        return None
    return (
        f"federation.association = {association} needs labels, and data.name is none; use random or latency"
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


def _reach_limits_an_association(config: Config) -> str | None:
    association = config.federation.association
    if config.federation.reach == "all" or association in BY_REACH:
        return None
    return (
        f"federation.reach is for the associations {' and '.join(BY_REACH)}, and {association} puts clients "
        "anywhere; leave it out"
    )


def _enough_participants(config: Config) -> str | None:
    cloud = config.cloud
    if cloud.schedule != "sync" or cloud.participants <= config.units:
        return None
    return f"cloud.participants ({cloud.participants}) must not exceed {_units(config)}"


def _edge_can_aggregate(config: Config) -> str | None:
    edge = config.edge
    if edge.clients_per_round != "all":
        return _can_aggregate(edge, "edge", edge.clients_per_round, "edge.clients_per_round")
    return _can_aggregate(edge, "edge", config.federation.clients, "federation.clients")


def _cloud_can_aggregate(config: Config) -> str | None:
    cloud = config.cloud
    if cloud.schedule != "sync":
        return None
    return _can_aggregate(cloud, "cloud", cloud.participants, "cloud.participants")


def _can_aggregate(section: Aggregation, where: str, most: int, what: str) -> str | None:
    """Return the problem of an aggregation rule that gets at most `most` models."""
    if section.aggregate == "norm_clip" and section.clip_norm == "none":
        return f'{where}.aggregate = "norm_clip" needs {where}.clip_norm, a number > 0'
    least = section.rule().least
    if most >= least:
        return None
    return (
        f'{where}.aggregate = "krum" with {where}.byzantine = {section.byzantine} and '
        f"{where}.krum_keep = {section.krum_keep} needs {least} models, and {what} is {most}"
    )


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


def _tiers_have_members(config: Config) -> str | None:
    cloud = config.cloud
    if cloud.schedule != "sync" or cloud.selection != "tiers" or cloud.tiers <= config.units:
        return None
    return f"cloud.tiers ({cloud.tiers}) must not exceed {_units(config)}"


def _tier_mixing_has_tiers(config: Config) -> str | None:
    federation = config.federation
    if config.cloud.mixing != "tiers" or (federation.association == "latency" and not federation.flat):
        return None
    return (
        'cloud.mixing = "tiers" weights tiers by their latency, and needs federation.association = '
        f'"latency" and edges, got "{federation.association}"'
        f"{' and federation.flat' if federation.flat else ''}"
    )


def _threshold_accepts(config: Config) -> str | None:
    """Return the problem that the threshold itself reports."""
    part = THRESHOLDS.get(str(config.cloud.threshold))
    return part.problem(config) if part and part.problem else None


def _topk_is_used(config: Config) -> str | None:
    if config.wan.topk == 0.01 or "topk" in (config.wan.upload, config.wan.download):
        return None
    return 'wan.topk needs wan.upload = "topk" or wan.download = "topk"'


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


def _mobile_clients_have_places(config: Config) -> str | None:
    federation = config.federation
    if not _mobile(config) or federation.flat or federation.association != "latency":
        return None
    return (
        f"mobility.* needs edges at places, and the edges of {config.method} are latency tiers "
        '(federation.association = "latency"); leave it out or use another association'
    )


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


RULES: tuple[Callable[[Config], str | None], ...] = (
    _an_edge_has_a_client,
    _association_by_labels_has_labels,
    _capacity_suffices,
    _reach_limits_an_association,
    _enough_participants,
    _edge_can_aggregate,
    _attack_has_clients,
    _cloud_can_aggregate,
    _flat_means_one_round,
    _tiers_have_members,
    _tier_mixing_has_tiers,
    _threshold_accepts,
    _topk_is_used,
    _slow_edge_stays,
    _paths_of_mobile_clients_fit_in_memory,
    _mobile_clients_have_places,
    _no_data_no_training,
    _centralized_trains,
    _a_run_ends,
    _target_suits_the_metric,
)
