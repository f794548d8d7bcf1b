"""An edge's side of secure sums over a network: it drives the machine of a sum with its clients' calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

from hiflash.messages import Promise, Report, Round, Weights
from hiflash.privacy.sums.edge import (
    Abandoned,
    Ask,
    Gone,
    Heard,
    Opened,
    Rejected,
    SumEdge,
    SumEvent,
    TimeUp,
)
from hiflash.privacy.sums.fixed_point import Summed
from hiflash.privacy.sums.messages import PHASES, Request, Terms
from hiflash.privacy.sums.noised import NoisedSum
from hiflash.privacy.sums.signing import Verifier
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.beside import beside
from hiflash.serve.calls import CallError, printable
from hiflash.serve.charges import EdgeCharges
from hiflash.serve.sum_wire import phase_of, read_answer, request_of
from hiflash.serve.wire import Measured
from hiflash.weights import finite

__all__ = ["MASKED", "EdgeSums", "OpenSum", "compute", "sum_outcome"]

LOG = logging.getLogger("hiflash")
MASKED = PHASES.index("masked")
AT_ONCE = 20_000_000  # words to mask that keep nobody waiting: some milliseconds

Made = TypeVar("Made")


@dataclass(frozen=True)
class EdgeSums:
    """What an edge needs for secure sums: its federation's name, the bound of a change, and who signs.

    With `charges` sums are private: the bound is that of a change's norm, and a sum is charged before it is
    opened.
    """

    federation: str
    bound: float
    verifier: Verifier
    charges: EdgeCharges | None = None

    @property
    def noise(self) -> float:
        """Return the deviation of the noise in a sum, in clips; 0 without any."""
        return 0.0 if self.charges is None else self.charges.plan.noise

    def charge(self, clients: Sequence[int]) -> None:
        """Charge the clients of a sum that is about to be opened, if anybody counts."""
        if self.charges is not None:
            self.charges.charge(clients)

    def applied(self, summed: Summed | NoisedSum, base: Weights) -> Weights:
        """Return the model that a sum leads to from `base`."""
        if isinstance(summed, Summed):
            return summed.applied(base)
        if self.charges is None:
            raise TypeError("a private sum needs a ledger")
        return self.charges.applied(summed, base)


class OpenSum:
    """A sum under way. `outcome` is set when it is over, and `tell` wakes everybody who waits for news.

    If a private sum cannot be charged, it is abandoned, and `failed` says why.
    """

    def __init__(
        self, terms: Terms, sums: EdgeSums, deadline_s: float, quorum: int, tell: Callable[[], None]
    ) -> None:
        self.terms, self.sums = terms, sums
        self.machine = SumEdge(terms, sums.verifier, deadline_s, quorum)
        self.tell = tell
        self.requests: dict[int, Request] = {}
        self.phase = 0  # the place of the present phase in `PHASES`
        self.deadline = 0.0
        self.outcome: Opened | Abandoned | None = None
        self.failed: Exception | None = None
        self.masked_s: dict[int, tuple[float, float]] = {}  # when masked vectors came, and their computing
        self._busy = asyncio.Lock()
        self._under_way: set[asyncio.Future[list[Rejected]]] = set()

    def start(self, now: float) -> None:
        """Begin with the first phase, whose request goes with the tasks."""
        self._carry_out(self.machine.start(now))

    def awaits(self, client: int) -> bool:
        """Return whether a client may still begin to take part."""
        machine = self.machine
        return machine.phase == "advertise" and client not in machine.answers and client not in machine.gone

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return the clients that the present phase still waits for."""
        machine = self.machine
        return tuple(c for c in machine.expected if c not in machine.answers and c not in machine.gone)

    async def hear(self, sent: pb.Sum, now: float) -> None:
        """Take a client's answer; one that was taken before, or comes late, changes nothing."""
        client, phase = sent.node, phase_of(sent)
        if sent.refused:
            await self.handle(Gone(client, f'it says: "{printable(sent.refused, 200)}"', now))
            return
        if not self._wanted(client, sent.phase):
            return
        answer = read_answer(sent, self.terms.words, len(self.terms.clients))
        for rejected in await self.handle(Heard(client, answer, now), sent):
            reason = printable(rejected.reason)
            LOG.warning("client %d was refused at %s of a secure sum: %s", client, phase, reason)
            raise CallError("invalid", rejected.reason)

    async def handle(self, event: SumEvent, sent: pb.Sum | None = None) -> list[Rejected]:
        """Hand an event to the machine and return what it refused; `sent` is the message that it came in.

        A caller that is cancelled, because its client has gone, does not stop what is under way.
        """
        handling = asyncio.ensure_future(self._handle(event, sent))
        self._under_way.add(handling)
        handling.add_done_callback(self._ended)
        return await asyncio.shield(handling)

    def _ended(self, handling: asyncio.Future[list[Rejected]]) -> None:
        self._under_way.discard(handling)
        if not handling.cancelled():
            handling.exception()  # whoever asked for it may be gone

    async def _handle(self, event: SumEvent, sent: pb.Sum | None) -> list[Rejected]:
        async with self._busy:  # a sum of many large models is opened in a thread
            if sent is not None and not self._wanted(sent.node, sent.phase):
                return []  # the sum has gone on before it was this message's turn
            words, effects = self.terms.words * len(self.terms.clients), []
            try:
                effects = await compute(lambda: self.machine.handle(event), words)
            except Exception as error:  # whatever a client made it of: the edge goes on
                LOG.exception("edge %d: a secure sum failed", self.terms.edge)
                effects = [self.machine.abandon(f"it failed at the edge ({type(error).__name__})")]
            refused = self._carry_out(effects)
            if sent is not None and sent.phase == MASKED and not refused:
                self.masked_s[sent.node] = (event.now, sent.compute_s)
            return refused

    def _wanted(self, client: int, phase: int) -> bool:
        """Return whether a client's answer in a phase is still to come; raise if it is ahead of the sum."""
        if phase < self.phase or self.outcome is not None:
            return False
        if phase > self.phase:
            raise CallError(
                "invalid", f"client {client} is at {PHASES[phase]}, and the sum at {PHASES[self.phase]}"
            )
        return client in self.requests and client not in self.machine.answers

    async def time_up(self, now: float) -> None:
        """End the present phase."""
        await self.handle(TimeUp(PHASES[self.phase], now))

    def told(self, client: int, answered: int) -> pb.SumTold | None:
        """Return what comes after a phase that a client has answered, None if it must wait."""
        if answered > self.phase and self.outcome is None:
            raise CallError("invalid", f"client {client} is ahead of the sum")
        waits = client in self.requests and self.outcome is None and answered + 1 < len(PHASES)
        if not waits:
            return pb.SumTold(ended=True)
        return None if self.phase == answered else request_of(self.requests[client], self.phase)

    def _carry_out(self, effects: list[Ask | Rejected | Opened | Abandoned]) -> list[Rejected]:
        refused = []
        for effect in effects:
            match effect:
                case Ask():
                    if effect.phase == "unmask" and not self._charged():
                        continue
                    self.phase, self.requests = PHASES.index(effect.phase), effect.requests
                    self.deadline = effect.deadline
                    self.tell()
                case Opened() | Abandoned():
                    if isinstance(effect, Abandoned):
                        reason = printable(effect.reason)
                        LOG.warning("edge %d abandons a secure sum: %s", self.terms.edge, reason)
                    self.outcome, self.requests = effect, {}
                    self.tell()
                case Rejected():
                    refused.append(effect)
                case _:
                    assert_never(effect)
        return refused

    def _charged(self) -> bool:
        """Charge the clients in the sum: from here on they may tell the edge what opens it."""
        try:
            self.sums.charge(self.machine.survivors)
        except Exception as error:  # a full disk: whoever holds the round must know of it
            self.failed, self.requests = error, {}
            self.outcome = Abandoned("unmask", "the privacy ledger could not be charged")
            self.tell()
            return False
        return True


