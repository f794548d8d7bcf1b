"""Bytes of calls to messages of the core and back, checked against what this federation may send.

Nothing here builds objects that a sender names. protobuf reads flat fields, a model is raw float32 of exactly
the right length, and numbers out of range raise `Malformed`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import numpy as np
from google.protobuf.message import DecodeError, Message

from hiflash.messages import (
    Abandon,
    Assignment,
    Cancel,
    CheckIn,
    ClientUpdate,
    CloudAnswer,
    EdgeCosts,
    Grant,
    Proceed,
    Progress,
    Refuse,
    Round,
    Upload,
    Verdict,
    Weights,
)
from hiflash.serve import wire_pb2 as pb
from hiflash.weights import Spec

__all__ = ["PROTOCOL", "Malformed", "Measured", "Wire", "spec_digest"]

PROTOCOL = 1
SLACK = 64 * 1024  # bytes of a call beside its model
MOST = 2**53  # whole numbers up to here are exact in every language
MOST_ROUNDS = 1_000

Kind = TypeVar("Kind", bound=Message)


class Malformed(Exception):  # noqa: N818  # the sender's error, not ours
    """A call that breaks the format: it changes nothing and is counted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One edge round as its edge measured it."""

    asked: int
    delivered: int
    steps: int
    compute_s: float
    send_s: float


def spec_digest(spec: Spec) -> str:
    """Return the digest of a model's tensors, which both sides of a call compare."""
    return hashlib.sha256(json.dumps(spec.tensors).encode()).hexdigest()[:16]


