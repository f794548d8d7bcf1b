"""What holds for every schedule: leases, checks on uploads, repeats, forgeries, expiry."""

import copy
import math

import numpy as np
import pytest

from hiflash.core import cloud as cloud_module
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.mixing import Delta, Interpolate
from hiflash.core.selection import UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.weighting import Exponential
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Abandon,
    CheckIn,
    ClusterChange,
    EdgeCosts,
    Expire,
    Expired,
    Grant,
    Hello,
    Proceed,
    Progress,
    Refuse,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
    Welcome,
)

COSTS = EdgeCosts(compute_s=1.0, send_s=1.0, down_s=1.0, train_s=8.0, up_s=1.0)
EXAMPLES = {0: 100, 1: 100, 2: 100}


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def make(threshold: float = math.inf, mixing=None, **options) -> AsyncCloud:
    """Return an asynchronous cloud that answers check-ins at once and takes every edge model as it is."""
    options = {"enforce": "discard", "slot_s": 0.05, "slotted": False} | options
    return AsyncCloud(
        f32(0, 0),
        EXAMPLES,
        mixing=mixing or Interpolate(1.0, Exponential(1.0)),
        policy=FixedThreshold(threshold),
        seed=0,
        **options,
    )


def check_in(edge: int, request: int = 1, now: float = 0.0) -> CheckIn:
    return CheckIn(edge, request, COSTS, now)


def grant(cloud, edge: int = 0, request: int = 1, now: float = 0.0) -> Grant:
    (answer,) = cloud.handle(check_in(edge, request, now))
    assert isinstance(answer, Grant)
    return answer


def upload(edge: int, lease_id: int, weights=None, examples=50, now: float = 1.0, ask=None) -> Upload:
    return Upload(edge, lease_id, f32(1, 2) if weights is None else weights, examples, ask, now)


def state_of(cloud) -> dict:
    return copy.deepcopy(cloud.snapshot())


def same_state(before: dict, cloud) -> bool:
    return repr(before) == repr(cloud.snapshot())


def test_a_grant_carries_the_model_its_version_and_the_threshold():
    cloud = make(threshold=5)
    given = grant(cloud, edge=1, request=4, now=2.5)
    assert (given.edge, given.request_id, given.lease_id) == (1, 4, 1)
    assert (given.base_version, given.threshold, given.now) == (0, 5, 2.5)
    assert given.weights.tolist() == [0.0, 0.0]


def test_an_upload_in_time_is_applied_and_raises_the_version():
    cloud = make()
    given = grant(cloud)
    (verdict,) = cloud.handle(upload(0, given.lease_id, now=9.0))
    assert verdict == Verdict(0, given.lease_id, "applied", 0, 1, "", 9.0)
    assert (cloud.version, cloud.weights.tolist(), cloud.leases) == (1, [1.0, 2.0], {})


def test_staleness_counts_the_versions_between_download_and_receipt():
    cloud = make()
    first, second, third = (grant(cloud, edge) for edge in (0, 1, 2))
    verdicts = [cloud.handle(upload(g.edge, g.lease_id))[0] for g in (third, first, second)]
    assert [v.staleness for v in verdicts] == [0, 1, 2]
    assert [v.version for v in verdicts] == [1, 2, 3]


def test_upload_over_threshold_leaves_weights_unchanged():
    cloud = make(threshold=0)
    first, second = grant(cloud, 0), grant(cloud, 1)
    cloud.handle(upload(0, first.lease_id, f32(1, 2)))
    (verdict,) = cloud.handle(upload(1, second.lease_id, f32(7, 7)))
    assert (verdict.status, verdict.reason, verdict.staleness, verdict.version) == ("rejected", "stale", 1, 1)
    assert (cloud.version, cloud.weights.tolist()) == (1, [1.0, 2.0])
    assert cloud.leases == {}


def test_upload_exactly_at_its_threshold_is_applied():
    cloud = make(threshold=1)
    first, second = grant(cloud, 0), grant(cloud, 1)
    cloud.handle(upload(0, first.lease_id))
    assert cloud.handle(upload(1, second.lease_id))[0].status == "applied"


