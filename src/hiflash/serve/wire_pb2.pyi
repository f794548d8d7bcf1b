from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Array(_message.Message):
    __slots__ = ("name", "shape", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    values: bytes
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "node", "config_digest", "spec_digest", "address", "examples", "steps", "compute_s", "run")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    node: int
    config_digest: str
    spec_digest: str
    address: str
    examples: int
    steps: int
    compute_s: float
    run: str
    def __init__(self, protocol: _Optional[int] = ..., node: _Optional[int] = ..., config_digest: _Optional[str] = ..., spec_digest: _Optional[str] = ..., address: _Optional[str] = ..., examples: _Optional[int] = ..., steps: _Optional[int] = ..., compute_s: _Optional[float] = ..., run: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("request_id", "clients", "finished", "run")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    clients: _containers.RepeatedScalarFieldContainer[int]
    finished: bool
    run: str
    def __init__(self, request_id: _Optional[int] = ..., clients: _Optional[_Iterable[int]] = ..., finished: bool = ..., run: _Optional[str] = ...) -> None: ...

class Costs(_message.Message):
    __slots__ = ("compute_s", "send_s", "down_s", "train_s", "up_s")
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    SEND_S_FIELD_NUMBER: _ClassVar[int]
    DOWN_S_FIELD_NUMBER: _ClassVar[int]
    TRAIN_S_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    compute_s: float
    send_s: float
    down_s: float
    train_s: float
    up_s: float
    def __init__(self, compute_s: _Optional[float] = ..., send_s: _Optional[float] = ..., down_s: _Optional[float] = ..., train_s: _Optional[float] = ..., up_s: _Optional[float] = ...) -> None: ...

class CheckIn(_message.Message):
    __slots__ = ("node", "request_id", "costs", "rounds", "wait_s", "examples", "holds")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    node: int
    request_id: int
    costs: Costs
    rounds: int
    wait_s: float
    examples: int
    holds: int
    def __init__(self, node: _Optional[int] = ..., request_id: _Optional[int] = ..., costs: _Optional[_Union[Costs, _Mapping]] = ..., rounds: _Optional[int] = ..., wait_s: _Optional[float] = ..., examples: _Optional[int] = ..., holds: _Optional[int] = ...) -> None: ...

class Measured(_message.Message):
    __slots__ = ("asked", "delivered", "steps", "compute_s", "send_s", "round_s", "waiting_s", "counted", "lost", "clipped", "unopened")
    ASKED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    SEND_S_FIELD_NUMBER: _ClassVar[int]
    ROUND_S_FIELD_NUMBER: _ClassVar[int]
    WAITING_S_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    CLIPPED_FIELD_NUMBER: _ClassVar[int]
    UNOPENED_FIELD_NUMBER: _ClassVar[int]
    asked: int
    delivered: int
    steps: int
    compute_s: float
    send_s: float
    round_s: float
    waiting_s: float
    counted: _containers.RepeatedScalarFieldContainer[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    clipped: int
    unopened: bool
    def __init__(self, asked: _Optional[int] = ..., delivered: _Optional[int] = ..., steps: _Optional[int] = ..., compute_s: _Optional[float] = ..., send_s: _Optional[float] = ..., round_s: _Optional[float] = ..., waiting_s: _Optional[float] = ..., counted: _Optional[_Iterable[int]] = ..., lost: _Optional[_Iterable[int]] = ..., clipped: _Optional[int] = ..., unopened: bool = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("node", "lease_id", "model", "examples", "rounds", "check_in", "steps", "extra", "metrics")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    CHECK_IN_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    node: int
    lease_id: int
    model: bytes
    examples: int
    rounds: _containers.RepeatedCompositeFieldContainer[Measured]
    check_in: CheckIn
    steps: float
    extra: _containers.RepeatedCompositeFieldContainer[Array]
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, node: _Optional[int] = ..., lease_id: _Optional[int] = ..., model: _Optional[bytes] = ..., examples: _Optional[int] = ..., rounds: _Optional[_Iterable[_Union[Measured, _Mapping]]] = ..., check_in: _Optional[_Union[CheckIn, _Mapping]] = ..., steps: _Optional[float] = ..., extra: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("node", "lease_id", "rounds", "check_in")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    CHECK_IN_FIELD_NUMBER: _ClassVar[int]
    node: int
    lease_id: int
    rounds: _containers.RepeatedCompositeFieldContainer[Measured]
    check_in: CheckIn
    def __init__(self, node: _Optional[int] = ..., lease_id: _Optional[int] = ..., rounds: _Optional[_Iterable[_Union[Measured, _Mapping]]] = ..., check_in: _Optional[_Union[CheckIn, _Mapping]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("request_id", "lease_id", "base_version", "threshold", "model", "form", "extra")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    lease_id: int
    base_version: int
    threshold: float
    model: bytes
    form: int
    extra: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, request_id: _Optional[int] = ..., lease_id: _Optional[int] = ..., base_version: _Optional[int] = ..., threshold: _Optional[float] = ..., model: _Optional[bytes] = ..., form: _Optional[int] = ..., extra: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class Refuse(_message.Message):
    __slots__ = ("request_id", "reason", "retry_after_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    reason: str
    retry_after_s: float
    def __init__(self, request_id: _Optional[int] = ..., reason: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("lease_id", "status", "staleness", "version", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    status: str
    staleness: int
    version: int
    reason: str
    def __init__(self, lease_id: _Optional[int] = ..., status: _Optional[str] = ..., staleness: _Optional[int] = ..., version: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("grant", "refuse", "verdict", "proceed", "cancel", "finished", "held_s")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PROCEED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    refuse: Refuse
    verdict: Verdict
    proceed: bool
    cancel: bool
    finished: bool
    held_s: float
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ..., refuse: _Optional[_Union[Refuse, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., proceed: bool = ..., cancel: bool = ..., finished: bool = ..., held_s: _Optional[float] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("node", "lease_id", "round")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    node: int
    lease_id: int
    round: int
    def __init__(self, node: _Optional[int] = ..., lease_id: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("edge", "address", "finished", "settled", "run")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    edge: int
    address: str
    finished: bool
    settled: int
    run: str
    def __init__(self, edge: _Optional[int] = ..., address: _Optional[str] = ..., finished: bool = ..., settled: _Optional[int] = ..., run: _Optional[str] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("node", "wait_s", "lease_id", "round")
    NODE_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    node: int
    wait_s: float
    lease_id: int
    round: int
    def __init__(self, node: _Optional[int] = ..., wait_s: _Optional[float] = ..., lease_id: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("present", "lease_id", "round", "first_step", "steps", "lr", "seed", "model", "finished", "extra", "settled", "sum")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LR_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    present: bool
    lease_id: int
    round: int
    first_step: int
    steps: int
    lr: float
    seed: int
    model: bytes
    finished: bool
    extra: _containers.RepeatedCompositeFieldContainer[Array]
    settled: int
    sum: SumTerms
    def __init__(self, present: bool = ..., lease_id: _Optional[int] = ..., round: _Optional[int] = ..., first_step: _Optional[int] = ..., steps: _Optional[int] = ..., lr: _Optional[float] = ..., seed: _Optional[int] = ..., model: _Optional[bytes] = ..., finished: bool = ..., extra: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., settled: _Optional[int] = ..., sum: _Optional[_Union[SumTerms, _Mapping]] = ...) -> None: ...

class SumTerms(_message.Message):
    __slots__ = ("edge", "clients", "bound", "most_examples")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    MOST_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    edge: int
    clients: _containers.RepeatedScalarFieldContainer[int]
    bound: float
    most_examples: int
    def __init__(self, edge: _Optional[int] = ..., clients: _Optional[_Iterable[int]] = ..., bound: _Optional[float] = ..., most_examples: _Optional[int] = ...) -> None: ...

class Advert(_message.Message):
    __slots__ = ("client", "mask_key", "box_key", "commitment", "credential", "signature")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    BOX_KEY_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    client: int
    mask_key: bytes
    box_key: bytes
    commitment: bytes
    credential: bytes
    signature: bytes
    def __init__(self, client: _Optional[int] = ..., mask_key: _Optional[bytes] = ..., box_key: _Optional[bytes] = ..., commitment: _Optional[bytes] = ..., credential: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SealedBox(_message.Message):
    __slots__ = ("client", "sealed", "seed_hash", "key_hash")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SEED_HASH_FIELD_NUMBER: _ClassVar[int]
    KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    client: int
    sealed: bytes
    seed_hash: bytes
    key_hash: bytes
    def __init__(self, client: _Optional[int] = ..., sealed: _Optional[bytes] = ..., seed_hash: _Optional[bytes] = ..., key_hash: _Optional[bytes] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("client", "value")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    client: int
    value: bytes
    def __init__(self, client: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class Sum(_message.Message):
    __slots__ = ("node", "lease_id", "round", "phase", "wait_s", "refused", "advert", "boxes", "masked", "tags", "seeds", "keys", "compute_s")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ADVERT_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    node: int
    lease_id: int
    round: int
    phase: int
    wait_s: float
    refused: str
    advert: Advert
    boxes: _containers.RepeatedCompositeFieldContainer[SealedBox]
    masked: bytes
    tags: _containers.RepeatedCompositeFieldContainer[Share]
    seeds: _containers.RepeatedCompositeFieldContainer[Share]
    keys: _containers.RepeatedCompositeFieldContainer[Share]
    compute_s: float
    def __init__(self, node: _Optional[int] = ..., lease_id: _Optional[int] = ..., round: _Optional[int] = ..., phase: _Optional[int] = ..., wait_s: _Optional[float] = ..., refused: _Optional[str] = ..., advert: _Optional[_Union[Advert, _Mapping]] = ..., boxes: _Optional[_Iterable[_Union[SealedBox, _Mapping]]] = ..., masked: _Optional[bytes] = ..., tags: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., seeds: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., compute_s: _Optional[float] = ...) -> None: ...

class SumTold(_message.Message):
    __slots__ = ("present", "ended", "finished", "roster", "boxes", "survivors", "tags", "phase")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    present: bool
    ended: bool
    finished: bool
    roster: _containers.RepeatedCompositeFieldContainer[Advert]
    boxes: _containers.RepeatedCompositeFieldContainer[SealedBox]
    survivors: _containers.RepeatedScalarFieldContainer[int]
    tags: _containers.RepeatedCompositeFieldContainer[Share]
    phase: int
    def __init__(self, present: bool = ..., ended: bool = ..., finished: bool = ..., roster: _Optional[_Iterable[_Union[Advert, _Mapping]]] = ..., boxes: _Optional[_Iterable[_Union[SealedBox, _Mapping]]] = ..., survivors: _Optional[_Iterable[int]] = ..., tags: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., phase: _Optional[int] = ...) -> None: ...

class Deliver(_message.Message):
    __slots__ = ("node", "lease_id", "round", "model", "examples", "loss", "compute_s", "steps", "extra", "metrics")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    node: int
    lease_id: int
    round: int
    model: bytes
    examples: int
    loss: float
    compute_s: float
    steps: float
    extra: _containers.RepeatedCompositeFieldContainer[Array]
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, node: _Optional[int] = ..., lease_id: _Optional[int] = ..., round: _Optional[int] = ..., model: _Optional[bytes] = ..., examples: _Optional[int] = ..., loss: _Optional[float] = ..., compute_s: _Optional[float] = ..., steps: _Optional[float] = ..., extra: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Delivered(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: bool
    def __init__(self, taken: bool = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("node", "address", "ended")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    node: int
    address: str
    ended: bool
    def __init__(self, node: _Optional[int] = ..., address: _Optional[str] = ..., ended: bool = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("finished",)
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    finished: bool
    def __init__(self, finished: bool = ...) -> None: ...
