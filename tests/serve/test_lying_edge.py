"""Edges that lie to single clients: secure sums stay on, tasks are the configuration's, nothing is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

from hiflash.core.edge import Workload
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.in_memory import make_client
from hiflash.privacy.sums.messages import Boxes, Roster
from hiflash.privacy.sums.signing import SeededSigner, SeededVerifier
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, CallError, Peer
from hiflash.serve.client import ClientAgent, ClientTerms, Found, Job, Worked
from hiflash.serve.client_sums import ClientSums, Invited, Trained, take_part
from hiflash.serve.memory import Memory, Own
from hiflash.serve.models import model_bytes
from hiflash.serve.patience import Patience
from hiflash.serve.sum_wire import read_answer, read_terms, request_of
from hiflash.serve.task_checks import check_task, why_not
from hiflash.serve.wire import Wire
from network.federation import Kept
from serve.test_secure_sums import BOUND, SIZE, Table

WORKLOAD = Workload(16, 3, 0.1, 0.99, 100)
BASE = np.zeros(SIZE, np.float32)
SUM: dict[str, Any] = {"edge": 0, "clients": [0, 1, 2], "bound": BOUND, "most_examples": 48}
ROW = "row 17 of patient Roe"


def task(**changes: Any) -> pb.Task:
    given = {"lease_id": 7, "steps": 3, "lr": 0.1, "seed": 1, "model": model_bytes(BASE)}
    return pb.Task(present=True, **{**given, "sum": pb.SumTerms(**SUM), **changes})


class Lying:
    """An edge that hands out tasks one after the other, and writes down what it gets for them."""

    def __init__(self, tasks: list[pb.Task], runs: tuple[str, ...] = ("run",)) -> None:
        self.tasks, self.runs, self.hellos = tasks, runs, 0
        self.got: list[Any] = []

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        if method == "Hello":
            self.hellos += 1
            return pb.Welcome(run=self.runs[min(self.hellos, len(self.runs)) - 1]).SerializeToString()
        if method == "Fetch":
            if self.got and self.hellos < len(self.runs):
                raise CallError("stranger", "say hello first")
            if not self.tasks:
                return pb.Task(finished=True).SerializeToString()
            return self.tasks.pop(0).SerializeToString()
        if method == "Sum":
            sent = pb.Sum.FromString(body)
            self.got.append(sent.refused or "takes part")
            return pb.SumTold(ended=True).SerializeToString()
        if method == "Deliver":
            self.got.append(pb.Deliver.FromString(body))
            return pb.Delivered(taken=True).SerializeToString()
        return pb.Alive().SerializeToString()


class Way:
    def __init__(self, edge: Caller, run: str = "run") -> None:
        self.edge, self.run = edge, run

    async def find(self, last: tuple[int, int]) -> Found:
        return Found(self.edge, False, 0, self.run)


def agent(
    edge: Caller, *, secure: bool = True, client: int = 0, works: Any = None, **way: str
) -> ClientAgent:
    async def unchanged(job: Job, own: Own) -> Worked:
        return Worked(job.model, 0.5, 0.1, own)

    signer, verifier = SeededSigner(0, client), SeededVerifier(0)
    sums = ClientSums("test", BOUND, signer, verifier, SeededRandomness(0, "keys", client))
    terms = ClientTerms(client, "c", "s", examples=10, compute_s=0.1, declares=16)
    if secure:
        terms = replace(terms, sums=sums, workload=WORKLOAD, seed=1)
    patience = Patience(np.random.default_rng(0), first_s=0.01)
    return ClientAgent(terms, Wire(SIZE, 0, 5), Way(edge, **way), works or unchanged, Kept(), patience)


def run(each: ClientAgent, seconds: float = 5.0) -> None:
    asyncio.run(asyncio.wait_for(each.run(), seconds))


# An edge cannot switch secure sums off.


def test_a_client_of_secure_sums_makes_no_plain_update() -> None:
    trained: list[Job] = []

    async def works(job: Job, own: Own) -> Worked:
        trained.append(job)
        return Worked(job.model, 0.5, 0.1, own)

    edge = Lying([task(sum=None)])
    with pytest.raises(CallError, match="mismatch: the edge asks for single models, and the configuration"):
        run(agent(edge, works=works))
    assert not trained
    assert not edge.got


def test_a_client_of_secure_sums_delivers_no_model_whatever_asks_for_it() -> None:
    worked = Worked(BASE, 0.5, 0.1, Own())
    with pytest.raises(CallError, match="a model of secure sums never travels alone"):
        agent(Lying([]))._delivery((7, 0), worked)
    assert agent(Lying([]), secure=False)._delivery((7, 0), worked)


def test_a_client_without_secure_sums_takes_no_part_in_one() -> None:
    edge = Lying([task()])
    with pytest.raises(
        CallError, match="mismatch: the edge asks for a secure sum, and the configuration for"
    ):
        run(agent(edge, secure=False))
    assert not edge.got


def test_an_agent_of_secure_sums_must_know_its_tasks() -> None:
    terms = replace(agent(Lying([])).terms, workload=None)
    with pytest.raises(ValueError, match="must know what its tasks are"):
        ClientAgent(terms, Wire(SIZE), Way(Lying([])), None, Kept(), None)  # type: ignore[arg-type]


# An edge cannot give clients other tasks than the configuration's, nor other models than each other.


@pytest.mark.parametrize(
    "change", [{"lr": 0.0}, {"lr": 0.0999}, {"steps": 0}, {"steps": 4}, {"seed": 2}, {"first_step": 2**60}]
)
def test_a_task_of_another_workload_is_no_task(change: dict[str, Any]) -> None:
    edge = Lying([task(**change)])
    with pytest.raises(CallError, match="mismatch: "):
        run(agent(edge))
    assert not edge.got


def test_the_learning_rate_follows_from_the_steps_before() -> None:
    check_task(task(first_step=250, lr=0.1 * 0.99**2), WORKLOAD, 1)
    with pytest.raises(CallError, match=r"the configuration for 3 steps with 0\.09801 and 1"):
        check_task(task(first_step=250, lr=0.1), WORKLOAD, 1)


def test_an_edge_cannot_make_a_learning_rate_vanish_by_steps_that_nobody_took() -> None:
    """0.99^68 is above a half and 0.99^69 below: 69 * 100 steps are too many, at once or bit by bit."""

    def given(first_step: int) -> pb.Task:
        return task(first_step=first_step, lr=WORKLOAD.rate(first_step))

    few, many = 6_899, 6_900
    assert why_not(given(few), WORKLOAD, Memory()) is None
    assert "never reached it" in (why_not(given(many), WORKLOAD, Memory()) or "")
    memory = Memory()
    for first_step in range(2_000, 8_000, 2_000):
        assert why_not(given(first_step), WORKLOAD, memory) is None
        memory = memory.begun((first_step, 0), Own(), first_step, 3)
    assert memory.skipped == 6_000 - 6
    assert why_not(given(8_000), WORKLOAD, memory) is not None
    honest = Memory(steps=8_000)  # it took them all
    assert why_not(given(8_000), WORKLOAD, honest) is None
    assert why_not(given(7_999), WORKLOAD, honest) == "it has begun this task before"
    edge = Lying([given(many)])
    run(agent(edge))
    assert edge.got == ["too many of the steps before this task never reached it"]


def test_clients_that_begin_with_other_models_do_not_add_up() -> None:
    """Everybody but one client gets a model that the edge knows the training of."""

    async def main() -> None:
        table = Table()
        true = table.wire.task

        def lying(opened: Any, work: Any, model: bytes, extra: Any) -> pb.Task:
            given = true(opened, work, model, extra)
            if work.client != 3:
                given.model = model_bytes(np.ones(SIZE, np.float32))
            return given

        table.wire.task = lying  # type: ignore[method-assign,assignment]
        await table.open()
        terms = {client: machine.terms for client, machine in table.machines.items()}
        assert terms[0] == terms[4] != terms[3]
        said = {client: machine.advertise() for client, machine in table.machines.items()}
        roster = Roster(tuple(said.values()))  # an honest edge would not pass them on
        for client in (0, 3):
            with pytest.raises(Exception, match="its signature is wrong"):
                table.machines[client].share(roster)

    asyncio.run(main())


def test_arrays_beside_the_model_are_bound_too() -> None:
    def beside(name: str, *values: float) -> pb.Task:
        raw = np.float32(values).tobytes()
        return task(extra=[pb.Array(name=name, shape=[len(values)], values=raw)])

    tasks = [task(), beside("a", 1.0), beside("b", 1.0), beside("a", 2.0), beside("a", 1.0, 2.0)]
    assert len({read_terms(each, "test", SIZE).model for each in tasks}) == 5


def test_a_whole_round_of_agents_gives_the_sum_and_a_lie_ends_them() -> None:
    """Real agents: with the configuration's learning rate they add up, and with 0 for most they leave."""

    async def round_of(lie: bool) -> tuple[Any, list[Any]]:
        table = Table(deadline_s=1.0)
        true = table.wire.task

        def lying(opened: Any, work: Any, model: bytes, extra: Any) -> pb.Task:
            given = true(opened, work, model, extra)
            given.lr = 0.0 if lie and work.client != 3 else given.lr
            return given

        async def works(job: Job, own: Own) -> Worked:
            return Worked(job.model + np.float32(job.work.lr), 0.5, 0.1, own)

        table.wire.task = lying  # type: ignore[method-assign,assignment]
        agents = []
        holding = await table.begin()
        for client in range(5):
            each = agent(Inside(table, client), client=client, works=works, run="")
            each.terms = replace(each.terms, seed=0, workload=Workload(16, 1, 0.1, 1.0, 100))
            agents.append(asyncio.create_task(each.run()))
        closed = await holding
        await asyncio.sleep(0.05)
        ended = [each.exception() for each in agents if each.done()]
        for each in agents:
            each.cancel()
        return closed, ended

    honest, ended = asyncio.run(round_of(lie=False))
    assert honest.measured.counted == (0, 1, 2, 3, 4)
    np.testing.assert_allclose(honest.effects[0].weights, np.float32([1.1, 2.1, 3.1]), atol=1e-6)
    assert not ended
    abandoned, ended = asyncio.run(round_of(lie=True))
    assert abandoned.measured.unopened
    assert [each.code for each in ended] == ["mismatch"] * 4