def test_an_engine_can_ask_whether_an_upload_is_known_to_be_refused():
    cloud = make(threshold=0)
    first, second = grant(cloud, 0), grant(cloud, 1)
    assert not cloud.stale(second.lease_id)
    cloud.handle(upload(0, first.lease_id))
    assert cloud.stale(second.lease_id)
    assert cloud.stale(first.lease_id)  # used up
    assert cloud.stale(999)


def test_a_stale_upload_is_refused_without_looking_at_its_model():
    cloud = make(threshold=0)
    first, second = grant(cloud, 0), grant(cloud, 1)
    cloud.handle(upload(0, first.lease_id))
    assert cloud.handle(upload(1, second.lease_id, weights=object()))[0].reason == "stale"


def test_a_repeated_upload_gets_the_first_verdict_and_is_applied_once():
    cloud = make()
    given = grant(cloud)
    (first,) = cloud.handle(upload(0, given.lease_id, f32(1, 2), now=1.0))
    before = state_of(cloud)
    for now in (1.0, 2.0, 50.0):
        (again,) = cloud.handle(upload(0, given.lease_id, f32(9, 9), now=now))
        assert again is first
    assert same_state(before, cloud)
    assert cloud.version == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"weights": f32(np.nan, 0)}, "not finite"),
        ({"examples": 0}, "examples"),
        ({"weights": f32(1)}, "shape"),
    ],
)
def test_a_refused_upload_stays_refused_when_it_comes_again_repaired(bad, reason):
    cloud = make()
    given = grant(cloud)
    (first,) = cloud.handle(upload(0, given.lease_id, **bad))
    assert (first.status, first.reason) == ("rejected", reason)
    assert cloud.handle(upload(0, given.lease_id, f32(1, 2))) == [first]
    assert cloud.version == 0


def test_an_upload_with_a_check_in_is_answered_with_verdict_and_next_grant():
    cloud = make()
    given = grant(cloud)
    verdict, following = cloud.handle(upload(0, given.lease_id, now=5.0, ask=check_in(0, 2, now=0.0)))
    assert verdict.status == "applied"
    assert (following.request_id, following.base_version, following.lease_id) == (2, 1, 2)
    assert following.now == 5.0  # the check-in arrives with the upload, whenever it was written


def test_a_repeated_upload_with_a_check_in_gets_verdict_and_grant_again():
    cloud = make()
    given = grant(cloud)
    message = upload(0, given.lease_id, now=5.0, ask=check_in(0, 2))
    verdict, following = cloud.handle(message)
    before = state_of(cloud)
    verdict_again, following_again = cloud.handle(message)
    assert verdict_again is verdict
    assert (following_again.lease_id, following_again.now) == (following.lease_id, following.now)
    assert following_again.weights is following.weights
    assert same_state(before, cloud)


def test_a_check_in_hidden_in_another_edges_upload_is_ignored():
    cloud = make()
    given = grant(cloud, 0)
    effects = cloud.handle(upload(0, given.lease_id, ask=check_in(1, 1)))
    assert [type(effect) for effect in effects] == [Verdict]
    assert 1 not in cloud.requests


def test_an_edge_outside_the_federation_is_an_error():
    with pytest.raises(ProtocolError, match="edge 7 is not part of this federation"):
        make().handle(check_in(7))


def test_an_event_of_an_unknown_kind_is_an_error():
    cloud = make()
    grant(cloud, now=0.0)
    before = state_of(cloud)
    with pytest.raises(AssertionError, match="Proceed"):
        cloud.handle(Proceed(0, 1, 20.0))
    assert same_state(before, cloud)


@pytest.mark.parametrize(
    "event", [check_in(7, now=20.0), Hello(7, 20.0), ClusterChange(7, 5, 20.0),
              upload(7, 1, now=20.0, ask=check_in(7)), Abandon(7, 1, check_in(7), 20.0)],
    ids=lambda event: type(event).__name__,
)  # fmt: skip
def test_a_stranger_changes_nothing(event):
    cloud = make()
    grant(cloud, now=0.0)
    before = state_of(cloud)
    with pytest.raises(ProtocolError, match="edge 7 is not part of this federation"):
        cloud.handle(event)
    assert same_state(before, cloud)


