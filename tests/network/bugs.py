"""Clouds with a bug put in on purpose: schedules of faults must find each of them."""

from hiflash.messages import Expire
from hiflash.serve.cloud import CloudService
from hiflash.serve.kernel import Kernel
from network.federation import Plan, run_plan

SOON = 500  # schedules within which a bug must be found


class _Hasty(Kernel):
    """Lets the answers of a batch go, and commits its rows then."""

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


class RepliesBeforeTheCommit(CloudService):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.kernel.__class__ = _Hasty


class ForgetsVerdicts(CloudService):
    def _tell(self, effects):
        super()._tell(effects)
        self.live.cloud.verdicts.clear()


class LeaseOutlivesItsExpiry(CloudService):
    def __init__(self, *parts):
        super().__init__(*parts)
        cloud = self.live.cloud
        handle = cloud.handle

        def revived(event):
            lease = cloud.leases.get(event.lease_id) if isinstance(event, Expire) else None
            effects = handle(event)
            if lease is not None:
                cloud.leases[lease.lease_id] = lease
            return effects

        cloud.handle = revived


BUGS = (RepliesBeforeTheCommit, ForgetsVerdicts, LeaseOutlivesItsExpiry)


def schedules_to_find(broken):
    """Return how many schedules it takes until something notices a bug, and what; None if nothing does.

    A failed check counts, or a service that breaks while it runs. One that does not even start does not.
    """
    for seed in range(SOON):
        try:
            run_plan(Plan.drawn(seed), broken)
        except AssertionError as noticed:
            return seed + 1, str(noticed)
        except ExceptionGroup as group:
            return seed + 1, repr(group.exceptions[0])
    return None