class Inside:
    """The way to the edge of a table."""

    def __init__(self, table: Table, client: int) -> None:
        self.table, self.peer = table, Peer("client", client)

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        return await self.table.cluster.serve(method, self.peer, body)


# An edge cannot make a client forget.


def test_the_edge_does_not_name_the_run(caplog: Any) -> None:
    """The same task again with other clients, after a hello that names another run."""
    again = task(sum=pb.SumTerms(**{**SUM, "clients": [0, 3, 4]}))
    edge = Lying([task(), again], runs=("run", "another"))
    with pytest.raises(TimeoutError):
        run(agent(edge), 0.5)
    assert edge.got == ["takes part"]
    assert edge.hellos > 2  # it asks on, and gets nothing
    assert caplog.text.count("client 0 waits: its edge is of another run than the cloud") == 1
    edge = Lying([task(), again], runs=("run", "run"))
    run(agent(edge))
    assert edge.got == ["takes part", "it has begun this task before"]


def test_a_new_run_of_the_cloud_begins_anew() -> None:
    edge, memories = Lying([task()]), Kept()
    first = agent(edge)
    first.memories = memories
    run(first)
    assert (memories.memory or Memory()).steps == 3
    again = Lying([task()], runs=("next",))
    second = agent(again, run="next")
    second.memory = memories.memory or Memory()
    run(second)
    assert again.got == ["takes part"]
    assert second.memory.run == "next"