def test_a_refusal_that_got_lost_is_given_again():
    cloud = make(threshold=-1)
    (first,) = cloud.handle(check_in(0, 1, now=1.0))
    assert (first.reason, first.request_id) == ("refused", 1)
    before = state_of(cloud)
    assert cloud.handle(check_in(0, 1, now=2.0)) == [first._replace(now=2.0)]
    assert same_state(before, cloud)
    (second,) = cloud.handle(check_in(0, 2, now=3.0))
    assert second.request_id == 2
    assert cloud.handle(check_in(0, 1, now=4.0)) == []  # older than the last one: nobody waits for it


def test_an_edge_that_restarts_learns_its_last_request_and_is_answered_after_it():
    cloud = make()
    given = grant(cloud, request=5)
    cloud.handle(upload(0, given.lease_id))
    assert cloud.handle(Hello(0, 3.0)) == [Welcome(0, 5, 3.0)]
    assert cloud.handle(Hello(1, 3.0)) == [Welcome(1, 0, 3.0)]
    assert grant(cloud, request=6, now=4.0).request_id == 6


def test_costs_that_no_lease_can_have_do_not_end_the_lease_that_is_out():
    cloud = make()
    given = grant(cloud, request=1)
    wrong = check_in(0, 2)._replace(costs=EdgeCosts(1.0, 1.0, math.nan, 1.0, 1.0))
    (refusal,) = cloud.handle(wrong)
    assert (refusal.reason, list(cloud.leases)) == ("costs", [given.lease_id])


def test_a_repeated_check_in_gets_the_same_grant():
    cloud = make()
    first = grant(cloud, request=3, now=1.0)
    before = state_of(cloud)
    again = grant(cloud, request=3, now=8.0)
    assert (again.lease_id, again.now, again.base_version) == (first.lease_id, 1.0, 0)
    assert same_state(before, cloud)


def test_a_replayed_check_in_changes_nothing():
    cloud = make()
    given = grant(cloud, request=1)
    cloud.handle(upload(0, given.lease_id))
    given = grant(cloud, request=2)
    before = state_of(cloud)
    assert cloud.handle(check_in(0, 1, now=9.0)) == []  # old, while a newer lease is out
    assert same_state(before, cloud)
    cloud.handle(upload(0, given.lease_id))
    before = state_of(cloud)
    for request in (0, 1, -5):
        assert cloud.handle(check_in(0, request, now=10.0)) == []
    # The lease of request 2 is used up. Whoever still asks for it hears so, and nothing changes.
    assert cloud.handle(check_in(0, 2, now=10.0)) == [Refuse(0, 2, "expired", 0.0, 10.0)]
    assert same_state(before, cloud)


def test_an_edge_whose_grant_got_lost_until_it_expired_is_told_to_ask_anew():
    cloud = make()
    lost = grant(cloud, request=1)
    cloud.handle(Expire(lost.lease_id, 5.0))
    assert cloud.handle(check_in(0, 1, now=6.0)) == [Refuse(0, 1, "expired", 0.0, 6.0)]
    assert grant(cloud, request=2, now=7.0).lease_id == 2


def test_a_newer_check_in_supersedes_the_lease_of_an_edge_that_restarted():
    cloud = make()
    first = grant(cloud, request=1)
    expired, second = cloud.handle(check_in(0, 2, now=4.0))
    assert expired == Expired(0, first.lease_id, "superseded", 4.0)
    assert list(cloud.leases) == [second.lease_id]
    (late,) = cloud.handle(upload(0, first.lease_id))
    assert (late.status, late.reason) == ("rejected", "superseded")
    assert cloud.handle(upload(0, second.lease_id))[0].status == "applied"


def test_an_edge_has_at_most_one_lease():
    cloud = make()
    for request in range(1, 20):
        cloud.handle(check_in(0, request))
        assert sum(lease.edge == 0 for lease in cloud.leases.values()) == 1


# a dead edge is forgotten.


