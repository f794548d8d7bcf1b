"""Calls over real gRPC on loopback: who is let in, what is refused, and that the service goes on."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

from chaos.proxy import Proxy, Rough
from hiflash.serve import grpc_transport
from hiflash.serve.authority import make_throwaway_federation
from hiflash.serve.calls import CallError, Peer, Service
from hiflash.serve.credentials import Credentials
from hiflash.serve.grpc_transport import GrpcCaller, start_server
from hiflash.serve.identity import Identity, fingerprint
from hiflash.serve.nodes import stop_at_once
from hiflash.serve.patience import Patience

CLOUD = Identity("hospitals", "cloud", 0)
MOST = 100_000


class Echo(Service):
    """Says who called and what."""

    def __init__(self, rate=1e6, burst=1e6):
        super().__init__({"edge": ("Say", "Wait"), "client": ("Say",)}, rate=rate, burst=burst)

    async def on_say(self, peer: Peer, body: bytes) -> bytes:
        return f"{peer.role} {peer.number}: ".encode() + body

    async def on_wait(self, peer: Peer, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""


@asynccontextmanager
async def served(folder, service=None, **more):
    service = service or Echo()
    server, port = await start_server(service, "127.0.0.1:0", Credentials.load(folder, "cloud"), MOST, **more)
    try:
        yield service, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def say(address, me, body=b"hello", method="Say", to=CLOUD, timeout_s=5.0):
    caller = GrpcCaller(address, me, to, MOST)
    try:
        return await caller.call(method, body, timeout_s=timeout_s)
    finally:
        await caller.close()


def test_a_call_arrives_with_the_identity_of_its_certificate(federation):
    async def main():
        async with served(federation) as (_, address):
            assert await say(address, Credentials.load(federation, "edge/1")) == b"edge 1: hello"
            assert await say(address, Credentials.load(federation, "client/0")) == b"client 0: hello"

    asyncio.run(main())


def test_strangers_are_refused_and_the_service_goes_on(federation, tmp_path):
    other = tmp_path / "others"
    make_throwaway_federation(other, "hospitals", edges=2, clients=0)  # the same names, another CA
    good = Credentials.load(federation, "edge/0")
    foreign = Credentials.load(other, "edge/0")
    pretender = dataclasses.replace(foreign, ca=good.ca)  # believes the server, and has a foreign certificate

    async def main():
        async with served(federation) as (_, address):
            for stranger in (foreign, pretender, Identity("hospitals", "edge", 0)):  # the last: plaintext
                with pytest.raises(CallError) as caught:
                    await say(address, stranger)
                assert caught.value.code == "unavailable"  # TLS let nobody through
            assert await say(address, good) == b"edge 0: hello"

    asyncio.run(main())


def test_a_caller_notices_a_server_that_is_not_the_cloud(federation):
    async def main():
        edge = Credentials.load(federation, "edge/1")
        server, port = await start_server(Echo(), "127.0.0.1:0", edge, MOST)
        try:
            with pytest.raises(CallError, match="unavailable"):
                await say(f"127.0.0.1:{port}", Credentials.load(federation, "edge/0"))
            somebody = Credentials.load(federation, "client/0")
            assert (
                await say(f"127.0.0.1:{port}", somebody, to=Identity("hospitals", "edge", 1))
                == b"client 0: hello"
            )
        finally:
            await server.stop(0)

    asyncio.run(main())


def test_wrong_roles_methods_and_sizes_are_refused_and_counted(federation):
    async def main():
        edge, client = (Credentials.load(federation, who) for who in ("edge/0", "client/1"))
        async with served(federation) as (service, address):
            for me, method in ((client, "Wait"), (edge, "Nothing")):
                with pytest.raises(CallError) as caught:
                    await say(address, me, b"", method)
                assert caught.value.code == "denied"
            caller = GrpcCaller(address, edge, CLOUD, 10 * MOST)
            with pytest.raises(CallError) as caught:
                await caller.call("Say", bytes(5 * MOST), timeout_s=5)
            assert (caught.value.code, caught.value.final) == ("invalid", True)
            await caller.close()
            assert service.refused["denied"] == 2
            assert await say(address, edge) == b"edge 0: hello"

    asyncio.run(main())


def test_a_denied_certificate_is_refused(federation):
    edge = Credentials.load(federation, "edge/0")

    async def main():
        async with served(federation, denied=[fingerprint(edge.certificate)]) as (_, address):
            with pytest.raises(CallError, match="denied"):
                await say(address, edge)
            assert await say(address, Credentials.load(federation, "edge/1")) == b"edge 1: hello"

    asyncio.run(main())


def test_too_many_calls_are_told_when_to_come_back(federation):
    async def main():
        edge = Credentials.load(federation, "edge/0")
        async with served(federation, Echo(rate=2.0, burst=3.0)) as (service, address):
            caller = GrpcCaller(address, edge, CLOUD, MOST)
            for _ in range(3):
                await caller.call("Say", b"", timeout_s=5)
            with pytest.raises(CallError) as caught:
                await caller.call("Say", b"", timeout_s=5)
            await caller.close()
            assert caught.value.code == "busy"
            assert 0 < caught.value.retry_after_s <= 0.5  # a token every half second
            assert service.refused["busy"] == 1

    asyncio.run(main())


def test_every_call_has_a_deadline(federation):
    async def main():
        async with served(federation) as (_, address):
            with pytest.raises(CallError) as caught:
                await say(address, Credentials.load(federation, "edge/0"), method="Wait", timeout_s=0.2)
            assert caught.value.code == "timeout"

    asyncio.run(main())


def test_a_caller_comes_back_to_a_service_that_restarted(federation):
    async def main():
        edge, cloud = (Credentials.load(federation, who) for who in ("edge/0", "cloud"))
        server, port = await start_server(Echo(), "127.0.0.1:0", cloud, MOST)
        caller = GrpcCaller(f"127.0.0.1:{port}", edge, CLOUD, MOST)
        assert await caller.call("Say", b"1", timeout_s=5) == b"edge 0: 1"
        await server.stop(0)
        with pytest.raises(CallError):
            await caller.call("Say", b"2", timeout_s=1)
        server, _ = await start_server(Echo(), f"127.0.0.1:{port}", cloud, MOST)
        for _ in range(50):
            try:
                assert await caller.call("Say", b"3", timeout_s=1) == b"edge 0: 3"
                break
            except CallError:
                await asyncio.sleep(0.1)
        else:
            pytest.fail("the caller did not come back")
        await caller.close()
        await server.stop(0)

    asyncio.run(main())


def test_a_connection_may_take_its_time(federation):
    """A handshake of three seconds was once given up after two at most, again and again."""
    slow = Rough(np.random.default_rng(0), (0.8, 0.8))  # four messages: 3.2 s
    edge = Credentials.load(federation, "edge/0")

    async def main():
        async with served(federation) as (_, address):
            proxy = Proxy(address, slow)
            async with proxy as way:
                assert await say(way, edge, timeout_s=20.0) == b"edge 0: hello"
            assert proxy.counts["connections"] == 1

    asyncio.run(main())


def test_a_silent_connection_is_noticed_long_before_the_deadline_of_a_call(federation, monkeypatch):
    # A ping goes out with most calls. If not, the next one comes after the time of keepalive.
    faster = {"grpc.http2.ping_timeout_ms": 1_000, "grpc.keepalive_time_ms": 2_500}
    quick = [(key, faster.get(key, value)) for key, value in grpc_transport.KEEPALIVE]
    monkeypatch.setattr(grpc_transport, "KEEPALIVE", quick)
    edge = Credentials.load(federation, "edge/0")

    async def main():
        async with served(federation) as (_, address):
            proxy = Proxy(address)
            async with proxy as way:
                caller = GrpcCaller(way, edge, CLOUD, MOST)
                await caller.call("Say", b"", timeout_s=5)
                proxy.silent = True
                begun = asyncio.get_running_loop().time()
                with pytest.raises(CallError, match="unavailable"):
                    await caller.call("Wait", b"", timeout_s=15)
                assert asyncio.get_running_loop().time() - begun < 5
                proxy.silent = False
                assert await Patience(np.random.default_rng(0)).call(caller, "Say", b"1") == b"edge 0: 1"
                await caller.close()

    asyncio.run(main())


def test_a_server_that_stops_in_the_middle_of_calls_says_nothing(capsys):
    """For gRPC prints a traceback of a call that the end of the event loop cuts off."""

    async def wait(caller):
        with pytest.raises(CallError):
            await caller.call("Wait", b"", timeout_s=20)
        await caller.close()

    async def main():
        server, port = await start_server(Echo(), "127.0.0.1:0", None, MOST)
        callers = [GrpcCaller(f"127.0.0.1:{port}", Identity("any", "edge", n), CLOUD, MOST) for n in range(8)]
        calls = [asyncio.create_task(wait(caller)) for caller in callers]
        await asyncio.sleep(0.3)
        await stop_at_once(server)
        for call in calls:
            call.cancel()

    for _ in range(3):
        asyncio.run(main())
    assert "Traceback" not in capsys.readouterr().err
