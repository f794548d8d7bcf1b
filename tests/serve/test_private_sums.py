"""Private secure sums deployed: noise at the client, the ledger on disk before anything can be opened."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("dp_accounting", reason='needs pip install "hiflash[dp]"')

from hiflash.core.edge import Edge
from hiflash.errors import ProtocolError
from hiflash.messages import Abandon, Upload
from hiflash.privacy.histograms import Release
from hiflash.privacy.ledger import Budget
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.messages import Refused
from hiflash.privacy.sums.noised import Noised
from hiflash.privacy.sums.signing import SeededSigner, SeededVerifier
from hiflash.serve import keys
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.channels import open_channels
from hiflash.serve.charges import Charges, EdgeCharges, read_charges, total
from hiflash.serve.client_sums import ClientSums, Invited, Trained, take_part
from hiflash.serve.cluster import Closed
from hiflash.serve.edge_sums import EdgeSums
from hiflash.serve.patience import Patience
from hiflash.serve.sum_wire import answer_of, read_request, read_terms
from hiflash.serve.wire import Wire
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.sent_histograms import SentHistograms
from hiflash.store.checkpoint import load_checkpoint
from serve.inside import Inside, tiny_config
from serve.test_deployed import replayed
from serve.test_private_edges import counts, update
from serve.test_secure_sums import SECURE, SIZE, Table

BOTH: dict[str, Any] = {**SECURE, "dp.unit": "client", "dp.where": "clients", "dp.noise": 1.0}
CLIP = 2.0


def plan(**changes: Any) -> PrivacyPlan:
    given: dict[str, Any] = {
        "unit": "client",
        "clip": CLIP,
        "noise": 1.0,
        "charged": 1.0,
        "budget": Budget(None, 1e-5),
        "clients": 5,
        "sampling": 1.0,
        "where": "clients",
        "divisors": (4.0,),
        "at_cloud": False,
        "rounds": None,
        "least": 3,
    }
    return PrivacyPlan(**{**given, **changes})


class Pretending(SeededRandomness):
    """The simulator's noise in a deployed client: for this test alone, which must get past the refusal."""

    repeats: ClassVar[bool] = False

    def take(self, size: int) -> bytes:
        return secrets.token_bytes(size)  # keys of its own for every client


def test_with_the_same_noise_deployed_and_simulated_runs_end_with_the_same_digest(
    tmp_path: Path, monkeypatch: Any
) -> None:
    inside = Inside(tiny_config(**BOTH), tmp_path)
    monkeypatch.setattr(keys, "SystemRandomness", lambda: Pretending(inside.config.seed))
    deployed, simulated = inside.run(), inside.simulated()
    assert deployed.digest == simulated.digest
    for name in ("version", "communications", "client_steps", "client_uploads", "wan_bytes", "lan_bytes"):
        assert getattr(deployed, name) == getattr(simulated, name), name
    assert deployed.secure == simulated.secure
    assert deployed.privacy["charges"] == simulated.privacy["charges"] > 0


def test_deployed_runs_differ_by_their_noise_keep_a_ledger_and_replay(tmp_path: Path) -> None:
    config = tiny_config(**BOTH)
    one, other = Inside(config, tmp_path / "one"), Inside(config, tmp_path / "other")
    results = [inside.run() for inside in (one, other)]
    assert results[0].digest != results[1].digest
    assert results[0].digest == replayed(one)
    saved = [
        load_checkpoint(tmp_path / "one" / f"edge-{edge}-privacy.safetensors")["counts"] for edge in range(2)
    ]
    assert sum(int(each["edge round"].sum()) for each in saved) >= results[0].privacy["charges"] > 0
    status = json.loads((one.state / "status.json").read_text())["privacy"]
    assert status["epsilon"] == results[0].privacy["epsilon"] > 0


def test_a_deployed_run_ends_when_too_few_clients_can_pay(tmp_path: Path) -> None:
    """Rounds of three out of four: six rounds of nine payments leave fewer than three that can pay."""
    settings = {**BOTH, "dp.epsilon": 10.0, "edge.clients_per_round": 3, "stop.communications": 100}
    result = Inside(tiny_config(**settings), tmp_path).run()
    assert result.stop_reason == "privacy budget epsilon 10 at delta 1e-05 used up"
    assert max(group["charges"]["edge round"] for group in result.privacy["groups"]) == 3
    assert result.privacy["epsilon"] <= 10


def test_nodes_agree_on_clip_and_noise(tmp_path: Path) -> None:
    inside = Inside(tiny_config(**{**BOTH, "dp.clip": 0.5}), tmp_path)
    channels = open_channels(inside.certs, "client/0", [], insecure=False)
    sums = keys.client_sums(inside.deployment, channels)
    assert sums is not None
    assert (sums.bound, sums.noise, sums.randomness.repeats) == (0.5, 1.0, False)