def test_a_lease_expires_and_its_late_upload_is_told_so():
    cloud = make()
    given = grant(cloud, now=0.0)
    (expired,) = cloud.handle(Expire(given.lease_id, 10.0))
    assert expired == Expired(0, given.lease_id, "expired", 10.0)
    assert cloud.leases == {}
    (late,) = cloud.handle(upload(0, given.lease_id, now=12.0))
    assert (late.status, late.reason, late.now) == ("rejected", "expired", 10.0)
    assert (cloud.version, cloud.weights.tolist()) == (0, [0.0, 0.0])
    assert grant(cloud, request=2, now=13.0).lease_id == 2  # it can check in again


def test_only_the_named_lease_expires_and_only_once():
    cloud = make()
    first, second = grant(cloud, 0, now=0.0), grant(cloud, 1, now=5.0)
    assert [effect.lease_id for effect in cloud.handle(Expire(first.lease_id, 14.9))] == [first.lease_id]
    assert list(cloud.leases) == [second.lease_id]
    before = state_of(cloud)
    assert cloud.handle(Expire(first.lease_id, 15.0)) == []  # it has ended already
    assert cloud.handle(Expire(77, 15.0)) == []
    assert same_state(before, cloud)


def test_an_abandoned_lease_is_ended_and_the_edge_may_ask_again():
    cloud = make()
    given = grant(cloud)
    expired, following = cloud.handle(Abandon(0, given.lease_id, check_in(0, 2), 6.0))
    assert expired == Expired(0, given.lease_id, "abandoned", 6.0)
    assert (following.lease_id, following.now) == (2, 6.0)
    assert cloud.handle(upload(0, given.lease_id))[0].reason == "abandoned"
    assert cloud.version == 0


def test_a_repeated_abandon_changes_nothing_but_gives_the_grant_again():
    cloud = make()
    given = grant(cloud)
    message = Abandon(0, given.lease_id, check_in(0, 2), 6.0)
    _, following = cloud.handle(message)
    before = state_of(cloud)
    (again,) = cloud.handle(message)
    assert again.lease_id == following.lease_id
    assert same_state(before, cloud)


# identity is bound.


def test_a_forged_upload_leaves_the_lease_usable():
    cloud = make()
    given = grant(cloud, 1)
    before = state_of(cloud)
    (verdict,) = cloud.handle(upload(0, given.lease_id, f32(66, 66)))
    assert (verdict.edge, verdict.status, verdict.reason) == (0, "rejected", "no such lease")
    assert same_state(before, cloud)
    assert cloud.handle(upload(1, given.lease_id, f32(1, 2)))[0].status == "applied"
    assert cloud.weights.tolist() == [1.0, 2.0]


def test_a_forged_upload_learns_nothing_of_another_edges_lease_or_verdict():
    cloud = make()
    open_lease, used = grant(cloud, 1), grant(cloud, 2)
    cloud.handle(upload(2, used.lease_id))
    answers = [cloud.handle(upload(0, lease_id))[0] for lease_id in (open_lease.lease_id, used.lease_id, 999)]
    seen = {(v.edge, v.status, v.staleness, v.version, v.reason, v.now) for v in answers}
    assert seen == {(0, "rejected", 0, 1, "no such lease", 1.0)}  # one answer for all three


def test_a_forged_upload_does_not_hide_the_owners_verdict():
    cloud = make()
    given = grant(cloud, 1)
    (verdict,) = cloud.handle(upload(1, given.lease_id))
    cloud.handle(upload(0, given.lease_id))
    assert cloud.handle(upload(1, given.lease_id)) == [verdict]


def test_an_upload_for_a_lease_that_never_was_is_refused_and_not_remembered():
    cloud = make()
    for lease_id in range(1000, 1100):
        assert cloud.handle(upload(0, lease_id))[0].reason == "no such lease"
    assert cloud.verdicts == {}
    given = grant(cloud)
    assert cloud.handle(upload(0, given.lease_id))[0].status == "applied"


def test_nobody_can_abandon_another_edges_lease():
    cloud = make()
    given = grant(cloud, 1)
    before = state_of(cloud)
    assert cloud.handle(Abandon(0, given.lease_id, None, 1.0)) == []
    assert cloud.handle(Abandon(0, given.lease_id, check_in(1, 2), 1.0)) == []  # nor ask in its name
    assert same_state(before, cloud)


