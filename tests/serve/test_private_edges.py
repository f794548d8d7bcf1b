"""Deployed edges with a privacy budget: noise of the system, a ledger on disk before any sum is opened."""

import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

import hiflash
from hiflash.errors import BudgetError, ConfigError, DamageError, RunError
from hiflash.messages import ClientUpdate
from hiflash.privacy.histograms import Release
from hiflash.privacy.ledger import EVERYBODY, Budget, Entry
from hiflash.privacy.randomness import SeededRandomness
from hiflash.serve.charges import Charges, EdgeCharges, open_charges, read_charges, total
from hiflash.serve.deployable import check_deployable
from hiflash.serve.wire import Malformed
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.sent_histograms import SentHistograms
from hiflash.store.checkpoint import load_checkpoint
from serve.inside import Inside, tiny_config
from serve.test_deployed import replayed

PRIVATE = {"dp.unit": "client", "dp.noise": 1.0}
FILE = "edge-0-privacy.safetensors"


def plan(limit=None, noise=1.0, sampling=1.0):
    return PrivacyPlan(
        unit="client",
        clip=1.0,
        noise=noise,
        charged=noise,
        budget=Budget(limit, 1e-5),
        clients=4,
        sampling=sampling,
        where="edge",
        divisors=(2.0, 2.0),
        at_cloud=False,
        rounds=None,
    )


class OneRound:
    """As much of an edge as charges look at."""

    def __init__(self, clients=(0, 1)):
        self.everyone = self.expected = clients
        self.index = 0
        self.grant = type("Grant", (), {"lease_id": 1})

    def able(self, lease_id, index):
        return self.everyone


def update(client):
    return ClientUpdate(client, 1, 0, np.zeros(3, np.float32), 10, 0.0, 0.0, 0.0)


def opened(charges, clients=(0, 1)):
    charges.edge = OneRound(clients)
    return charges([update(client) for client in clients], 1, np.zeros(3, np.float32))


def counts(path):
    return load_checkpoint(path)["counts"]["edge round"].tolist()


@pytest.mark.parametrize(
    "more", [{}, {"method": "hierfavg", "dp.sampling": "poisson", "edge.clients_per_round": 0.3}]
)
def test_a_deployed_run_keeps_the_ledger_of_its_edges_and_replays(more, tmp_path):
    inside = Inside(tiny_config(**PRIVATE, **more, **{"serve.keep_client_updates": False}), tmp_path)
    result = inside.run()
    assert result.digest == replayed(inside)
    told = {}
    for edge in range(2):
        saved = load_checkpoint(tmp_path / f"edge-{edge}-privacy.safetensors")["counts"]
        for name, each in saved.items():
            told[name] = told.get(name, 0) + each
    # What an edge opened after the end of the run is on its disk only.
    for name, each in told.items():
        reported = sum(group["clients"] * group["charges"][name] for group in result.privacy["groups"])
        assert reported <= each.sum() <= reported + 6 * 2
    status = json.loads((inside.state / "status.json").read_text())["privacy"]
    assert status["epsilon"] == result.privacy["epsilon"] > 0
    assert set(status["edges"]) == {"0", "1"}


def test_two_deployed_runs_differ_because_nobody_can_repeat_their_noise(tmp_path):
    config = tiny_config(method="hierfavg", **PRIVATE, **{"cloud.participants": 2})
    one, other = (Inside(config, tmp_path / name).run() for name in ("one", "other"))
    assert one.digest != other.digest


def test_a_deployed_run_ends_when_no_client_can_pay(tmp_path):
    result = Inside(tiny_config(**PRIVATE, **{"dp.epsilon": 10.0}), tmp_path).run()
    assert result.stop_reason == "privacy budget epsilon 10 at delta 1e-05 used up"
    assert [group["charges"] for group in result.privacy["groups"]] == [{"edge round": 3}]
    assert result.privacy["epsilon"] <= 10