class PrivateTable(Table):
    """An edge with five clients, a privacy ledger, and calls that a test makes itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.charges = EdgeCharges(plan(), 0, range(5), path)
        plain = self.edge
        self.edge = self.charges.edge = Edge(
            0, range(5), plain.workloads, plain.rules, plain.estimates, self.charges, self.charges.privacy
        )
        sums = EdgeSums("test", CLIP, self.verifier, self.charges)
        self.cluster.terms = replace(self.cluster.terms, sums=sums)

    async def open(self) -> asyncio.Task[Closed]:
        holding = await super().open()
        for machine in self.machines.values():
            machine.terms = read_terms(self.tasks, "test", SIZE, noise=1.0)
        return holding

    def answer(self, client: int, told: pb.SumTold | None, phase: str) -> pb.Sum:
        if phase != "masked" or told is None:
            return super().answer(client, told, phase)
        machine = self.machines[client]
        machine.receive(read_request(told, 5))  # type: ignore[arg-type]
        stream = SeededRandomness(0).stream("noise", client)
        vector = Noised.of(machine.terms).encode(self.base + np.float32(client), self.base, stream)
        return answer_of(machine.mask(vector), (7, 0), 30.0)


def test_the_ledger_is_on_disk_before_clients_are_asked_to_open_a_sum(
    tmp_path: Path, monkeypatch: Any
) -> None:
    seen: list[list[int]] = []

    async def main() -> None:
        table = PrivateTable(tmp_path / "ledger.safetensors")
        holding, told = await table.until("masked")
        assert counts(table.charges.path) == [0] * 5  # keys and shares cost nothing
        await table.say(0, pb.Sum(node=0, lease_id=7, refused="lost"))
        now = await table.phase(told, "masked", silent=(0,))
        assert counts(table.charges.path) == [0] * 5  # nobody reveals anything at agree
        now = await table.phase(now, "agree")
        seen.append(counts(table.charges.path))
        assert all(request is not None and request.present for request in now.values())
        await table.phase(now, "unmask")
        (upload,) = (await holding).effects
        assert isinstance(upload, Upload)
        assert upload.examples == 4  # the fixed divisor, not samples
        assert np.isfinite(upload.weights).all()  # type: ignore[arg-type]

    asyncio.run(main())
    assert seen == [[0, 1, 1, 1, 1]]  # the lost client is not in the sum


def test_a_sum_below_the_threshold_is_neither_charged_nor_opened(tmp_path: Path) -> None:
    async def main() -> None:
        table = PrivateTable(tmp_path / "ledger.safetensors")
        holding, told = await table.until("masked")
        for client in (0, 1):
            await table.say(client, pb.Sum(node=client, lease_id=7, refused="lost"))
        (abandon,) = (await holding).effects
        assert isinstance(abandon, Abandon)
        assert told
        assert counts(table.charges.path) == [0] * 5

    asyncio.run(main())


def test_if_the_ledger_cannot_be_saved_no_client_is_asked_and_the_edge_says_why(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        table = PrivateTable(tmp_path / "ledger.safetensors")
        holding, told = await table.until("masked")
        monkeypatch.setattr("hiflash.serve.charges.save_checkpoint", full)
        answers = await table.phase(told, "masked")
        assert all(
            request is not None and request.ended and not request.present for request in answers.values()
        )
        with pytest.raises(OSError, match="No space"):
            await holding
        assert table.charges.ledger.counts["edge round"].tolist() == [0] * 5

    asyncio.run(main())


def test_an_edge_that_opens_sums_takes_no_single_models(tmp_path: Path) -> None:
    charges = EdgeCharges(plan(), 0, range(5), tmp_path / "ledger.safetensors")
    with pytest.raises(ProtocolError, match="models of single clients"):
        charges([update(0), update(1)], 1, np.zeros(3, np.float32))


def test_histograms_are_in_the_ledger_of_an_edge_once_and_the_cloud_counts_them_once(tmp_path: Path) -> None:
    sent = SentHistograms(Release("laplace", 2.0, 0.0, "sample"), 5)
    path, both = tmp_path / "ledger.safetensors", plan(histograms=sent)
    EdgeCharges(plan(), 0, range(5), path)  # an earlier run, of clients that had sent none
    for _ in range(2):
        charges = EdgeCharges(both, 0, range(5), path)
        assert charges.ledger.counts["label histogram"].tolist() == [1] * 5
        assert load_checkpoint(path)["counts"]["label histogram"].tolist() == [1] * 5
    told = read_charges(charges.body(), range(5), both, Charges())
    ledger = total(both, [told])
    assert ledger.counts["label histogram"].tolist() == [1] * 5
    assert both.report(ledger)["other_units"]["sample"]["epsilon"] == pytest.approx(2.002, abs=1e-3)
    again = EdgeCharges(
        plan(histograms=SentHistograms(Release("laplace", 1.0, 0.0, "sample"), 5)), 0, range(5), path
    )
    assert set(again.ledger.entries) == {
        "edge round",
        "label histogram",
        "label histogram (noise 0.5, rate 1)",  # another histogram, another charge
    }


def test_noise_and_clip_of_the_configuration_hold_whatever_an_edge_says(tmp_path: Path) -> None:
    """A client that thinks of other noise signs other terms, so nobody takes its keys for these."""
    terms = read_terms(
        pb.Task(lease_id=7, sum=pb.SumTerms(edge=0, clients=[0, 1, 2], bound=CLIP, most_examples=3)),
        "test",
        SIZE,
        noise=1.0,
    )
    content = b"%s" % terms.context()
    with pytest.raises(Refused, match="client 0: its signature is wrong"):
        SeededVerifier(0).check(0, b"", replace(terms, noise=0.1).context(), SeededSigner(0, 0).sign(content))
    calls: list[pb.Sum] = []

    class Lying:
        async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
            calls.append(pb.Sum.FromString(body))
            return pb.SumTold(ended=True).SerializeToString()

    async def work() -> Trained | None:
        return Trained(np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), 10, 0.1)

    sums = ClientSums("test", CLIP, SeededSigner(0, 0), SeededVerifier(0), SeededRandomness(0), 1.0)
    given = pb.SumTerms(edge=0, clients=[0, 1, 2], bound=100.0, most_examples=3)
    told = pb.Task(present=True, lease_id=7, sum=given)
    patience = Patience(np.random.default_rng(0))
    asyncio.run(take_part(sums, Lying(), Wire(SIZE, 0, 5), patience, Invited(0, 16, told), work))
    assert "its bound is 100, and the configuration's 2" in calls[-1].refused