@pytest.mark.parametrize("enforce", ["admit", "discard", "cancel"])
def test_progress_on_anothers_lease_is_answered_like_progress_on_no_lease(enforce):
    cloud = make(enforce=enforce)
    given = grant(cloud, 1)
    before = state_of(cloud)
    foreign = [type(effect) for effect in cloud.handle(Progress(0, given.lease_id, 1.0))]
    unknown = [type(effect) for effect in cloud.handle(Progress(0, 999, 1.0))]
    assert same_state(before, cloud)
    assert foreign == unknown  # a difference tells edge 0 which leases are open


# only finite, norm-bounded updates are mixed.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_never_reaches_the_global_one(value):
    cloud = make()
    given = grant(cloud)
    (verdict,) = cloud.handle(upload(0, given.lease_id, f32(1, value)))
    assert (verdict.status, verdict.reason) == ("rejected", "not finite")
    assert (cloud.version, cloud.weights.tolist()) == (0, [0.0, 0.0])


def test_an_update_within_the_norm_bound_is_applied_and_one_beyond_is_not():
    # |(3, 4) - (0, 0)| = 5
    for bound, status, reason in ((5.0, "applied", ""), (4.999, "rejected", "norm")):
        cloud = make(norm_bound=bound)
        given = grant(cloud)
        (verdict,) = cloud.handle(upload(0, given.lease_id, f32(3, 4)))
        assert (verdict.status, verdict.reason) == (status, reason)


def test_the_norm_is_measured_from_the_model_the_lease_started_from():
    cloud = make(norm_bound=5.0)
    first, second = grant(cloud, 0), grant(cloud, 1)
    cloud.handle(upload(0, first.lease_id, f32(3, 4)))
    # From the base (0, 0) it is 5 away, from the current (3, 4) it would be 10.
    assert cloud.handle(upload(1, second.lease_id, f32(-3, -4)))[0].status == "applied"


def test_a_difference_that_overflows_is_beyond_any_norm_bound():
    cloud = make(norm_bound=1e300)
    given = grant(cloud)
    cloud.handle(upload(0, given.lease_id, f32(-3e38, 0)))
    given = grant(cloud, request=2)
    (verdict,) = cloud.handle(upload(0, given.lease_id, f32(3e38, 0)))  # 6e38 does not fit a float32
    assert (verdict.status, verdict.reason) == ("rejected", "norm")


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_overflow_in_mixing_is_refused(momentum):
    cloud = make(mixing=Delta(1.0, Exponential(1.0), momentum))
    given = grant(cloud)
    assert cloud.handle(upload(0, given.lease_id, f32(-3e38, 0)))[0].status == "applied"
    first, second = grant(cloud, 0, 2), grant(cloud, 1)
    # 3e38 - -3e38 overflows float32
    (verdict,) = cloud.handle(upload(0, first.lease_id, f32(3e38, 0)))
    assert (verdict.status, verdict.reason, verdict.version) == ("rejected", "not finite", 1)
    assert (cloud.version, cloud.weights.tolist()) == (1, f32(-3e38, 0).tolist())
    assert cloud.handle(upload(0, first.lease_id, f32(1, 1))) == [verdict]
    if not momentum:  # -3e38 + (-3e38 - -3e38) is fine again
        assert cloud.handle(upload(1, second.lease_id, f32(-3e38, 0)))[0].status == "applied"


def test_an_overflow_of_the_sum_with_the_current_model_is_refused():
    cloud = make(mixing=Delta(1.0, Exponential(1.0)))
    first, second = grant(cloud, 0), grant(cloud, 1)
    assert cloud.handle(upload(0, first.lease_id, f32(3e38, 0)))[0].status == "applied"
    # The difference from the base is 3e38 again: 3e38 + 3e38 overflows.
    assert cloud.handle(upload(1, second.lease_id, f32(3e38, 0)))[0].reason == "not finite"
    assert np.isfinite(cloud.weights).all()


# examples is a positive integer no larger than declared.


@pytest.mark.parametrize(
    "examples",
    [0, -1, 101, 10**18, float("nan"), 5.0, True, "5", None, np.int64(5), np.float32(5), [5]],
    ids=repr,
)
def test_examples_that_are_not_a_declared_count_are_refused(examples):
    cloud = make()
    given = grant(cloud)
    (verdict,) = cloud.handle(upload(0, given.lease_id, examples=examples))
    assert (verdict.status, verdict.reason) == ("rejected", "examples")
    assert cloud.version == 0


