"""Secure sums deployed: the simulator's digest, certificates of clients, and who is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

from hiflash.core.aggregation import combine_clients
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.errors import ConfigError
from hiflash.messages import Abandon, Ask, Assignment, Estimates, Grant, Received, Round, Upload
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.client import SumClient
from hiflash.privacy.sums.fixed_point import FixedPoint
from hiflash.privacy.sums.keys import Keys
from hiflash.privacy.sums.messages import (
    MOST_CLIENTS,
    MOST_OF_A_CLIENT,
    PHASES,
    Refused,
    Terms,
    model_digest,
    threshold,
)
from hiflash.privacy.sums.signing import SeededSigner, SeededVerifier
from hiflash.privacy.sums.sizes import CREDENTIAL_BYTES, SIGNATURE_BYTES
from hiflash.serve import nodes, signing
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.approvals import read_denylist
from hiflash.serve.authority import make_throwaway_federation
from hiflash.serve.calls import CallError, Peer
from hiflash.serve.channels import open_channels
from hiflash.serve.client import Job, Worked
from hiflash.serve.client_sums import ClientSums, Invited, Trained, take_part
from hiflash.serve.cluster import Closed, Cluster, EdgeTerms
from hiflash.serve.credentials import Credentials
from hiflash.serve.edge_sums import EdgeSums
from hiflash.serve.identity import fingerprint
from hiflash.serve.keys import client_sums, edge_sums
from hiflash.serve.memory import Own
from hiflash.serve.patience import Patience
from hiflash.serve.signing import CertificateSigner, CertificateVerifier
from hiflash.serve.sum_wire import answer_of, read_request, read_terms, sum_terms, terms_of
from hiflash.serve.wire import PROTOCOL, Malformed, Wire
from serve.inside import Inside, tiny_config

SECURE: dict[str, Any] = {
    "method": "hierfavg",
    "federation.clients": 8,
    "federation.edges": 2,
    "cloud.participants": 2,
    "edge.clients_per_round": "all",
    "edge.secure": "secagg",
    "serve.keep_client_updates": False,
}
SIZE, BOUND, SAMPLES = 3, 8.0, 16


@pytest.mark.parametrize(
    "settings",
    [{}, {"edge.edge_rounds": [2]}, {"edge.clients_per_round": 3}, {"wan.upload": "int8"}],
    ids=["all", "two rounds", "three of four", "int8"],
)
def test_deployed_and_simulated_runs_end_with_the_same_digest(
    settings: dict[str, Any], tmp_path: Any
) -> None:
    inside = Inside(tiny_config(**{**SECURE, **settings}), tmp_path)
    deployed, simulated = inside.run(), inside.simulated()
    assert deployed.digest == simulated.digest
    for name in ("version", "communications", "client_steps", "client_uploads", "wan_bytes", "lan_bytes"):
        assert getattr(deployed, name) == getattr(simulated, name), name
    assert deployed.secure == simulated.secure
    assert deployed.secure["rounds"] > 0


def test_an_asynchronous_method_runs_with_secure_sums(tmp_path: Path) -> None:
    settings = {name: value for name, value in SECURE.items() if name != "cloud.participants"}
    inside = Inside(tiny_config(**{**settings, "method": "hifl"}), tmp_path)
    result = inside.run()
    assert result.communications == 12
    assert result.secure["rounds"] - result.secure["abandoned"] >= 12


def test_clients_tell_their_edge_a_power_of_two(tmp_path: Path) -> None:
    deployment = Inside(tiny_config(**SECURE), tmp_path).deployment
    held = deployment.federation.population.examples
    assert all(held[client] <= most < 2 * held[client] for client, most in deployment.declared.items())
    assert set(deployment.declared.values()) <= {2**power for power in range(12)}
    assert deployment.most_declared == max(deployment.declared.values())


def test_a_deployed_client_refuses_a_seeded_source_of_keys(tmp_path: Path) -> None:
    inside = Inside(tiny_config(**SECURE), tmp_path)
    channels = open_channels(inside.certs, "client/0", [], insecure=False)
    sums = client_sums(inside.deployment, channels)
    assert sums is not None
    assert not sums.randomness.repeats
    assert sums.most_examples == inside.deployment.most_declared
    with pytest.raises(ConfigError, match="draws keys and noise from the operating system, and got a seeded"):
        client_sums(inside.deployment, channels, SeededRandomness(0, "client"))


def test_keys_are_used_once_and_may_be_ready_before(tmp_path: Path) -> None:
    sums = ClientSums("test", BOUND, SeededSigner(0, 0), SeededVerifier(0), SeededRandomness(0, "keys"))
    first = sums.keys()
    sums.clients = 5
    for _ in range(2):
        asyncio.run(sums.prepare())
    second = sums.keys()
    assert list(second.dealt) == [(4, 5)]  # four of five, as in the last sum
    third = sums.keys()
    secrets = {
        getattr(keys, name)
        for keys in (first, second, third)
        for name in ("mask_secret", "box_secret", "seed")
    }
    assert len(secrets) == 9


def test_without_certificates_there_are_no_secure_sums(tmp_path: Path) -> None:
    deployment = Inside(tiny_config(**SECURE), tmp_path).deployment
    plain = open_channels(None, "edge/0", [], insecure=False)
    assert edge_sums(deployment, plain) is client_sums(deployment, plain) is None
    with pytest.raises(ConfigError, match=r"needs certificates.*give --certs DIR"):
        deployment.edge(0, None, sums=edge_sums(deployment, plain))  # type: ignore[arg-type]


# Certificates.


@pytest.fixture(scope="module")
def certs(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("federation") / "certs"
    make_throwaway_federation(folder, "hospitals", 1, 3)
    return folder


def test_a_signature_is_that_of_the_certificates_client(certs: Path) -> None:
    signer = CertificateSigner(Credentials.load(certs, "client/1"))
    verifier = CertificateVerifier(Credentials.load(certs, "client/2"))
    signature = signer.sign(b"content")
    verifier.check(1, signer.credential, b"content", signature)
    assert abs(len(signer.credential) - CREDENTIAL_BYTES) < 64
    assert len(signature) <= SIGNATURE_BYTES
    for client, content, mark, words in [
        (1, b"other", signature, "client 1: its signature is wrong"),
        (1, b"content", signature[:-1], "client 1: its signature is wrong"),
        (1, b"content", b"", "client 1: its signature is wrong"),
        (2, b"content", signature, "client 2: its certificate is that of client 1"),
    ]:
        with pytest.raises(Refused, match=words):
            verifier.check(client, signer.credential, content, mark)


@pytest.mark.parametrize("who", ["edge/0", "cloud"])
def test_other_roles_do_not_sign(certs: Path, who: str) -> None:
    signer = CertificateSigner(Credentials.load(certs, who))
    verifier = CertificateVerifier(Credentials.load(certs, "client/2"))
    with pytest.raises(Refused, match=r"client 0: its certificate does not count: .* may not do this"):
        verifier.check(0, signer.credential, b"content", signer.sign(b"content"))


def test_certificates_of_others_and_damaged_ones_do_not_count(certs: Path, tmp_path: Path) -> None:
    make_throwaway_federation(tmp_path / "certs", "hospitals", 1, 3)  # the same name, another CA
    foreign = CertificateSigner(Credentials.load(tmp_path / "certs", "client/1"))
    mine = CertificateSigner(Credentials.load(certs, "client/1"))
    verifier = CertificateVerifier(Credentials.load(certs, "client/2"))
    ca = signing.x509.load_pem_x509_certificate((certs / "ca.crt").read_bytes())
    for credential in (
        foreign.credential,
        mine.credential[:-1],
        mine.credential + b"x",
        b"",
        b"x" * 10_000,
        ca.public_bytes(signing.serialization.Encoding.DER),
    ):
        with pytest.raises(Refused, match="client 1: "):
            verifier.check(1, credential, b"content", mine.sign(b"content"))


def test_denied_and_expired_certificates_do_not_count(certs: Path, monkeypatch: Any) -> None:
    credentials = Credentials.load(certs, "client/1")
    signer = CertificateSigner(credentials)
    denied = CertificateVerifier(Credentials.load(certs, "client/2"), {fingerprint(credentials.certificate)})
    with pytest.raises(Refused, match="client 1: its certificate does not count: client/1 was denied"):
        denied.check(1, signer.credential, b"content", signer.sign(b"content"))
    verifier = CertificateVerifier(Credentials.load(certs, "client/2"), read_denylist(certs))
    verifier.check(1, signer.credential, b"content", signer.sign(b"content"))
    later = signing.utc_now() + timedelta(days=100)
    monkeypatch.setattr(signing, "utc_now", lambda: later)
    with pytest.raises(Refused, match="client 1: its certificate has expired"):
        verifier.check(1, signer.credential, b"content", signer.sign(b"content"))


# Calls of hostile clients.


class Table:
    """An edge with five clients whose calls a test makes itself."""

    def __init__(self, deadline_s: float = 60.0) -> None:
        self.verifier = SeededVerifier(0)
        self.wire = Wire(SIZE, 0, 5)
        sums = EdgeSums("test", BOUND, self.verifier)
        self.cluster = Cluster(EdgeTerms(0, "c", "s", sums=sums, rate=1e9, burst=1e9), self.wire)
        self.cluster.expected = frozenset(range(5))
        rules = EdgeRules((1,), 0, deadline_s=deadline_s, quorum=0.5, least=3, opens=threshold)
        workloads = {client: Workload(SAMPLES, 1, 0.1, 1.0, 100) for client in range(5)}
        self.edge = Edge(0, range(5), workloads, rules, Estimates(1, 1, 1, 1, 1), combine_clients)
        self.machines: dict[int, SumClient] = {}
        self.base = np.float32([1, 2, 3])

    async def begin(self) -> asyncio.Task[Closed]:
        """Begin a round of clients that have all said hello."""
        for client in range(5):
            hello = pb.Hello(protocol=PROTOCOL, node=client, config_digest="c", spec_digest="s", examples=16)
            await self.cluster.serve("Hello", Peer("client", client), hello.SerializeToString())
        now = self.cluster.now()
        (asked,) = self.edge.handle(Ask(now))
        grant = Grant(0, asked.request_id, 7, 0, 1.0, self.base, now)  # type: ignore[union-attr]
        (opened,) = self.edge.handle(Received(grant, 0.0, now))
        holding = asyncio.create_task(self.cluster.hold(self.edge, opened))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return holding

    async def open(self) -> asyncio.Task[Closed]:
        """Begin a round, and let all clients fetch their task."""
        holding = await self.begin()
        for client in range(5):
            self.tasks = await self.fetch(client)
            terms = read_terms(self.tasks, "test", SIZE)
            keys = Keys.fresh(SeededRandomness(0, "keys", client))
            self.machines[client] = SumClient(terms, client, SeededSigner(0, client), self.verifier, keys)
        return holding

    async def fetch(self, client: int, last: tuple[int, int] = (0, 0)) -> pb.Task:
        body = pb.Fetch(node=client, lease_id=last[0], round=last[1]).SerializeToString()
        return pb.Task.FromString(await self.cluster.serve("Fetch", Peer("client", client), body))

    async def say(self, client: int, sent: pb.Sum, caller: int | None = None) -> pb.SumTold:
        peer = Peer("client", client if caller is None else caller)
        return pb.SumTold.FromString(await self.cluster.serve("Sum", peer, sent.SerializeToString()))

    def answer(self, client: int, told: pb.SumTold | None, phase: str) -> pb.Sum:
        """Return an honest client's answer in a phase."""
        machine = self.machines[client]
        request = None if told is None else read_request(told, 5)
        if phase == "masked":
            machine.receive(request)  # type: ignore[arg-type]
            change = np.full(SIZE, client / 10)
            return answer_of(machine.mask(FixedPoint.of(machine.terms).encode(change, 10)), (7, 0), 30.0)
        methods = {"share": machine.share, "agree": machine.agree, "unmask": machine.reveal}
        said = machine.advertise() if phase == "advertise" else methods[phase](request)  # type: ignore[operator]
        return answer_of(said, (7, 0), 30.0)

    async def phase(
        self, told: dict[int, pb.SumTold | None], phase: str, silent: tuple[int, ...] = ()
    ) -> dict[int, pb.SumTold | None]:
        """Let everybody answer in a phase, and return what they are told next."""
        clients = [client for client in told if client not in silent]
        answers = await asyncio.gather(
            *(self.say(client, self.answer(client, told[client], phase)) for client in clients)
        )
        return dict(zip(clients, answers, strict=True))

    async def until(self, phase: str) -> tuple[asyncio.Task[Closed], dict[int, pb.SumTold | None]]:
        """Begin a round and go on to a phase; before `agree`, client 0 is lost with its masked vector."""
        holding, told = await self.open(), dict.fromkeys(range(5))
        for before in PHASES[: PHASES.index(phase)]:  # type: ignore[arg-type]
            lost = phase == "agree" and before == "masked"
            if before == "agree":
                continue
            if lost:
                await self.say(0, pb.Sum(node=0, lease_id=7, refused="lost"))
            told = await self.phase(told, before, (0,) if lost else ())  # type: ignore[arg-type,assignment]
        return holding, told  # type: ignore[return-value]


