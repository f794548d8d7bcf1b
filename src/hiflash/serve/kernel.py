"""Queue, stamp, handle, commit, release: the one path of every input through a deployed cloud.

Inputs wait in a queue. A batch of them gets its times, goes through the cloud, is committed to the journal,
and only then are its answers released. Inputs that arrive during a commit form the next batch: under load one
sync of the disk serves many inputs. If a commit fails, the process must end: nothing was acknowledged.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from hiflash.errors import ProtocolError
from hiflash.messages import CloudEffect
from hiflash.serve.journal import START, Input, Row, chained
from hiflash.serve.live import Finished, LiveCloud
from hiflash.serve.wire import Malformed
from hiflash.store.crash import crash_point

__all__ = ["Kernel", "Store", "replay"]

MOST_IN_A_BATCH = 256

Listener = Callable[[Sequence[CloudEffect]], None]


class Store(Protocol):
    """Where a cloud keeps its journal and its snapshots."""

    async def commit(self, rows: Sequence[Row]) -> None:
        """Append rows, all or none; return when they would survive a crash."""
        ...

    async def save(self, state: Mapping[str, Any]) -> None:
        """Replace the snapshot; afterwards the rows before it may be forgotten."""
        ...


class Kernel:
    """Runs a `LiveCloud` on the clock of the event loop.

    Cloud time stands still while the process is down: it goes on from the last row of the journal, so a
    restart ends no lease. `listener` gets the effects of every batch after its commit. A snapshot is saved
    after every `snapshot_rows` rows: a restart replays at most as many.
    """

    def __init__(self, live: LiveCloud, store: Store, listener: Listener, *, snapshot_rows: int) -> None:
        self.live = live
        self.store = store
        self.listener = listener
        self.snapshot_rows = snapshot_rows
        self.number = 0
        self.chain = START
        self._saved = 0
        self._base_s = 0.0
        self._queue: list[tuple[Input | None, asyncio.Future[list[CloudEffect]]]] = []
        self._alarms: list[tuple[float, int, Input]] = []
        self._wake = asyncio.Event()
        self._taken: list[tuple[Input | None, asyncio.Future[list[CloudEffect]]]] = []
        self._closing = False

    def close(self) -> None:
        """Let `run` end when the queue is empty."""
        self._closing = True
        self._wake.set()

    def resume(self, state: Mapping[str, Any] | None, rows: Iterable[Row]) -> None:
        """Go on from a snapshot, if there is one, and the rows after it."""
        if state is not None:
            self.live.restore(state["live"])
            self.number, self.chain = state["number"], bytes.fromhex(state["chain"])
            self._saved = self.number
        last = replay(self.live, rows)
        if last is not None:
            self.number, self.chain = last.number, last.chain

    async def save(self) -> None:
        """Save a snapshot of the state after the last commit."""
        self._saved = self.number
        place = {"number": self.number, "chain": self.chain.hex()}
        await self.store.save({"live": self.live.snapshot(), **place})

    def begin(self) -> None:
        """Start the clock."""
        self._base_s = self.live.now - asyncio.get_running_loop().time()
        self._schedule()

    @property
    def now(self) -> float:
        """Return cloud time; it never goes back, and begins with the run."""
        if self.live.scale is None:
            return self.live.now
        return max(self.live.now, self._base_s + asyncio.get_running_loop().time())

    def enqueue(self, given: Input | None) -> asyncio.Future[list[CloudEffect]]:
        """Put an input into the queue; the future has its effects once it is durable.

        It raises if the input is malformed or out of place, or if the run has ended. None changes nothing:
        its future is done when everything before it is durable.
        """
        done: asyncio.Future[list[CloudEffect]] = asyncio.get_running_loop().create_future()
        self._queue.append((given, done))
        self._wake.set()
        return done

    async def run(self) -> None:
        """Handle inputs until closed, cancelled, or until a commit fails."""
        try:
            while self._queue or not self._closing:
                await self._wait()
                await self._batch()
        except BaseException:
            for _, done in (*self._taken, *self._queue):
                if not done.done():
                    done.set_exception(ConnectionError("the cloud has stopped"))
            self._queue.clear()
            raise

    async def _wait(self) -> None:
        """Wait for an input or an alarm."""
        while not self._queue and not self._closing:
            self._wake.clear()
            waits = self._alarms and not self.live.finished
            due = self._alarms[0][0] - self.now if waits else math.inf
            if due <= 0:
                return
            try:
                await asyncio.wait_for(self._wake.wait(), None if due == math.inf else due)
            except TimeoutError:
                return

    async def _batch(self) -> None:
        taken, self._queue = self._queue[:MOST_IN_A_BATCH], self._queue[MOST_IN_A_BATCH:]
        self._taken = taken  # to be told if the commit fails
        rows: list[Row] = []
        released: list[tuple[asyncio.Future[list[CloudEffect]], list[CloudEffect] | Exception]] = []
        every: list[CloudEffect] = []
        self._ring(rows, every)
        for given, done in taken:
            try:
                effects = [] if given is None else self._apply(given, rows)
            except (Malformed, ProtocolError, Finished) as error:
                released.append((done, error))  # after the commit: an error, too, tells of the state
                continue
            released.append((done, effects))
            every += effects
        self._schedule()
        self._ring(rows, every)  # what this batch made due at once
        if rows:
            crash_point("journal.before")
            await self.store.commit(rows)
            crash_point("journal.committed")
        for done, outcome in released:
            if done.done():  # its caller has gone
                continue
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)
        self._taken = []
        self.listener(every)
        if self.number - self._saved >= self.snapshot_rows:
            await self.save()

    def _ring(self, rows: list[Row], every: list[CloudEffect]) -> None:
        """Apply the inputs of all alarms that are due, and of those that they set."""
        while self._alarms and self._alarms[0][0] <= self.now and not self.live.finished:
            every += self._apply(heapq.heappop(self._alarms)[2], rows)
            self._schedule()

    def _apply(self, given: Input, rows: list[Row]) -> list[CloudEffect]:
        now = self.now
        waiting = self.live.scale is None
        effects = self.live.apply(given, now)
        if waiting:  # the wait for the first edges takes no time
            self._base_s = self.live.now - asyncio.get_running_loop().time()
        row = chained(self.chain, self.number + 1, now, given)
        self.number, self.chain = row.number, row.chain
        rows.append(row)
        return effects

    def _schedule(self) -> None:
        for time, given in self.live.due(self.now):
            heapq.heappush(self._alarms, (time, self.number, given))


def replay(live: LiveCloud, rows: Iterable[Row]) -> Row | None:
    """Apply the rows of a journal and return the last one."""
    last = None
    for row in rows:
        live.apply(row.input, row.now)
        last = row
    return last
