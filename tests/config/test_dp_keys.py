"""The section dp: what needs what, what goes beside it, and that it changes nothing while it is off."""

import pytest

import hiflash
from hiflash.errors import ConfigError

ON = {"dp.unit": "client", "dp.noise": 1.0}
SYNC = {**ON, "method": "hierfavg"}
SPREAD = {**ON, "edge.secure": "secagg", "dp.where": "clients"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"dp.unit": "client"}, 'dp.noise = "auto" needs dp.epsilon'),
        (
            {
                "dp.unit": "client",
                "dp.epsilon": 8.0,
                "stop.communications": "none",
                "stop.client_steps": "none",
                "stop.virtual_s": 5.0,
            },
            "give dp.rounds",
        ),
        ({"dp.clip": 2.0}, 'dp.clip is for dp.unit = "client" or "sample"'),
        ({**ON, "dp.clip": 1e-310}, "dp.clip must be in [1e-12, 1e12], got 1e-310"),
        ({**ON, "dp.rounds": 5}, 'dp.rounds is for dp.noise = "auto"'),
        ({"dp.unit": "sample", "dp.noise": 1.0, "dp.clients": 5}, 'dp.clients is for dp.unit = "client"'),
        ({**ON, "method": "centralized"}, "centralized has none"),
        ({**ON, "client.algorithm": "scaffold"}, 'use "sgd"'),
        ({**ON, "client.algorithm": "fednova"}, 'use "sgd"'),
        ({**ON, "method": "feddyn"}, 'use "sgd"'),
        ({**ON, "edge.aggregate": "median"}, "leave edge.aggregate out"),
        ({**ON, "method": "fedavg", "cloud.aggregate": "median"}, "leave cloud.aggregate out"),
        ({**ON, "evaluate.clients": 0.2}, "scores of single clients"),
        ({**SYNC, "dp.sampling": "poisson"}, "must be a share below 1, like 0.1; got 5"),
        ({**SYNC, "dp.sampling": "poisson", "edge.clients_per_round": 5}, "got 5"),
        ({**ON, "dp.sampling": "poisson", "edge.clients_per_round": 0.5}, "here staleness tells how long"),
        (
            {**SYNC, "dp.sampling": "poisson", "edge.clients_per_round": 0.5, "cloud.deadline_s": 9.0},
            "meets cloud.deadline_s",
        ),
        ({**ON, "method": "fedavg", "cloud.norm_bound": 0.1}, "dp.clip is the bound"),
        ({"dp.unit": "clients", "dp.noise": 4.0}, 'dp.unit must be "off", "client" or "sample"'),
        ({**ON, "dp.noise": 1e-200}, "dp.noise must be in [1e-6, 1000]"),
        ({**ON, "dp.clip": 1e-305}, "dp.clip must be in [1e-12, 1e12]"),
        ({**ON, "method": "fedasync", "dp.sampling": "poisson"}, "has no rounds"),
        ({**ON, "method": "tifl", "dp.sampling": "poisson"}, "use one of them"),
        ({**ON, "dp.where": "clients"}, 'needs edge.secure = "secagg"'),
        (
            {**ON, "dp.where": "clients", "method": "fedavg"},
            'needs edge.secure = "secagg" and a method with edges',
        ),
        ({**ON, "edge.secure": "secagg"}, 'would let it see sums without noise; use dp.where = "clients"'),
        (
            {**SPREAD, "dp.sampling": "poisson", "edge.clients_per_round": 0.5},
            "the clients of a round know each other",
        ),
        ({**SPREAD, "edge.secure_bound": 2.0}, 'edge.secure_bound is for dp.unit = "off" or "sample"'),
        ({**SPREAD, "federation.clients": 20, "federation.edges": 10}, "needs 3 clients in an edge round"),
        ({**ON, "dp.noise": 0.0}, "dp.noise must be"),
        ({**ON, "dp.delta": 1.0}, "dp.delta must be"),
        ({"dp.unit": "sample", "dp.noise": 1.0, "trainer": "native"}, "trainer is native"),
        ({"dp.unit": "sample", "dp.noise": 1.0, "client.optimizer": "adam"}, "plain steps"),
    ],
)
def test_what_does_not_fit_is_named(settings, problem):
    with pytest.raises(ConfigError) as error:
        hiflash.Config(**settings)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "hierfavg", "cloud.aggregate": "median"},  # of edge models that have their noise
        {"method": "fedadam"},
        {"method": "fedavg", "dp.sampling": "poisson"},
        {"method": "hierfavg", "dp.sampling": "poisson", "edge.clients_per_round": 0.1},
        {"cloud.norm_bound": 0.1},  # of edge models that have their noise
        {"client.momentum": 0.9, "cloud.mixing": "delta", "wan.upload": "int8"},
        {"attack.kind": "sign_flip"},
        {"edge.secure": "secagg", "dp.where": "clients"},
    ],
)
def test_what_comes_after_the_noise_or_is_clipped_is_allowed(settings):
    assert hiflash.Config(**ON, **settings).dp.unit == "client"


def test_off_leaves_no_trace_in_what_decides_a_run():
    assert "dp.unit" not in hiflash.Config().decisive()
    assert {"dp.unit", "dp.clip", "dp.delta"} <= set(hiflash.Config(**ON).decisive())
    assert hiflash.Config(**ON).digest() != hiflash.Config().digest()