def test_without_secure_sums_a_client_goes_on_with_an_edge_that_has_outlived_its_cloud() -> None:
    """The cloud began anew, and the edge has not noticed: nothing depends on the name."""
    edge = Lying([task(sum=None)], runs=("old",))
    plain = agent(edge, secure=False, run="new")
    run(plain)
    assert len(edge.got) == 1
    assert plain.memory.run == "old"


# What a client says when it leaves is nobody's secret.


def left_with(work: Any, most_examples: int = 48, bound: float = BOUND) -> list[str]:
    """Return what a client tells its edge when it leaves; the two other clients are honest."""
    told = task(sum=pb.SumTerms(**{**SUM, "most_examples": most_examples, "bound": bound}))
    terms, verifier = read_terms(told, "test", SIZE), SeededVerifier(0)
    others = {client: make_client(terms, client, 0, verifier) for client in (1, 2)}
    said: list[str] = []

    class Edge:
        roster = Roster(())

        async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
            sent = pb.Sum.FromString(body)
            if sent.refused:
                said.append(sent.refused)
                return pb.SumTold(ended=True).SerializeToString()
            answer: Any = read_answer(sent, SIZE + 2, 3)
            if sent.phase == 0:
                self.roster = Roster((answer, *(other.advertise() for other in others.values())))
                return request_of(self.roster, 1).SerializeToString()
            if sent.phase == 1:
                boxes = {client: other.share(self.roster).boxes[0] for client, other in others.items()}
                return request_of(Boxes(boxes), 2).SerializeToString()
            return pb.SumTold(ended=True).SerializeToString()

    sums = ClientSums("test", bound, SeededSigner(0, 0), verifier, SeededRandomness(0, "keys"), 0.0, 32)
    patience = Patience(np.random.default_rng(0))
    asyncio.run(take_part(sums, Edge(), Wire(SIZE, 0, 5), patience, Invited(0, 16, told), work))
    assert sums.clients == (3 if not said or "allows" not in said[0] else 0)
    return said