def test_a_second_run_goes_on_with_what_is_left(tmp_path):
    first = EdgeCharges(plan(8.0), 0, range(4), tmp_path / FILE)
    opened(first)
    again = EdgeCharges(plan(8.0), 0, range(4), tmp_path / FILE)
    opened(again)  # noise 1 pays for 2 rounds
    with pytest.raises(BudgetError, match="client 0"):
        opened(EdgeCharges(plan(8.0), 0, range(4), tmp_path / FILE))
    assert counts(tmp_path / FILE) == [2, 2, 0, 0]


def test_other_noise_of_an_earlier_run_counts_too(tmp_path):
    opened(EdgeCharges(plan(8.0, noise=1.0), 0, range(4), tmp_path / FILE))
    later = EdgeCharges(plan(8.0, noise=2.0), 0, range(4), tmp_path / FILE)
    assert set(later.ledger.entries) == {"edge round", "edge round (noise 1, rate 1)"}
    fresh = EdgeCharges(plan(8.0, noise=2.0), 0, range(4), tmp_path / "fresh.safetensors")
    assert later.ledger.left("edge round", [0])[0] < fresh.ledger.left("edge round", [0])[0]


def test_a_seeded_stream_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="operating system"):
        EdgeCharges(plan(), 0, range(4), tmp_path / FILE, SeededRandomness(1))
    assert not (tmp_path / FILE).exists()


def test_a_sum_of_too_few_is_neither_charged_nor_opened(tmp_path):
    charges = EdgeCharges(plan(), 0, range(4), tmp_path / FILE)
    charges.edge = OneRound()
    assert charges([update(0)], 2, np.zeros(3, np.float32)) is None
    assert counts(tmp_path / FILE) == [0, 0, 0, 0]


def test_if_the_ledger_cannot_be_saved_nothing_is_opened(tmp_path, monkeypatch):
    charges = EdgeCharges(plan(), 0, range(4), tmp_path / FILE)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hiflash.serve.charges.save_checkpoint", full)
    with pytest.raises(OSError, match="No space"):
        opened(charges)
    assert charges.ledger.counts["edge round"].tolist() == [0, 0, 0, 0]


def test_a_damaged_or_foreign_ledger_is_refused(tmp_path):
    opened(open_charges(plan(), 0, range(4), tmp_path))
    path = tmp_path / FILE
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(DamageError):
        open_charges(plan(), 0, range(4), tmp_path)
    path.write_bytes(good)
    other = plan()
    object.__setattr__(other, "clients", 9)
    with pytest.raises(RunError, match="another federation"):
        open_charges(other, 0, range(4), tmp_path)


CHILD = """
import sys
from pathlib import Path
from serve.test_private_edges import EdgeCharges, opened, plan
charges = EdgeCharges(plan(), 0, range(4), Path(sys.argv[1]))
while True:
    opened(charges)
    print("opened", flush=True)
"""