def expect_upload(closed: Closed, clients: range | tuple[int, ...]) -> None:
    (upload,) = closed.effects
    assert isinstance(upload, Upload)
    change = np.mean([client / 10 for client in clients])
    np.testing.assert_allclose(upload.weights, np.float32([1, 2, 3]) + change, atol=1e-6)  # type: ignore[arg-type]
    assert upload.examples == 10 * len(clients)
    assert closed.measured.counted == tuple(clients)


def test_a_whole_sum_over_calls() -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("unmask")
        await table.phase(told, "unmask")
        closed = await holding
        expect_upload(closed, range(5))
        assert closed.measured.lost == (0, 0, 0, 0, 0)
        assert closed.metrics == {}

    asyncio.run(main())


@pytest.mark.parametrize("phase", PHASES)
def test_hostile_calls_are_refused_in_every_phase_and_the_sum_is_right(phase: str) -> None:
    """Client 4 sends what breaks format or protocol, and then what it should have sent."""

    async def main() -> None:
        table = Table()
        holding, told = await table.until(phase)
        good = table.answer(4, told[4], phase)

        def changed(**changes: Any) -> pb.Sum:
            copy = pb.Sum()
            copy.CopyFrom(good)
            for name, value in changes.items():
                copy.ClearField(name)
                field = getattr(copy, name)
                if isinstance(value, list):
                    field.extend(value)
                elif hasattr(value, "SerializeToString"):
                    field.CopyFrom(value)
                else:
                    setattr(copy, name, value)
            return copy

        place = PHASES.index(phase)  # type: ignore[arg-type]
        hostile = [changed(phase=9), changed(phase=place + 1) if place < 4 else changed(phase=7)]
        if phase == "advertise":
            hostile += [
                changed(advert=pb.Advert(client=4)),
                changed(advert=pb.Advert(client=3, mask_key=b"x")),
            ]
        elif phase == "share":
            boxes = list(good.boxes)
            hostile += [changed(boxes=boxes[:-1]), changed(boxes=[*boxes, boxes[0]]), changed(boxes=[])]
            cut = pb.SealedBox(client=0, sealed=boxes[0].sealed[:-1], seed_hash=b"", key_hash=b"")
            hostile.append(changed(boxes=[cut, *boxes[1:]]))
        elif phase == "masked":
            hostile += [changed(masked=good.masked[:-1]), changed(masked=good.masked + b"1234")]
        elif phase == "agree":
            tags = list(good.tags)
            short = pb.Share(client=tags[0].client, value=tags[0].value[:-1])
            hostile += [changed(tags=[]), changed(tags=[short, *tags[1:]]), changed(tags=[*tags, tags[0]])]
        else:
            shares = list(good.seeds)
            wrong = pb.Share(client=shares[0].client, value=bytes(32))
            hostile += [changed(seeds=[wrong, *shares[1:]]), changed(seeds=shares[1:])]
            hostile += [changed(seeds=[*shares, shares[0]]), changed(keys=[wrong])]
        for sent in hostile:
            with pytest.raises(CallError) as caught:
                await table.say(4, sent)
            assert caught.value.code == "invalid"
        with pytest.raises(CallError) as caught:
            await table.say(4, good, caller=3)
        assert caught.value.code == "denied"
        with pytest.raises(CallError):
            await table.cluster.serve("Sum", Peer("client", 4), good.SerializeToString()[:-1])
        elsewhere = await table.say(4, changed(lease_id=6))
        assert elsewhere.ended
        others = {client: request for client, request in told.items() if client != 4}
        answers = [asyncio.create_task(table.say(4, good))]
        answers += [
            asyncio.create_task(table.say(client, table.answer(client, request, phase)))
            for client, request in others.items()
        ]
        now = dict(zip([4, *others], await asyncio.gather(*answers), strict=True))
        for after in PHASES[place + 1 :]:
            if after != "agree":
                now = await table.phase(now, after)  # type: ignore[arg-type,assignment]
        expect_upload(await holding, range(1 if phase == "agree" else 0, 5))

    asyncio.run(main())