def trained(model: float = 0.5, examples: int = 10) -> Any:
    async def work() -> Trained:
        return Trained(np.full(SIZE, model, np.float32), BASE, examples, 0.1)

    return work


def test_a_client_tells_no_sample_count(caplog: Any) -> None:
    """16 declared samples and two other clients: 18 are the least. 437 samples are more than it declared."""
    assert left_with(trained(), most_examples=18) == []
    assert left_with(trained(), most_examples=17) == [
        "the edge: it allows fewer samples than its clients declare"
    ]
    assert left_with(trained(examples=437)) == ["client 0: its model has no place in a sum"]
    assert "437" not in caplog.text


def test_an_edge_cannot_make_a_sum_so_coarse_that_only_large_changes_are_in_it() -> None:
    """Three clients may declare 32 samples each."""
    assert left_with(trained(), most_examples=96) == []
    (said,) = left_with(trained(), most_examples=97)
    assert said == "the edge: it allows more samples than its clients may declare"


def test_a_model_that_is_not_finite_leaves_the_round(caplog: Any) -> None:
    assert left_with(trained(np.nan)) == ["client 0: its model is not finite"]
    assert "client 0 leaves a secure sum: client 0: its model is not finite" in caplog.text


def test_errors_of_training_stay_with_the_client(caplog: Any) -> None:
    """They end the client, as in a plain round; its edge hears nothing of them."""

    async def broken() -> Trained:
        raise ValueError(ROW)

    said: list[str] = []
    with pytest.raises(ValueError, match=ROW):
        said += left_with(broken)
    assert not said
    assert ROW not in caplog.text


def test_a_refused_roster_makes_no_work() -> None:
    """An edge that names a thousand clients does not make a client deal shares for them."""
    told = task(sum=pb.SumTerms(**{**SUM, "clients": range(1000), "most_examples": 99_999}))

    class Edge:
        async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
            if pb.Sum.FromString(body).refused:
                return pb.SumTold(ended=True).SerializeToString()
            return request_of(Roster(()), 1).SerializeToString()

    sums = ClientSums("test", BOUND, SeededSigner(0, 0), SeededVerifier(0), SeededRandomness(0, "keys"))
    patience = Patience(np.random.default_rng(0))
    asyncio.run(take_part(sums, Edge(), Wire(SIZE, 0, 1000), patience, Invited(0, 16, told), trained()))
    asyncio.run(sums.prepare())
    assert sums.clients == 0
    assert sums.keys().dealt == {}
