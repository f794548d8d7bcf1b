"""Calls over gRPC with mutual TLS: bytes in, bytes out, and the caller's identity from its certificate."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before the import: its own lines are not for people

import grpc
import grpc.aio

from hiflash.errors import ConfigError, IdentityError
from hiflash.serve.calls import CallError, Code, Peer, Service, printable
from hiflash.serve.credentials import Credentials
from hiflash.serve.identity import Identity, check_peer

__all__ = ["GrpcCaller", "start_server"]

SERVICE = "hiflash.Node"
RETRY_AFTER = "retry-after-s"
STATUS: dict[Code, grpc.StatusCode] = {
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    "timeout": grpc.StatusCode.DEADLINE_EXCEEDED,
    "denied": grpc.StatusCode.PERMISSION_DENIED,
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "mismatch": grpc.StatusCode.FAILED_PRECONDITION,
    "stranger": grpc.StatusCode.NOT_FOUND,
}
CODES: dict[grpc.StatusCode, Code] = {status: code for code, status in STATUS.items()}
# Errors reach callers and people through us; gRPC would print a stack for every call that a stop cuts off.
logging.getLogger("grpc").setLevel(logging.CRITICAL)

KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    (
        "grpc.http2.ping_timeout_ms",
        10_000,
    ),  # without it gRPC waits for a minute, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


def _limits(most_bytes: int) -> list[tuple[str, int]]:
    # gRPC's own limit of 4 MiB is less than a large model.
    return [("grpc.max_receive_message_length", most_bytes), ("grpc.max_send_message_length", most_bytes)]


async def start_server(
    service: Service,
    address: str,
    credentials: Credentials | None,
    most_bytes: int,
    *,
    denied: Collection[str] = (),
) -> tuple[grpc.aio.Server, int]:
    """Serve on an address and return the server and its port; port 0 takes a free one.

    Without credentials callers name themselves, so this is for loopback and for those who ask for it.
    """
    server = grpc.aio.server(
        options=[
            *_limits(most_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.max_concurrent_streams", 1_000),
        ]
    )
    server.add_generic_rpc_handlers((_Handlers(service, credentials, frozenset(denied)),))
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(
                address,
                grpc.ssl_server_credentials(
                    [(credentials.key, credentials.certificate)], credentials.ca, require_client_auth=True
                ),
            )
    except RuntimeError:  # gRPC says no more than that
        raise ConfigError(
            f"--listen {address}: cannot listen there; is the port in use, or the host another machine?"
        ) from None
    await server.start()
    return server, port


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no annotations
    """Finds the handler of a call and the identity of its caller."""

    def __init__(self, service: Service, credentials: Credentials | None, denied: frozenset[str]) -> None:
        self.service_behind = service
        self.credentials = credentials
        self.denied = denied

    def service(self, details: Any) -> Any:
        """Return the handler of a call, None if this is not one of ours."""
        service, _, method = str(details.method).lstrip("/").partition("/")
        if service != SERVICE:
            return None

        async def handle(body: bytes, context: Any) -> bytes:
            try:
                return await self.service_behind.serve(method, self._peer(context), body)
            except CallError as error:
                if error.code == "busy":
                    context.set_trailing_metadata(((RETRY_AFTER, f"{error.retry_after_s:.3f}"),))
                await context.abort(STATUS[error.code], error.detail)
                raise  # abort raises: this line is for the type checker

        return grpc.unary_unary_rpc_method_handler(handle)

    def _peer(self, context: Any) -> Peer:
        if self.credentials is None:
            said = dict(context.invocation_metadata()).get("hiflash-node", "")
            role, _, number = said.partition("/")
            if role not in ("edge", "client") or not number.isdecimal() or len(number) > 9:
                self.service_behind.refused["denied"] += 1
                raise CallError("denied", "a call without a name")
            return Peer(role, int(number))
        found = context.auth_context().get("x509_pem_cert")
        if not found:
            self.service_behind.refused["denied"] += 1
            raise CallError("denied", "a call without a certificate")
        try:
            identity = _checked(found[0], self.credentials.identity.federation, self.denied)
        except IdentityError as error:
            self.service_behind.refused["denied"] += 1
            raise CallError("denied", str(error)) from None
        return Peer(identity.role, identity.number)


@lru_cache(maxsize=4096)  # parsing a certificate takes longer than most calls
def _checked(certificate: bytes, federation: str, denied: frozenset[str]) -> Identity:
    return check_peer(certificate, federation, ("edge", "client"), denied)


class GrpcCaller:
    """The way to one service; the connection comes back by itself when the service does."""

    def __init__(self, address: str, me: Credentials | Identity, server: Identity, most_bytes: int) -> None:
        options: list[tuple[str, Any]] = [
            *_limits(most_bytes),
            *KEEPALIVE,
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 10_000),  # in fact: how long a handshake may take
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.enable_retries", 0),  # we repeat calls ourselves
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._metadata: tuple[tuple[str, str], ...] = ()
        if isinstance(me, Credentials):
            # The name is that of the node, not of its host: TLS then proves that it is this node.
            options.append(("grpc.ssl_target_name_override", server.server_name))
            secret = grpc.ssl_channel_credentials(me.ca, me.key, me.certificate)
            self._channel = grpc.aio.secure_channel(address, secret, options)
        else:
            self._metadata = (("hiflash-node", me.label),)
            self._channel = grpc.aio.insecure_channel(address, options)
        self._methods: dict[str, Any] = {}

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        """Return the answer, or raise `CallError` after at most `timeout_s`."""
        found = self._methods.get(method)
        if found is None:
            found = self._methods[method] = self._channel.unary_unary(f"/{SERVICE}/{method}")
        try:
            answer: bytes = await found(
                body, timeout=timeout_s, metadata=self._metadata, wait_for_ready=False
            )
        except grpc.aio.AioRpcError as error:
            raise _call_error(error) from None
        return answer

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _call_error(error: grpc.aio.AioRpcError) -> CallError:
    code = CODES.get(error.code(), "unavailable")
    detail = printable(error.details() or error.code().name)
    if code != "busy":
        return CallError(code, detail)
    trailing = dict(error.trailing_metadata() or ())
    if RETRY_AFTER not in trailing:  # gRPC itself: the message is too large, and stays so
        return CallError("invalid", detail)
    retry_after_s = 0.0
    with suppress(ValueError):
        retry_after_s = float(trailing[RETRY_AFTER])
    return CallError(code, detail, retry_after_s)
