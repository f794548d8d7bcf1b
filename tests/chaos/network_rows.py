"""Rows that double and repeat calls, byte by byte and call by call: nothing counts twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from chaos.federation import EDGES, ENDS_S, Federation, configuration
from chaos.processes import fork, in_child, wait_until
from chaos.proxy import Proxy, send_again
from chaos.rows import Found
from chaos.wires import Faulty, Recorded, Shares, read_recorded
from hiflash.serve.calls import CallError
from hiflash.serve.channels import open_channels
from hiflash.study.deploy import run_until_stopped

__all__ = ["doubled_uploads", "replayed_bytes", "replayed_calls"]

DOUBLED = 0.3
SETTLED = 50  # looks at a journal that does not change any more


def doubled_uploads(folder: Path, quick: bool) -> Found:
    """Send 30 % of all uploads twice."""
    config = configuration("hifl", 120 if quick else 300)

    def tap(name: str) -> Any:
        stream = np.random.default_rng([3, sum(name.encode())])
        shares = Shares(doubled=DOUBLED)
        return lambda caller, role: Faulty(caller, stream, shares, Counter(), methods=("Upload",))

    with Federation(folder / "federation", config, tap=tap) as federation:
        federation.start()
        result = federation.finish()
        uploads = federation.query("SELECT COUNT(*) FROM input WHERE kind = 'upload'")[0][0]
        twice, lost, leases = federation.applied_twice(), federation.lost(), _leases(federation)
        replayed = federation.replayed_digest()
    share = uploads / leases - 1
    found = Found(
        f"{uploads} uploads of {leases} leases ({share:.0%} repeated), {twice} applied twice",
        {"chaos_uploads": uploads, "chaos_uploads_repeated": uploads - leases, "chaos_applied_twice": twice},
        ports=list(federation.ports),
    )
    found.expect(share > DOUBLED / 2, f"only {share:.0%} of the uploads were repeated")
    found.expect(twice == 0, f"{twice} uploads were applied twice")
    found.expect(not lost, f"a repeat had another verdict than the first: {lost[:3]}")
    found.expect(replayed == result["digest"], "the journal gives another digest")
    return found


def replayed_bytes(folder: Path, quick: bool) -> Found:
    """Record all bytes from edges to the cloud under TLS, send them again, also after a restart."""
    config = configuration("hifl", 400)
    recorded, known = folder / "recorded", folder / "proxy"
    recorded.mkdir()
    with Federation(folder / "federation", config) as federation:
        federation.start("cloud")
        proxy = fork("proxy", partial(_record, federation.address(), recorded, known), folder / "proxy.log")
        try:
            wait_until(known.exists, 20.0, "the proxy to listen")
            federation.via = known.read_text()
            federation.start(*federation.names[1:])
            federation.wait_for_rows(20 if quick else 100)
            federation.kill("edge-0", "edge-1")
        finally:
            proxy.kill()
        files = sorted(recorded.iterdir())
        sizes = sum(file.stat().st_size for file in files)
        refused, before = 0, _settled_row(federation)
        for _ in range(2):
            refused += sum(send_again(federation.address(), file)[1] for file in files)
            federation.kill("cloud")
            federation.start("cloud")
            federation.wait_for_listening()
        after = _last_row(federation)
        federation.via = ""
        federation.start("edge-0", "edge-1")
        result = federation.finish()
        twice, replayed = federation.applied_twice(), federation.replayed_digest()
    found = Found(
        f"{sizes / 1e6:.1f} MB in {len(files)} connections sent twice more: "
        f"{refused} of {2 * len(files)} hung up on, {after[0] - before[0]} rows in the journal",
        {"chaos_replayed_mb": sizes / 1e6, "chaos_replayed_rows": after[0] - before[0]},
        ports=list(federation.ports),
    )
    found.expect(bool(files) and sizes > 1e5, f"only {sizes} bytes were recorded")
    found.expect(after == before, "replayed bytes changed the journal")
    found.expect(refused == 2 * len(files), f"{2 * len(files) - refused} connections were not hung up on")
    found.expect(twice == 0, f"{twice} uploads were applied twice")
    found.expect(replayed == result["digest"], "the journal gives another digest")
    return found


def replayed_calls(folder: Path, quick: bool) -> Found:
    """Make all recorded calls again in the name of their edges, without TLS, also after a restart."""
    config = configuration("hifl", 400, serve__rate=1e5, serve__burst=1e5)
    recorded = folder / "recorded"
    recorded.mkdir()

    def tap(name: str) -> Any:
        if not name.startswith("edge"):
            return lambda caller, role: caller
        return lambda caller, role: Recorded(caller, recorded / name)

    with Federation(folder / "federation", config, secure=False, tap=tap) as federation:
        federation.start()
        federation.wait_for_rows(20 if quick else 100)
        federation.kill("edge-0", "edge-1")
        before = federation.replayed()
        calls = 0
        for _ in range(2):
            calls += in_child(partial(_repeat, federation.address(), recorded, federation.deployment), ENDS_S)
            federation.kill("cloud")
            federation.start("cloud")
            federation.wait_for_listening()
        after = federation.replayed()
        federation.start("edge-0", "edge-1")
        result = federation.finish()
        twice, lost = federation.applied_twice(), federation.lost()
        replayed = federation.replayed_digest()
    changed = after.version - before.version
    found = Found(
        f"{calls} calls made again by somebody else: {changed} changes of the model, {twice} applied twice",
        {"chaos_replayed_calls": calls, "chaos_replayed_changes": changed},
        ports=list(federation.ports),
    )
    found.expect(calls > (20 if quick else 100), f"only {calls} calls were made again")
    found.expect(bool((after.weights == before.weights).all()) and changed == 0, "the model has changed")
    found.expect(after.cloud.verdicts.keys() == before.cloud.verdicts.keys(), "a lease was ended")
    found.expect(after.cloud.leases.keys() == before.cloud.leases.keys(), "a lease was ended or given")
    found.expect(twice == 0, f"{twice} uploads were applied twice")
    found.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    found.expect(replayed == result["digest"], "the journal gives another digest")
    return found


def _leases(federation: Federation) -> int:
    """Return how many leases ended with an upload."""
    verdicts = federation.replayed().cloud.verdicts.values()
    return sum(verdict.status in ("applied", "buffered") or verdict.reason == "stale" for verdict in verdicts)


def _last_row(federation: Federation) -> tuple[int, bytes]:
    """Return number and hash of the journal's last row."""
    return federation.query("SELECT number, chain FROM input ORDER BY number DESC LIMIT 1")[0]  # type: ignore[return-value]


