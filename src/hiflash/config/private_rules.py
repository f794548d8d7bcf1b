"""Rules of the section `dp`: what a private sum can be combined with (docs/dp.md has the reasons)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hiflash.config.tree import Config

__all__ = ["PRIVATE_RULES"]


def _noise_is_known(config: Config) -> str | None:
    if config.dp.noise != "auto" or config.dp.epsilon != "none":
        return None
    return 'dp.noise = "auto" needs dp.epsilon, the budget to find it for; give one of the two'


def _rounds_are_known(config: Config) -> str | None:
    stop, dp = config.stop, config.dp
    if dp.noise != "auto" or dp.rounds != "auto" or dp.epsilon == "none":
        return None
    if stop.communications != "none" or stop.client_steps != "none":
        return None
    return (
        'dp.noise = "auto" needs the number of rounds, and virtual seconds do not say it; give dp.rounds, '
        "stop.communications or stop.client_steps"
    )


def _clients_send_one_model(config: Config) -> str | None:
    if config.client.algorithm == "sgd":
        return None
    return (
        f'dp.unit = "{config.dp.unit}" covers models of plain local training, and client.algorithm = '
        f'"{config.client.algorithm}" sends or weighs more than that; use "sgd"'
    )


def _weights_are_one(config: Config) -> str | None:
    section = "cloud" if config.federation.flat else "edge"
    if config.dp.unit != "client" or (config.federation.flat and config.cloud.schedule == "async"):
        return None
    rule = getattr(config, section).aggregate
    if rule == "mean":
        return None
    return (
        f'{section}.aggregate = "{rule}" looks at single clients, and dp.unit = "client" adds them up with '
        f"weight 1; leave {section}.aggregate out"
    )


def _the_clip_is_the_bound(config: Config) -> str | None:
    summed_up = config.federation.flat and config.cloud.schedule == "sync"
    if config.dp.unit != "client" or not summed_up or config.cloud.norm_bound == "none":
        return None
    return (
        "cloud.norm_bound would refuse single clients by their data, before any noise: their absence tells "
        "something; leave it out, dp.clip is the bound"
    )


def _no_scores_of_clients(config: Config) -> str | None:
    if not config.evaluate.clients:
        return None
    return (
        "evaluate.clients writes scores of single clients into the result, and the noise of dp.* does not "
        "cover that; leave it out"
    )


def _sampling_has_a_probability(config: Config) -> str | None:
    if config.dp.sampling != "poisson":
        return None
    if config.edge.secure != "off" and not config.federation.flat:
        return (
            'dp.sampling = "poisson" counts on a secret choice, and in edge.secure = "secagg" the clients of '
            "a round know each other; leave it out, and give edge.clients_per_round for smaller rounds"
        )
    late = config.cloud.schedule == "sync" and config.cloud.deadline_s != "none"
    if not config.federation.flat and (late or config.cloud.schedule == "async"):
        decides = "whether an edge meets cloud.deadline_s" if late else "staleness"
        return (
            f'dp.sampling = "poisson" counts on a secret choice, and here {decides} tells how long an edge '
            "round took, so whether slow clients joined; leave it out, or use a synchronous method without "
            "a deadline of the cloud"
        )
    if not config.federation.flat:
        share = config.edge.clients_per_round
        if isinstance(share, float) and share < 1:
            return None
        return (
            'dp.sampling = "poisson" takes edge.clients_per_round as the probability that a client joins a '
            f"round, so it must be a share below 1, like 0.1; got {share}"
        )
    if config.cloud.schedule != "sync":
        return (
            'dp.sampling = "poisson" draws the clients of a round, and a flat asynchronous method has no '
            "rounds; leave it out, or use a synchronous method or one with edges"
        )
    if config.cloud.selection != "uniform":
        return (
            f'dp.sampling = "poisson" draws the clients itself, and cloud.selection = '
            f'"{config.cloud.selection}" would too; use one of them'
        )
    return None


def _who_adds_noise(config: Config) -> str | None:
    if config.dp.unit != "client":
        return None
    secure = config.edge.secure != "off" and not config.federation.flat
    if secure == (config.dp.where == "clients"):
        return None
    if secure:
        return (
            'edge.secure = "secagg" hides single clients from their edge, and dp.where = "edge" would let it '
            'see sums without noise; use dp.where = "clients"'
        )
    return (
        'dp.where = "clients" spreads the noise over clients so that nobody sees a sum without it, which '
        'needs edge.secure = "secagg" and a method with edges; use dp.where = "edge"'
    )


def _samples_need_torch(config: Config) -> str | None:
    if config.dp.unit != "sample":
        return None
    if config.trainer not in ("auto", "torch", "none"):
        return (
            f'dp.unit = "sample" clips the gradient of every sample with torch; trainer is {config.trainer}'
        )
    if config.data.augment or config.client.clip_norm != "none" or config.client.optimizer != "sgd":
        return (
            'dp.unit = "sample" takes plain steps on clipped gradients; leave out data.augment, '
            "client.clip_norm and client.optimizer"
        )
    return None


def _only_if_private(rule: Callable[[Config], str | None]) -> Callable[[Config], str | None]:
    def checked(config: Config) -> str | None:
        return None if config.dp.unit == "off" else rule(config)

    return checked


PRIVATE_RULES: tuple[Callable[[Config], str | None], ...] = tuple(
    _only_if_private(rule)
    for rule in (
        _noise_is_known,
        _rounds_are_known,
        _clients_send_one_model,
        _weights_are_one,
        _the_clip_is_the_bound,
        _no_scores_of_clients,
        _sampling_has_a_probability,
        _who_adds_noise,
        _samples_need_torch,
    )
)