def test_a_repeated_call_gets_the_same_answer() -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("share")
        answers = {client: table.answer(client, told[client], "share") for client in range(5)}
        first = await asyncio.gather(*(table.say(client, answers[client]) for client in range(5)))
        again = await asyncio.gather(*(table.say(client, answers[client]) for client in range(5)))
        assert first == again
        now = await table.phase(dict(enumerate(first)), "masked")
        late = await table.say(0, answers[0])  # a call that was long on its way gets what is asked now
        assert late == now[0]
        await table.phase(now, "unmask")
        expect_upload(await holding, range(5))

    asyncio.run(main())


def test_a_restarted_client_is_given_up_at_once_and_gets_no_task_again() -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("share")
        others = {client: request for client, request in told.items() if client != 2}
        answers = asyncio.create_task(table.phase(others, "share"))
        await asyncio.sleep(0.01)
        again = await table.fetch(2, last=(7, 0))
        assert not again.present
        now = await answers
        for phase in ("masked", "unmask"):
            now = await table.phase(now, phase)
        closed = await holding
        expect_upload(closed, (0, 1, 3, 4))
        assert closed.measured.lost == (0, 1, 0, 0, 0)

    asyncio.run(main())


def test_clients_that_refuse_to_go_on_are_lost_and_too_many_end_the_lease(caplog: Any) -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("masked")
        assert (await table.say(0, pb.Sum(node=0, lease_id=7, refused="client 3: its box"))).ended
        others = {client: request for client, request in told.items() if client != 0}
        now = await table.phase(others, "masked")
        await table.say(1, pb.Sum(node=1, lease_id=7, refused="something"))
        closed = await holding
        (abandon,) = closed.effects
        assert isinstance(abandon, Abandon)
        assert closed.measured.lost == (0, 0, 1, 4, 0)
        assert closed.measured.unopened
        assert all(request is not None for request in now.values())

    asyncio.run(main())
    assert "edge 0 abandons a secure sum: 3 of 5 clients are left at agree, and 4 are needed" in caplog.text
    assert 'client 0 left at masked: it says: "client 3: its box"' in caplog.text