def start(path, **env):
    import os

    where = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": where, **env}
    command = [sys.executable, "-c", CHILD, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


def test_a_crash_between_charge_and_opening_costs_budget_not_privacy(tmp_path):
    child = start(tmp_path / FILE, HIFLASH_CRASH="charge.saved:3")
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 86
    assert out.count("opened") == 2
    assert counts(tmp_path / FILE) == [3, 3, 0, 0]


def test_no_kill_loses_a_charge(tmp_path):
    stream, seen = random.Random(5), 0
    for _ in range(4):
        with start(tmp_path / FILE) as child:
            assert child.stdout is not None
            seen += bool(child.stdout.readline())
            time.sleep(stream.uniform(0, 0.1))
            child.kill()
            seen += child.stdout.read().count("opened\n")
        saved = counts(tmp_path / FILE)
        assert saved[0] == saved[1] >= seen
        seen = saved[0]  # what was charged and not opened stays charged
    assert seen > 4


ENTRY = {"noise": 1.0, "kind": "gaussian", "sampling": 1.0, "seen_by": list(EVERYBODY), "unit": "client"}


def said(numbers, able=True, clients=(0, 1), name="edge round", **entry):
    entries = {name: {**ENTRY, **entry}}
    told = {"clients": list(clients), "counts": {name: numbers}, "entries": entries, "able": able}
    return json.dumps(told).encode()


def beside(**entry):
    """Return charges of the run, and others of an earlier one."""
    told = json.loads(said([1, 2]))
    told["counts"]["earlier"], told["entries"]["earlier"] = [1, 1], {**ENTRY, **entry}
    return json.dumps(told).encode()


def test_the_cloud_takes_charges_that_rise():
    known = read_charges(said([1, 2]), [0, 1], plan(), Charges())
    assert known.counts == {"edge round": {0: 1, 1: 2}}
    assert read_charges(said([1, 3], able=False), [0, 1], plan(), known).able is False


@pytest.mark.parametrize(
    "body",
    [
        said([0, 2]),  # fewer than before: the file was lost
        said([1]),
        said([1, 2, 3]),
        said([1, -2]),
        said([1, 2.5]),
        said([1, 2**40]),
        said([1, True]),
        said([1, 2], clients=(0, 3)),
        said([1, 2], able="yes"),
        said([1, 2], name="other"),
        said([1, 2], noise=4.0),
        said([1, 2], noise=math.nan),
        said([1, 2], noise="1"),
        said([1, 2], sampling=0),
        said([1, 2], sampling=2.0),
        said([1, 2], kind="magic"),
        said([1, 2], unit="world"),
        said([1, 2], seen_by=["nobody"]),
        said([1, 2], seen_by=[[]]),
        said([1, 2], noise=10**400),
        said([1, 2], clients=(0.0, 1.0)),
        beside(kind="laplace", sampling=0.5),
        beside(noise=1e308),
        beside(noise=1e-160),
        beside(kind="laplace", noise=1e-310),
        beside(seen_by=[]),
        beside(unit="world"),
        json.dumps({**json.loads(said([1, 2])), "entries": {str(n): ENTRY for n in range(30)}}).encode(),
        b"{}",
        b"[]",
        b'{"clients": [0, 1], "able": true, "counts": {}, "entries": []}',
        b"\xff",
        b"[" * 100_000,
        b" " * 2_000_000,
    ],
)
def test_hostile_or_lost_charges_are_refused(body):
    known = Charges({"edge round": {0: 1, 1: 2}})
    with pytest.raises(Malformed):
        read_charges(body, [0, 1], plan(), known)


def test_a_client_that_was_charged_for_something_stays_charged_for_it():
    known = read_charges(said([1, 2]), [0, 1], plan(), Charges())
    known = Charges({**known.counts, "older": {0: 1, 1: 0}}, True, {**known.entries, "older": ENTRY})
    with pytest.raises(Malformed, match="1 times for older"):
        read_charges(said([1, 2]), [0, 1], plan(), known)


PLANS = st.lists(
    st.tuples(st.sampled_from([4.0, 5.0, 4.0000001]), st.sampled_from([1.0, 0.5]), st.integers(0, 3)),
    max_size=6,
)


@given(PLANS)
@settings(max_examples=30, deadline=None)
def test_no_sequence_of_runs_loses_a_charge(runs):
    """Charges by mechanism and by who sees them never fall, whatever noise and sampling runs have."""
    expected = Counter()
    with TemporaryDirectory() as folder:
        for noise, sampling, rounds in runs:
            charges = open_charges(plan(noise=noise, sampling=sampling), 0, range(4), Path(folder))
            for _ in range(rounds):
                opened(charges)
            for mechanism, seen_by in charges.plan.entries.values():
                expected[Entry(mechanism, seen_by)] += rounds
            found = Counter()
            for name, entry in charges.ledger.entries.items():
                found[entry] += int(charges.ledger.counts[name][0])
            assert +found == +expected
            told = read_charges(charges.body(), range(4), charges.plan, Charges())
            heard = total(charges.plan, [told])
            for viewer in EVERYBODY:
                assert heard.epsilon(0, viewer) == pytest.approx(charges.ledger.epsilon(0, viewer))


def test_the_result_counts_what_earlier_runs_have_spent_with_other_noise(tmp_path):
    """Noise 1 pays for two rounds of epsilon 8: a later run with noise 2 goes on from there."""
    first = open_charges(plan(8.0, noise=1.0), 0, range(4), tmp_path)
    opened(first)
    spent = first.ledger.epsilon(0)
    later = open_charges(plan(8.0, noise=2.0), 0, range(4), tmp_path)
    told = read_charges(later.body(), range(4), later.plan, Charges())
    assert later.plan.report(total(later.plan, [told]))["epsilon"] == pytest.approx(spent)


def test_a_client_that_spent_at_one_edge_gets_no_new_budget_at_another(tmp_path):
    opened(open_charges(plan(8.0), 0, (0, 1), tmp_path))
    for edge, cluster, client in ((0, (0, 2), 1), (1, (1, 3), 1), (1, (0, 1, 2, 3), 0)):
        with pytest.raises(RunError, match=rf"another edge now \({client}.*association of the earlier run"):
            open_charges(plan(8.0), edge, cluster, tmp_path)
    assert counts(tmp_path / FILE) == [1, 1, 0, 0]
    open_charges(plan(8.0), 1, (2, 3), tmp_path)


def test_charges_of_an_earlier_run_are_taken_and_those_from_older_journals_too():
    taken = read_charges(beside(noise=4.0), [0, 1], plan(), Charges())
    assert taken.counts["earlier"] == {0: 1, 1: 1}
    assert total(plan(), [taken]).epsilon(0) > total(plan(), [Charges({"edge round": {0: 1, 1: 2}})]).epsilon(
        0
    )
    old = json.loads(said([1, 2]))
    del old["entries"]
    assert read_charges(json.dumps(old).encode(), [0, 1], plan(), Charges()).counts["edge round"] == {
        0: 1,
        1: 2,
    }


def test_an_edge_with_too_many_kinds_of_noise_says_so(tmp_path):
    for number in range(20):
        charges = open_charges(plan(noise=100.0 + number), 0, range(4), tmp_path)
        opened(charges)
        read_charges(charges.body(), range(4), charges.plan, Charges())
    open_charges(plan(noise=100.0), 0, range(4), tmp_path)
    with pytest.raises(RunError, match="21 kinds of noise, and the cloud takes 20"):
        open_charges(plan(noise=99.0), 0, range(4), tmp_path)


def test_a_histogram_with_the_noise_of_rounds_stays_one(tmp_path):
    """Gaussian noise of the same size for both: a restart must not take one for the other."""
    sent = SentHistograms(Release("gaussian", 1.0, 1e-5, "client"), 4)
    same = plan(noise=sent.mechanism.noise)
    object.__setattr__(same, "histograms", sent)
    for _ in range(3):
        charges = open_charges(same, 0, (0, 1), tmp_path)
        assert charges.ledger.counts["label histogram"].tolist() == [1] * 4
        assert charges.ledger.counts["edge round"].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"method": "fedavg", **PRIVATE, "federation.edges": 1}, "use a method with edges"),
        ({"dp.unit": "sample", "dp.noise": 1.0}, 'use "client"'),
    ],
)
def test_what_cannot_be_deployed_is_named(chosen, problem):
    with pytest.raises(ConfigError, match=problem):
        check_deployable(hiflash.Config(**chosen))


def test_a_lost_ledger_ends_the_edge_with_a_clear_error(tmp_path):
    """The cloud remembers what an edge has told; one that comes back with less is refused."""
    inside = Inside(tiny_config(**PRIVATE), tmp_path)
    live = inside.deployment.live(lambda *_: None)
    try:
        cluster = live.clusters[0]
        live.charges = {0: Charges({"edge round": dict.fromkeys(cluster, 5)}, True, {"edge round": ENTRY})}
        charges = open_charges(inside.deployment.plan, 0, cluster, tmp_path)
        with pytest.raises(Malformed, match="lost or old"):
            live.check_charges(0, charges.body())
    finally:
        inside.deployment.federation.close()