def _settled_row(federation: Federation) -> tuple[int, bytes]:
    """Return the last row once the calls of killed edges, which may still be at work, have written theirs."""
    rows = [_last_row(federation)]

    def settled() -> bool:
        rows.append(_last_row(federation))
        return len(rows) > SETTLED and len(set(rows[-SETTLED:])) == 1

    wait_until(settled, 20.0, "the journal to settle")
    return rows[-1]


def _record(address: str, folder: Path, known: Path) -> None:
    """Carry connections to the cloud and keep what edges send."""

    def keep(number: int, data: bytes) -> None:
        with (folder / f"{number:04}").open("ab") as file:
            file.write(data)

    async def serve(stop: asyncio.Event) -> None:
        async with Proxy(address, keep=keep) as listens:
            temporary = known.with_suffix(".tmp")
            temporary.write_text(listens)
            temporary.replace(known)
            await stop.wait()

    run_until_stopped(serve)


def _repeat(address: str, recorded: Path, deployment: Any) -> int:
    """Make the recorded calls of every edge again, with its name; return how many were answered."""

    async def main() -> int:
        answered = 0
        for edge in range(EDGES):
            rogue = open_channels(None, f"edge/{edge}", [address], insecure=False)
            caller = rogue.to(address, "cloud", 0, deployment.wire.most_bytes)
            for method, body in read_recorded(recorded / f"edge-{edge}"):
                try:
                    # A held check-in is of no use to it.
                    await caller.call(method, body, timeout_s=0.5 if method == "CheckIn" else 5.0)
                    answered += 1
                except CallError as error:
                    if error.code != "timeout":
                        raise
            await caller.close()
        return answered

    return asyncio.run(main())