def test_a_deadline_ends_a_phase() -> None:
    async def main() -> None:
        table = Table(deadline_s=0.2)
        holding, told = await table.until("masked")
        now = await table.phase(told, "masked", silent=(4,))
        now = await table.phase(now, "agree")
        await table.phase(now, "unmask")
        closed = await holding
        expect_upload(closed, range(4))
        assert closed.measured.lost == (0, 0, 1, 0, 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bound": 1e6}, "its bound is 1e+06, and the configuration's 8"),
        ({"clients": [0, 1]}, "3 to 1000 clients, this one 2"),
        ({"clients": [1, 2, 3]}, "client 0 is not one of this sum"),
        ({"clients": [2, 1, 0]}, "not sorted"),
        ({"most_examples": 2}, "3 to 2^31"),
        ({"most_examples": 17}, "it allows fewer samples than its clients declare"),
    ],
)
def test_a_client_leaves_a_sum_on_other_terms(changes: dict[str, Any], words: str, caplog: Any) -> None:
    calls: list[pb.Sum] = []

    class Lying:
        async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
            calls.append(pb.Sum.FromString(body))
            return pb.SumTold(ended=True).SerializeToString()

    async def work() -> Trained | None:
        return Trained(np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32), 10, 0.1)

    sums = ClientSums("test", BOUND, SeededSigner(0, 0), SeededVerifier(0), SeededRandomness(0, "keys"))
    given = {"edge": 0, "clients": [0, 1, 2], "bound": BOUND, "most_examples": 48} | changes
    told = pb.Task(present=True, lease_id=7, sum=pb.SumTerms(**given))
    patience = Patience(np.random.default_rng(0))
    over = asyncio.run(take_part(sums, Lying(), Wire(SIZE, 0, 5), patience, Invited(0, 16, told), work))
    assert not over
    assert words in calls[-1].refused
    assert words in caplog.text