class Wire:
    """Encodes and decodes the calls of one federation, whose models have `size` values."""

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def most_bytes(self) -> int:
        """Return the largest call: 1.25 models and some slack."""
        return math.ceil(1.25 * 4 * self.size) + SLACK

    def read(self, kind: type[Kind], body: bytes) -> Kind:
        """Return a call of this kind, or raise `Malformed`."""
        if len(body) > self.most_bytes:
            raise Malformed(f"{len(body)} bytes, at most {self.most_bytes} are allowed")
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise Malformed(f"not a {kind.DESCRIPTOR.name}: {error}") from None

    def model(self, body: bytes) -> Weights:
        """Return the model in these bytes."""
        if len(body) != 4 * self.size:
            raise Malformed(f"a model of {len(body)} bytes, expected {4 * self.size}")
        return np.frombuffer(body, "<f4").astype(np.float32, copy=False)

    @staticmethod
    def model_bytes(weights: Weights) -> bytes:
        """Return the bytes of a model."""
        return np.ascontiguousarray(weights, "<f4").tobytes()

    # Calls of an edge to the cloud.

    def check_in(self, asked: pb.CheckIn, now: float) -> CheckIn:
        """Return the request in a message; impossible costs are the core's to refuse."""
        costs = asked.costs
        return CheckIn(
            asked.node,
            _whole(asked.request_id),
            EdgeCosts(costs.compute_s, costs.send_s, costs.down_s, costs.train_s, costs.up_s),
            now,
        )

    def upload(self, sent: pb.Upload, now: float) -> Upload:
        """Return the upload in a message."""
        return Upload(
            sent.node,
            _whole(sent.lease_id),
            self.model(sent.model),
            _whole(sent.examples),
            self._next(sent, now),
            now,
        )

    def progress(self, sent: pb.Lease, now: float) -> Progress:
        """Return the question in a message."""
        return Progress(sent.node, _whole(sent.lease_id), now)

    def abandon(self, sent: pb.Lease, now: float) -> Abandon:
        """Return the abandoned lease in a message."""
        return Abandon(sent.node, _whole(sent.lease_id), self._next(sent, now), now)

    @staticmethod
    def measured(rounds: Sequence[pb.Measured]) -> list[Measured]:
        """Return the measured rounds of a lease; seconds that cannot be are 0."""
        if len(rounds) > MOST_ROUNDS:
            raise Malformed(f"{len(rounds)} rounds, at most {MOST_ROUNDS} are allowed")
        return [
            Measured(
                each.asked,
                each.delivered,
                _whole(each.steps),
                _seconds(each.compute_s),
                _seconds(each.send_s),
            )
            for each in rounds
        ]

    def ask(self, asked: CheckIn, rounds: int, wait_s: float) -> bytes:
        """Return the bytes of a request."""
        return _asked(asked, rounds, wait_s).SerializeToString()

    def work(self, last: Upload | Abandon | Progress, rounds: Iterable[Measured], next_rounds: int) -> bytes:
        """Return the bytes of the calls that end a lease, or ask whether to go on."""
        told = [
            pb.Measured(
                asked=each.asked,
                delivered=each.delivered,
                steps=each.steps,
                compute_s=each.compute_s,
                send_s=each.send_s,
            )
            for each in rounds
        ]
        if isinstance(last, Progress):
            return pb.Lease(node=last.edge, lease_id=last.lease_id, rounds=told).SerializeToString()
        check_in = None if last.check_in is None else _asked(last.check_in, next_rounds, 0.0)
        if isinstance(last, Abandon):
            return pb.Lease(
                node=last.edge, lease_id=last.lease_id, rounds=told, check_in=check_in
            ).SerializeToString()
        if not isinstance(last.weights, np.ndarray):
            raise TypeError("an upload over a network holds weights, not a promise")
        return pb.Upload(
            node=last.edge,
            lease_id=last.lease_id,
            model=self.model_bytes(last.weights),
            examples=last.examples,
            rounds=told,
            check_in=check_in,
        ).SerializeToString()

    def answer(self, answers: Iterable[CloudAnswer], *, finished: bool = False, held_s: float = 0.0) -> bytes:
        """Return the bytes of the cloud's answer to one call."""
        told = pb.Answer(finished=finished, held_s=held_s)
        for answer in answers:
            match answer:
                case Grant():
                    told.grant.CopyFrom(
                        pb.Grant(
                            request_id=answer.request_id,
                            lease_id=answer.lease_id,
                            base_version=answer.base_version,
                            threshold=answer.threshold,
                            model=self.model_bytes(answer.weights),
                        )
                    )
                case Refuse():
                    told.refuse.CopyFrom(
                        pb.Refuse(
                            request_id=answer.request_id,
                            reason=answer.reason,
                            retry_after_s=answer.retry_after,
                        )
                    )
                case Verdict():
                    told.verdict.CopyFrom(
                        pb.Verdict(
                            lease_id=answer.lease_id,
                            status=answer.status,
                            staleness=answer.staleness,
                            version=answer.version,
                            reason=answer.reason,
                        )
                    )
                case Proceed():
                    told.proceed = True
                case Cancel():
                    told.cancel = True
                case _:
                    raise TypeError(f"{type(answer).__name__} is no answer to a lease")
        return told.SerializeToString()

    def answers(self, edge: int, lease_id: int, told: pb.Answer, now: float) -> list[CloudAnswer]:
        """Return the cloud's answers to one call of an edge, the verdict before the next grant."""
        found: list[CloudAnswer] = []
        if told.HasField("verdict"):
            said = told.verdict
            if said.status not in ("applied", "buffered", "rejected"):
                raise Malformed(f"a verdict of status {said.status[:20]!r}")
            status = cast(Literal["applied", "buffered", "rejected"], said.status)
            found.append(Verdict(edge, said.lease_id, status, said.staleness, said.version, said.reason, now))
        if told.proceed:
            found.append(Proceed(edge, lease_id, now))
        if told.cancel:
            found.append(Cancel(edge, lease_id, now))
        if told.HasField("grant"):
            given = told.grant
            found.append(
                Grant(
                    edge,
                    given.request_id,
                    given.lease_id,
                    given.base_version,
                    given.threshold,
                    self.model(given.model),
                    now,
                )
            )
        if told.HasField("refuse"):
            no = told.refuse
            if no.reason not in ("refused", "waited", "costs", "expired"):
                raise Malformed(f"a refusal for {no.reason[:20]!r}")
            found.append(Refuse(edge, no.request_id, no.reason, _seconds(no.retry_after_s), now))  # type: ignore[arg-type]  # checked above
        return found

    # Calls of a client to its edge.

    def task(self, opened: Round, work: Assignment, model: bytes) -> bytes:
        """Return the bytes of one client's share of an edge round."""
        return pb.Task(
            present=True,
            lease_id=opened.lease_id,
            round=opened.index,
            first_step=work.first_step,
            steps=work.steps,
            lr=work.lr,
            seed=work.seed,
            model=model,
        ).SerializeToString()

    def update(self, sent: pb.Deliver, now: float) -> ClientUpdate:
        """Return a client's update in a message."""
        return ClientUpdate(
            sent.node,
            _whole(sent.lease_id),
            sent.round,
            self.model(sent.model),
            _whole(sent.examples),
            sent.loss,
            sent.compute_s,
            now,
        )

    def _next(self, sent: pb.Upload | pb.Lease, now: float) -> CheckIn | None:
        if not sent.HasField("check_in"):
            return None
        if sent.check_in.node != sent.node:
            raise Malformed(f"node {sent.node} checks in for node {sent.check_in.node}")
        return self.check_in(sent.check_in, now)


def _asked(asked: CheckIn, rounds: int, wait_s: float) -> pb.CheckIn:
    costs = pb.Costs(**asked.costs._asdict())
    return pb.CheckIn(node=asked.edge, request_id=asked.request_id, costs=costs, rounds=rounds, wait_s=wait_s)


def _whole(number: int) -> int:
    if number > MOST:
        raise Malformed(f"{number} is larger than {MOST}")
    return number


def _seconds(seconds: float) -> float:
    return seconds if 0 <= seconds < math.inf else 0.0
