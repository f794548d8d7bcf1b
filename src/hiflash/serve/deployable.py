"""Which configurations can be deployed, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hiflash.config import Config
from hiflash.core.edge import taking_part
from hiflash.data.federation import read_federation
from hiflash.errors import ConfigError
from hiflash.sim.machines import number

__all__ = ["check_clients_hidden", "check_deployable"]


def check_deployable(config: Config) -> None:
    """Raise if a configuration asks for what only a simulation can do."""
    problems = [problem for rule in RULES if (problem := rule(config)) is not None]
    if problems:
        raise ConfigError(problems)


def check_clients_hidden(config: Config, clusters: Sequence[Sequence[int]]) -> None:
    """Raise if the journal would hold updates of single clients, unless that is allowed."""
    if config.serve.keep_client_updates or config.dp.unit == "client":  # or each of them has its noise
        return
    why = ""
    if config.federation.flat:
        why = f"in {config.method} every client sends its own model to the cloud"
    else:
        wanted = number(config.edge.clients_per_round)
        sizes = [taking_part(wanted, len(cluster)) for cluster in clusters]
        if 1 in sizes:
            why = (
                f"a round of edge {sizes.index(1)} has one client, so the model of the edge is that client's"
            )
    if not why and config.edge.aggregate == "krum" and config.edge.krum_keep == 1:
        why = "edge.krum_keep = 1 makes the model of one client that of its edge"
    if why:
        raise ConfigError(
            f"{why}, and the cloud's journal keeps it on disk; set serve.keep_client_updates = true to allow "
            "that, or use a method with edges of several clients"
        )


def _schedule(config: Config) -> str | None:
    if config.cloud.schedule != "centralized":
        return None
    return f"{config.method} pools all data in one place, so there is nothing to deploy; use hiflash run"


def _trains(config: Config) -> str | None:
    if config.trainer != "none":
        return None
    return 'trainer = "none" trains nothing, and deployed clients train; leave it out'


def _executor(config: Config) -> str | None:
    if config.executor == "local":
        return None
    return (
        'executor = "ray" spreads a simulation, and deployed clients are processes of their own; leave it out'
    )


def _attack(config: Config) -> str | None:
    if config.attack.kind == "none":
        return None
    return "attack.kind makes simulated clients malicious; a deployment has none of its own, so leave it out"


def _mobility(config: Config) -> str | None:
    if not config.mobility.active:
        return None
    return "mobility.* moves simulated clients; deployed ones come and go by themselves, so leave it out"


def _held_out(config: Config) -> str | None:
    if not config.evaluate.clients:
        return None
    return "evaluate.clients tests on samples that only the clients have, and no call does that; leave it out"


def _validation(config: Config) -> str | None:
    if not config.evaluate.validation or config.serve.data != "own":
        return None
    return (
        "evaluate.validation holds back training samples for the cloud, and here clients bring their own "
        '(serve.data = "own"), which never leave them; leave it out'
    )


def _private(config: Config) -> str | None:
    if config.dp.unit == "sample":
        return (
            'dp.unit = "sample" draws noise from a generator that is good enough for simulations only; '
            'use "client"'
        )
    if config.dp.unit == "client" and config.federation.flat:
        return (
            f"in {config.method} the cloud itself would add the noise of dp.unit, and replaying its journal "
            "would not give the same model; use a method with edges"
        )
    return None


def _labels(config: Config) -> str | None:
    federation = config.federation
    needs = federation.association in ("heterogeneity", "data", "edge-iid", "edge-noniid")
    if config.serve.data != "own" or not needs or federation.files or federation.flat:
        return None
    return (
        f'federation.association = "{federation.association}" needs the labels of every client, and clients '
        'bring their own data (serve.data = "own"); associate beforehand, from noised histograms '
        '(hiflash histogram, docs/histograms.md), or use "random"'
    )


def _privacy(config: Config) -> str | None:
    """Return why histograms would not be hidden as the configuration says."""
    privacy, files = config.privacy, config.federation.files
    if config.serve.data != "own":
        if isinstance(privacy.epsilon, str) and privacy.histograms == "single":
            return None
        return (
            'privacy.* hides labels, and with serve.data = "partition" every node has the samples of all '
            'clients; leave it out, or let clients bring their own (serve.data = "own")'
        )
    if privacy.histograms == "group":
        return (
            'privacy.histograms = "group" is for simulations: deployed clients are associated beforehand, by '
            "noised histograms (docs/histograms.md); leave it out"
        )
    if files and privacy.epsilon != "off" and read_federation(files).labels is not None:
        return (
            f"{files} has the labels of single clients, and every node reads them; associate beforehand and "
            'give nodes the association.csv alone (docs/histograms.md), or allow it: privacy.epsilon = "off"'
        )
    return None


RULES: tuple[Callable[[Config], str | None], ...] = (
    _schedule,
    _trains,
    _executor,
    _attack,
    _mobility,
    _held_out,
    _validation,
    _private,
    _labels,
    _privacy,
)
