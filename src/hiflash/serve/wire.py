"""Bytes of calls to messages of the core and back, checked against what this federation may send.

Nothing here builds objects that a sender names. protobuf reads flat fields, a model is raw float32 of exactly
the right length, and numbers out of range raise `Malformed`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, cast

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
    Extra,
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
from hiflash.serve.fields import few_fields
from hiflash.serve.measured import (
    MOST_ROUNDS,
    Malformed,
    Measured,
    measured_messages,
    read_measured,
    seconds,
    whole,
)
from hiflash.weights import Spec

__all__ = [
    "MOST_NAMES",
    "PROTOCOL",
    "Asking",
    "Malformed",
    "Measured",
    "Wire",
    "array_messages",
    "metric_messages",
    "spec_digest",
]

PROTOCOL = 2
SLACK = 64 * 1024  # bytes of a call beside its model
MOST_NAMES = 64  # arrays or metrics in a call
WITH_MODEL: tuple[type[Message], ...] = (pb.Upload, pb.Answer, pb.Task, pb.Deliver, pb.Sum)
PER_CLIENT = 2 * 1024  # bytes of a call in a secure sum for each of its clients
MOST_FIELDS = 2 * MOST_NAMES + MOST_ROUNDS + 32  # of a call without clients
LONGEST_NAME = 80

Kind = TypeVar("Kind", bound=Message)


class Asking(NamedTuple):
    """What an edge says beside a check-in: its next lease's rounds, its samples, and the copy it holds."""

    rounds: int
    examples: int = 0
    holds: int = 0


def spec_digest(spec: Spec) -> str:
    """Return the digest of a model's tensors, which both sides of a call compare."""
    return hashlib.sha256(json.dumps(spec.tensors).encode()).hexdigest()[:16]


