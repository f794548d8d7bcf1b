"""The shipped service and agents under simulated networks, disks and crashes: one seed is one schedule."""

import dataclasses

import pytest

from hiflash.messages import Expire
from hiflash.serve.cloud import CloudService
from hiflash.serve.kernel import Kernel
from network.federation import Plan, run_plan
from network.net import Faults

SEEDS = 240
SOON = 500  # schedules within which a bug that was put in on purpose must be found


@pytest.mark.parametrize("part", range(8))
def test_no_schedule_of_faults_breaks_what_must_hold(part):
    for seed in range(part, SEEDS, 8):
        run_plan(Plan.drawn(seed))


@pytest.mark.parametrize("seed", [1, 8, 30])
def test_a_seed_gives_the_same_trace_twice(seed):
    assert run_plan(Plan.drawn(seed)) == run_plan(Plan.drawn(seed))


def test_the_cloud_may_be_killed_at_any_time_without_changing_a_synchronous_run():
    calm = Plan(seed=5, schedule="sync", lease_s=1e6, communications=20)
    undisturbed = run_plan(calm).digest
    for kills in range(1, 26, 4):
        assert run_plan(dataclasses.replace(calm, cloud_kills=kills)).digest == undisturbed


def test_doubled_and_reordered_calls_do_not_change_a_synchronous_run():
    calm = Plan(seed=6, schedule="sync", lease_s=1e6, communications=20)
    rough = dataclasses.replace(calm, faults=Faults(doubled=0.5, cut=0.2, slow=0.3))
    assert run_plan(rough).digest == run_plan(calm).digest


@pytest.mark.parametrize("seed", [7, 25, 26, 33])
def test_nobody_waits_for_a_poll_to_time_out(seed):
    """An answer that came in the same batch as the question was once missed, for 20 s in these schedules."""
    calm = Plan(seed=seed, edges=3, clients=1, schedule="sync", communications=60)
    assert run_plan(calm).took_s < 15


class RepliesBeforeTheCommit(CloudService):
    def __init__(self, live, wire, terms, store, tests):
        super().__init__(live, wire, terms, store, tests)

        class Hasty(Kernel):
            async def _batch(self):
                commit = self.store.commit
                rows_later = []

                async def at_once(rows):
                    rows_later.extend(rows)

                self.store.commit = at_once
                try:
                    await super()._batch()
                finally:
                    self.store.commit = commit
                if rows_later:
                    await commit(rows_later)

        self.kernel.__class__ = Hasty


class ForgetsVerdicts(CloudService):
    def _tell(self, effects):
        super()._tell(effects)
        self.live.cloud.verdicts.clear()


class LeaseOutlivesItsExpiry(CloudService):
    def __init__(self, live, wire, terms, store, tests):
        super().__init__(live, wire, terms, store, tests)
        handle = live.cloud.handle

        def revived(event):
            lease = live.cloud.leases.get(event.lease_id) if isinstance(event, Expire) else None
            effects = handle(event)
            if lease is not None:
                live.cloud.leases[lease.lease_id] = lease
            return effects

        live.cloud.handle = revived


@pytest.mark.parametrize("broken", [RepliesBeforeTheCommit, ForgetsVerdicts, LeaseOutlivesItsExpiry])
def test_a_bug_put_in_on_purpose_is_found_soon(broken):
    for seed in range(SOON):
        try:
            run_plan(Plan.drawn(seed), broken)
        except Exception:  # whatever notices it
            return
    pytest.fail(f"{SOON} schedules did not notice that the cloud is broken")