def sum_outcome(
    summing: OpenSum, opened: Round, started: float, now: float, steps: int
) -> tuple[Report, Measured]:
    """Return the end of a round as its edge takes it, and as the cloud's books do."""
    took = []
    for came, computed_s in summing.masked_s.values():
        whole_s = max(0.0, came - started)
        compute_s = computed_s if 0 <= computed_s <= whole_s else whole_s
        took.append((compute_s, whole_s - compute_s))
    compute_s, send_s = (math.fsum(column) for column in zip(*took, strict=True)) if took else (0.0, 0.0)
    clients: tuple[int, ...] = ()
    model, examples, clipped = None, 0, 0
    if isinstance(summing.outcome, Opened) and not isinstance(opened.model, Promise):
        summed, clients = summing.outcome.summed, summing.outcome.clients
        model = summing.sums.applied(summed, opened.model)
        if isinstance(summed, Summed):
            examples, clipped = summed.examples, summed.clipped
        if not finite(model):
            model, clients, examples = None, (), 0
    report = Report(opened.lease_id, opened.index, clients, model, compute_s, send_s, now, examples)
    asked, delivered = len(summing.terms.clients), len(summing.masked_s)
    lost = tuple(len(summing.machine.lost.get(phase, ())) for phase in PHASES)
    whole = [sum(each) for each in took]
    waiting_s = math.fsum(whole) / len(whole) - min(whole) if whole else 0.0
    told = (asked, delivered, steps, compute_s, send_s, now - started, waiting_s, clients)
    return report, Measured(*told, lost=lost, clipped=clipped, unopened=not clients)


async def compute(work: Callable[[], Made], words: int) -> Made:
    """Return what some work gives; work on many words goes to a thread, so that calls are answered."""
    return work() if words <= AT_ONCE else await beside(work)
