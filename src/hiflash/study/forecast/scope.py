"""Which configurations a forecast can tell something about."""

from __future__ import annotations

from hiflash.config import Config
from hiflash.methods.registry import chosen
from hiflash.weights import Spec

__all__ = ["beyond_scope", "partial_codecs"]

SCALING = ("adam", "yogi")
CORRECTING = ("scaffold", "feddyn")


def beyond_scope(config: Config) -> list[str]:
    """Return why a number cannot stand for the model of a configuration; nothing if it can."""
    cloud, client = config.cloud, config.client
    if cloud.schedule == "centralized":
        return ["centralized training has no federation to simulate; leave it out"]
    problems = []
    if cloud.schedule == "sync" and cloud.optimizer in SCALING:
        problems.append(
            f'cloud.optimizer = "{cloud.optimizer}" divides a change by its own size, and a number says '
            'nothing about sizes; use "none" or "momentum"'
        )
    if client.algorithm in CORRECTING:
        problems.append(
            f'client.algorithm = "{client.algorithm}" corrects steps by what clients have learned before, '
            'which makes a round worth more than FedAvg\'s by an unknown factor; use "sgd" or "fednova"'
        )
    if config.attack.kind != "none":
        problems.append("malicious clients have no number that they work for; leave out attack.*")
    rules = {"edge.aggregate": config.edge.aggregate}
    if cloud.schedule == "sync":
        rules["cloud.aggregate"] = cloud.aggregate
    for key, rule in rules.items():
        if rule != "mean":
            problems.append(
                f'{key} = "{rule}" compares models, and numbers do not lie as models do; use "mean"'
            )
    if cloud.norm_bound != "none":
        problems.append("a number has no norm to bound; leave out cloud.norm_bound")
    if client.batch_norm == "local":
        problems.append('client.batch_norm = "local" makes a model of its own for every client; leave it out')
    return problems


def partial_codecs(config: Config, spec: Spec) -> list[str]:
    """Return why the compression of a configuration is beyond a forecast; nothing if it is not."""
    problems = []
    for key in ("wan.upload", "wan.download"):
        codec = chosen(config, key).build(config, spec)
        if codec is not None and codec.partial:
            problems.append(
                f"{key} leaves entries of a model out, and what that costs a number cannot say; use "
                '"none", "fp16" or "int8"'
            )
    return problems