@pytest.mark.parametrize("examples", [1, 100])
def test_examples_up_to_the_declared_count_are_accepted(examples):
    cloud = make()
    given = grant(cloud)
    assert cloud.handle(upload(0, given.lease_id, examples=examples))[0].status == "applied"


@pytest.mark.parametrize(
    "weights",
    [
        np.zeros(3, dtype=np.float32),
        np.zeros((2, 1), dtype=np.float32),
        np.zeros((), dtype=np.float32),
        np.zeros(0, dtype=np.float32),
        np.zeros(2, dtype=np.float64),
        np.zeros(2, dtype=np.int32),
        np.zeros(2, dtype=np.complex64),
        np.zeros(2, dtype=">f4"),
        np.array([None, None], dtype=object),
        [0.0, 0.0],
        None,
        "weights",
    ],
    ids=lambda weights: str(getattr(weights, "dtype", weights)) + str(getattr(weights, "shape", "")),
)
def test_a_model_of_another_shape_or_type_is_refused(weights):
    cloud = make()
    given = grant(cloud)
    (verdict,) = cloud.handle(Upload(0, given.lease_id, weights, 50, None, 1.0))
    assert (verdict.status, verdict.reason) == ("rejected", "shape")
    assert cloud.weights.tolist() == [0.0, 0.0]


def test_the_memory_of_verdicts_is_bounded_and_forgets_the_oldest(monkeypatch):
    monkeypatch.setattr(cloud_module, "VERDICTS_KEPT", 10)
    cloud = make()
    for request in range(1, 31):
        given = grant(cloud, request=request)
        cloud.handle(upload(0, given.lease_id))
    assert list(cloud.verdicts) == list(range(21, 31))
    (forgotten,) = cloud.handle(upload(0, 1, f32(9, 9)))  # still not applied a second time
    assert (forgotten.status, forgotten.reason) == ("rejected", "no such lease")
    assert cloud.version == 30


def test_what_the_cloud_remembers_does_not_grow_with_hostile_traffic():
    cloud = make()
    for k in range(500):
        cloud.handle(upload(k % 3, 10_000 + k))
        cloud.handle(check_in(k % 3, 0))
        cloud.handle(Progress(k % 3, 10_000 + k, 0.0))
        cloud.handle(Abandon(k % 3, 10_000 + k, None, 0.0))
    sizes = [len(getattr(cloud, name)) for name in ("leases", "waiting", "requests", "costs", "verdicts")]
    assert sizes == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_snapshot_stays_as_it_was_when_the_cloud_goes_on(kind):
    cloud = make()
    if kind == "sync":
        cloud = SyncCloud(f32(0, 0), EXAMPLES, selection=UniformSelection(2, 0))
        for edge in range(3):
            cloud.handle(check_in(edge))
        first = cloud.handle(Slot(0, 0.0))[0]
    else:
        first = grant(cloud, 0)
    saved = cloud.snapshot()
    (verdict, *_) = cloud.handle(upload(first.edge, first.lease_id))
    cloud.restore(saved)  # "Go back to a snapshot"
    assert next(iter(cloud.leases), None) == first.lease_id
    assert cloud.handle(upload(first.edge, first.lease_id))[0] == verdict


def test_a_sync_and_an_async_cloud_refuse_alike():
    for make_bad in (
        lambda g: upload(g.edge, g.lease_id, f32(np.nan, 0)),
        lambda g: upload(g.edge, g.lease_id, examples=0),
        lambda g: upload(g.edge, g.lease_id, f32(1)),
    ):
        cloud = SyncCloud(f32(0, 0), EXAMPLES, selection=UniformSelection(1, 0))
        cloud.handle(check_in(0))
        (given,) = cloud.handle(Slot(0, 0.0))
        verdict, closed = cloud.handle(make_bad(given))
        other = make()
        assert verdict.reason == other.handle(make_bad(grant(other)))[0].reason
        assert closed == RoundApplied(0, (), (), 1.0)