def test_terms_travel_whole() -> None:
    """Federation, size and noise are the client's own; the digest is that of the model in the task."""
    terms = Terms("hospitals", 3, 7, 2, (1, 2, 5), SIZE, 2.5, 99, 0.5, model_digest(b"a model"))
    told = pb.Task(lease_id=7, round=2, model=b"a model", sum=terms_of(terms))
    told = pb.Task.FromString(told.SerializeToString())
    assert read_terms(told, "hospitals", SIZE, noise=0.5) == terms
    told.model = b"another"
    assert read_terms(told, "hospitals", SIZE, noise=0.5) == replace(terms, model=model_digest(b"another"))


def test_a_sum_counts_what_all_clients_may_declare_and_endless_lists_are_refused() -> None:
    work = tuple(Assignment(client, 0, 1, 0.1, 0) for client in range(MOST_CLIENTS))
    opened = Round(3, 7, 0, np.zeros(SIZE, np.float32), work, 1.0, 0.0)
    declared = dict.fromkeys(range(MOST_CLIENTS), MOST_OF_A_CLIENT)
    terms = sum_terms(opened, "hospitals", SIZE, BOUND, declared, b"")
    assert terms.most_examples == 1000 * 2**21
    terms.check()
    told = pb.Task(sum=pb.SumTerms(clients=range(10**6)))
    with pytest.raises(Malformed, match="a list of 1000000"):
        read_terms(told, "hospitals", SIZE)


def test_a_client_whose_model_is_not_finite_leaves_the_round(tmp_path: Path, monkeypatch: Any) -> None:
    """Deployed: client 0 diverges at once, and every round goes on without it."""

    class Diverging(nodes.LocalTraining):
        def _work(self, job: Job, own: Own) -> Worked:
            worked = super()._work(job, own)
            return replace(worked, weights=worked.weights * np.nan) if job.work.client == 0 else worked

    monkeypatch.setattr(nodes, "LocalTraining", Diverging)
    inside = Inside(tiny_config(**SECURE), tmp_path)
    result = inside.run()
    assert result.communications == 12
    assert result.secure["abandoned"] == 0
    lost = result.secure["lost"]
    assert lost == {**dict.fromkeys(PHASES, 0), "masked": result.secure["rounds"] / 2}  # at one of two edges
    tensors = load_file(inside.state / "model.safetensors").values()
    assert all(np.isfinite(tensor).all() for tensor in tensors)