class Wire:
    """Encodes and decodes the calls of one federation.

    Its models have `size` values, and at most `beside` values travel beside one. Models come as bytes: see
    `hiflash.serve.models`. Secure sums have at most `sum_clients`.
    """

    def __init__(self, size: int, beside: int = 0, sum_clients: int = 0) -> None:
        self.size = size
        self.beside = beside
        self.sum_clients = sum_clients

    @property
    def most_bytes(self) -> int:
        """Return the largest call: 1.25 models with what travels beside them, and some slack."""
        return math.ceil(1.25 * 4 * (self.size + self.beside)) + SLACK + PER_CLIENT * self.sum_clients

    @property
    def most_sum_bytes(self) -> int:
        """Return the largest call of a secure sum beside a masked vector."""
        return SLACK + PER_CLIENT * self.sum_clients

    def read(self, kind: type[Kind], body: bytes) -> Kind:
        """Return a call of this kind, or raise `Malformed`."""
        most = self.most_bytes if kind in WITH_MODEL else SLACK
        if kind is pb.SumTold:
            most = self.most_sum_bytes
        if len(body) > most:
            raise Malformed(f"{len(body)} bytes, at most {most} are allowed")
        if len(body) > SLACK and not few_fields(body, MOST_FIELDS + 3 * self.sum_clients):
            raise Malformed(f"{len(body)} bytes in too many fields")
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise Malformed(f"not a {kind.DESCRIPTOR.name}: {error}") from None

    # Calls of an edge to the cloud.

    def check_in(self, asked: pb.CheckIn, now: float) -> CheckIn:
        """Return the request in a message; impossible costs are the core's to refuse."""
        costs = asked.costs
        return CheckIn(
            asked.node,
            whole(asked.request_id),
            EdgeCosts(costs.compute_s, costs.send_s, costs.down_s, costs.train_s, costs.up_s),
            now,
        )

    def upload(self, sent: pb.Upload, model: Weights, now: float) -> Upload:
        """Return the upload in a message, with its model."""
        return Upload(
            sent.node,
            whole(sent.lease_id),
            model,
            whole(sent.examples),
            self._next(sent, now),
            now,
            sent.steps,
            self.arrays(sent.extra),
        )

    def progress(self, sent: pb.Lease, now: float) -> Progress:
        """Return the question in a message."""
        return Progress(sent.node, whole(sent.lease_id), now)

    def abandon(self, sent: pb.Lease, now: float) -> Abandon:
        """Return the abandoned lease in a message."""
        return Abandon(sent.node, whole(sent.lease_id), self._next(sent, now), now)

    measured = staticmethod(read_measured)

    @staticmethod
    def ask(asked: CheckIn, terms: Asking, wait_s: float) -> bytes:
        """Return the bytes of a request."""
        return _asked(asked, terms, wait_s).SerializeToString()

    @staticmethod
    def lease(last: Abandon | Progress, rounds: Iterable[Measured], terms: Asking) -> bytes:
        """Return the bytes of a call that gives a lease back, or asks whether to go on."""
        check_in = last.check_in if isinstance(last, Abandon) else None
        return pb.Lease(
            node=last.edge,
            lease_id=last.lease_id,
            rounds=measured_messages(rounds),
            check_in=None if check_in is None else _asked(check_in, terms, 0.0),
        ).SerializeToString()

    @staticmethod
    def work(
        last: Upload,
        model: bytes,
        rounds: Iterable[Measured],
        terms: Asking,
        metrics: Mapping[str, float] | None = None,
    ) -> bytes:
        """Return the bytes of an upload."""
        return pb.Upload(
            node=last.edge,
            lease_id=last.lease_id,
            model=model,
            examples=last.examples,
            rounds=measured_messages(rounds),
            check_in=None if last.check_in is None else _asked(last.check_in, terms, 0.0),
            steps=last.steps,
            extra=array_messages(last.extra),
            metrics=metric_messages(metrics or {}),
        ).SerializeToString()

    @staticmethod
    def answer(
        answers: Iterable[CloudAnswer],
        *,
        model: tuple[int, bytes] = (0, b""),
        finished: bool = False,
        held_s: float = 0.0,
    ) -> bytes:
        """Return the bytes of the cloud's answer to one call; `model` is that of a grant in it."""
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
                            form=model[0],
                            model=model[1],
                            extra=array_messages(answer.extra),
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

    def answers(
        self, edge: int, lease_id: int, told: pb.Answer, model: Weights | None, now: float
    ) -> list[CloudAnswer]:
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
        if told.HasField("grant") and model is not None:
            given = told.grant
            found.append(
                Grant(
                    edge,
                    given.request_id,
                    given.lease_id,
                    given.base_version,
                    given.threshold,
                    model,
                    now,
                    self.arrays(given.extra),
                )
            )
        if told.HasField("refuse"):
            no = told.refuse
            if no.reason not in ("refused", "waited", "costs", "expired"):
                raise Malformed(f"a refusal for {no.reason[:20]!r}")
            found.append(Refuse(edge, no.request_id, no.reason, seconds(no.retry_after_s), now))  # type: ignore[arg-type]  # checked above
        return found

    # Calls of a client to its edge.

    @staticmethod
    def task(opened: Round, work: Assignment, model: bytes, extra: Sequence[pb.Array]) -> pb.Task:
        """Return one client's share of an edge round."""
        return pb.Task(
            present=True,
            lease_id=opened.lease_id,
            round=opened.index,
            first_step=work.first_step,
            steps=work.steps,
            lr=work.lr,
            seed=work.seed,
            model=model,
            extra=extra,
        )

    def update(self, sent: pb.Deliver, model: Weights, now: float) -> ClientUpdate:
        """Return a client's update in a message, with its model."""
        return ClientUpdate(
            sent.node,
            whole(sent.lease_id),
            sent.round,
            model,
            whole(sent.examples),
            sent.loss,
            sent.compute_s,
            now,
            sent.steps,
            self.arrays(sent.extra),
        )

    @staticmethod
    def arrays(sent: Sequence[pb.Array]) -> dict[str, Weights]:
        """Return the arrays beside a model, by name."""
        if len(sent) > MOST_NAMES:
            raise Malformed(f"{len(sent)} arrays, at most {MOST_NAMES} are allowed")
        found: dict[str, Weights] = {}
        for each in sent:
            if not 0 < len(each.name) <= LONGEST_NAME or each.name in found:
                raise Malformed(f"an array of name {each.name[:20]!r}, too long or there already")
            # No dimension of 0: a product of 0 would let the others be anything.
            if len(each.shape) > 8 or 0 in each.shape or 4 * math.prod(each.shape) != len(each.values):
                raise Malformed(f"an array of {len(each.values)} bytes, its shape says otherwise")
            values = np.frombuffer(each.values, "<f4").astype(np.float32)
            found[each.name] = values.reshape(tuple(each.shape))
        return found

    @staticmethod
    def metrics(sent: Sequence[pb.Metric]) -> dict[str, float]:
        """Return the metrics of a call; values that are not finite are left out."""
        if len(sent) > MOST_NAMES:
            raise Malformed(f"{len(sent)} metrics, at most {MOST_NAMES} are allowed")
        return {
            each.name: each.value
            for each in sent
            if 0 < len(each.name) <= LONGEST_NAME and math.isfinite(each.value)
        }

    def _next(self, sent: pb.Upload | pb.Lease, now: float) -> CheckIn | None:
        if not sent.HasField("check_in"):
            return None
        if sent.check_in.node != sent.node:
            raise Malformed(f"node {sent.node} checks in for node {sent.check_in.node}")
        return self.check_in(sent.check_in, now)


def array_messages(extra: Extra) -> list[pb.Array]:
    """Return arrays as they travel."""
    return [
        pb.Array(name=name, shape=array.shape, values=np.ascontiguousarray(array, "<f4").tobytes())
        for name, array in extra.items()
    ]


def metric_messages(metrics: Mapping[str, float]) -> list[pb.Metric]:
    """Return metrics as they travel."""
    return [pb.Metric(name=name, value=value) for name, value in metrics.items()]


def _asked(asked: CheckIn, terms: Asking, wait_s: float) -> pb.CheckIn:
    return pb.CheckIn(
        node=asked.edge,
        request_id=asked.request_id,
        costs=pb.Costs(**asked.costs._asdict()),
        wait_s=wait_s,
        **terms._asdict(),
    )
