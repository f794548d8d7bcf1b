"""Real TLS handshakes over loopback: who gets in, and who is told no (R12, R13)."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("trustme", reason="needs the package trustme")

import trustme

from hiflash.errors import IdentityError
from hiflash.serve.certificates import (
    Request,
    ca_certificate,
    certificate_pem,
    key_pem,
    new_key,
    node_certificate,
    utc_now,
)
from hiflash.serve.credentials import Credentials
from hiflash.serve.identity import Identity, check_peer, identity_of

REASON = 'needs pip install "hiflash[serve]"'
CLOUD = Identity("hospitals", "cloud", 0)


def context(folder: Path, node: str, server: bool, trusts: Path | None = None) -> ssl.SSLContext:
    """Return a TLS context with the files of a node, which trusts the CA of its own folder or another's."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations((trusts or folder) / "ca.crt")
    made.load_cert_chain(folder / f"{node}.crt", folder / f"{node}.key")
    return made


@contextmanager
def serving(tls: ssl.SSLContext) -> Iterator[tuple[int, list[Any]]]:
    """Yield port and outcomes of a server that answers each peer with its identity."""
    outcomes: list[Any] = []

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            try:
                with tls.wrap_socket(connection, server_side=True) as secure:
                    peer = check_peer(secure.getpeercert(binary_form=True) or b"", "hospitals", {"edge"})
                    outcomes.append(peer)
                    secure.sendall(peer.uri.encode())
            except (OSError, IdentityError) as error:
                outcomes.append(error)

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            if stopping.is_set():
                connection.close()
                return
            answer(connection)

    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], outcomes
        finally:
            stopping.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


def call(port: int, tls: ssl.SSLContext, server_name: str = CLOUD.server_name) -> bytes:
    """Return what the server says; TLS 1.3 tells a client that it was refused when the client reads."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        tls.wrap_socket(plain, server_hostname=server_name) as secure,
    ):
        return secure.recv(1000)


@pytest.fixture
def cloud(federation: Path) -> Iterator[tuple[int, list[Any]]]:
    with serving(context(federation, "cloud", server=True)) as served:
        yield served


@pytest.mark.parametrize("name", ["cloud.hospitals.hiflash.internal", "localhost", "127.0.0.1"])
def test_an_edge_gets_in_and_its_identity_is_that_of_its_certificate(
    name: str, cloud: tuple[int, list[Any]], federation: Path
) -> None:
    port, outcomes = cloud
    assert call(port, context(federation, "edge-1", server=False), name) == b"spiffe://hospitals/edge/1"
    assert outcomes == [Identity("hospitals", "edge", 1)]


def test_an_approved_edge_gets_in_to_the_cloud_of_its_ca(ca_folder: Path, tmp_path: Path) -> None:
    from hiflash.serve.authority import make_request, opened

    make_request(tmp_path / "node", Identity("hospitals", "edge", 3))
    with opened(ca_folder) as ca:
        ca.sign(ca.examine(tmp_path / "node/edge-3.csr", days=1))
    with serving(context(ca_folder / "cloud", "cloud", server=True)) as (port, _):
        assert call(port, context(tmp_path / "node", "edge-3", server=False)) == b"spiffe://hospitals/edge/3"


def without_certificate(federation: Path, _: Path) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(federation / "ca.crt")
    return tls


def of_a_foreign_ca(federation: Path, _: Path) -> ssl.SSLContext:
    tls = without_certificate(federation, _)
    trustme.CA().issue_cert("edge-1.hospitals.hiflash.internal").configure_cert(tls)
    return tls


def of_a_ca_with_the_same_name(federation: Path, folder: Path) -> ssl.SSLContext:
    from hiflash.serve.authority import make_throwaway_federation

    make_throwaway_federation(folder, "hospitals", edges=2, clients=0)
    return context(folder, "edge-1", server=False, trusts=federation)


def of_the_cloud(federation: Path, _: Path) -> ssl.SSLContext:
    return context(federation, "cloud", server=False)


def of_a_client(federation: Path, _: Path) -> ssl.SSLContext:
    return context(federation, "client-1", server=False)


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (without_certificate, ssl.SSLError, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (of_a_foreign_ca, ssl.SSLError, "CERTIFICATE_VERIFY_FAILED"),
        (of_a_ca_with_the_same_name, ssl.SSLError, "CERTIFICATE_VERIFY_FAILED"),
        (of_the_cloud, ssl.SSLError, "unsuitable certificate purpose"),
        (of_a_client, IdentityError, "client/1 may not do this: it is for edge"),
    ],
)
def test_others_are_refused_and_the_next_edge_gets_in(
    made: Callable[[Path, Path], ssl.SSLContext],
    error: type[Exception],
    said: str,
    cloud: tuple[int, list[Any]],
    federation: Path,
    tmp_path: Path,
) -> None:
    port, outcomes = cloud
    with suppress(OSError):
        assert call(port, made(federation, tmp_path / "made")) == b""
    assert call(port, context(federation, "edge-0", server=False)) == b"spiffe://hospitals/edge/0"
    refusal, welcome = outcomes
    assert isinstance(refusal, error)
    assert said in str(refusal)
    assert welcome == Identity("hospitals", "edge", 0)


@pytest.mark.parametrize("days_ago", [91, -1])
def test_a_certificate_outside_its_dates_is_refused(days_ago: int, tmp_path: Path) -> None:
    """The CA is old enough for both; the edge's certificate has expired, or is for tomorrow."""
    ca_key, now = new_key(), utc_now()
    ca = ca_certificate(ca_key, "hospitals", now - timedelta(days=100))
    (tmp_path / "ca.crt").write_bytes(certificate_pem(ca))
    edge = Identity("hospitals", "edge", 1)
    for identity, made in ((CLOUD, now), (edge, now - timedelta(days=days_ago))):
        key = new_key()
        asked = Request(identity, ("127.0.0.1",), key.public_key())
        certificate = node_certificate(ca_key, ca, asked, made)
        (tmp_path / f"{identity.stem}.crt").write_bytes(certificate_pem(certificate))
        (tmp_path / f"{identity.stem}.key").write_bytes(key_pem(key))
    with serving(context(tmp_path, "cloud", server=True)) as (port, outcomes), suppress(OSError):
        assert call(port, context(tmp_path, "edge-1", server=False)) == b""
    (refusal,) = outcomes
    assert ("expired" if days_ago > 0 else "not yet valid") in str(refusal)


def test_plaintext_is_refused(cloud: tuple[int, list[Any]], federation: Path) -> None:
    port, outcomes = cloud
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        try:
            said = plain.recv(1000)
        except ConnectionError:
            said = b""
    assert b"spiffe" not in said
    assert call(port, context(federation, "edge-0", server=False)) == b"spiffe://hospitals/edge/0"
    assert isinstance(outcomes[0], ssl.SSLError)


@pytest.mark.parametrize(
    ("node", "said"),
    [("edge-0", "Hostname mismatch"), ("client-0", "unsuitable certificate purpose")],
)
def test_a_caller_notices_that_somebody_else_serves(node: str, said: str, federation: Path) -> None:
    """An edge on the cloud's address has no certificate for the cloud's name; a client has none to serve."""
    tls = context(federation, "edge-1", server=False)
    with (
        serving(context(federation, node, server=True)) as (port, _),
        pytest.raises(ssl.SSLCertVerificationError, match=said),
    ):
        call(port, tls)


def test_a_caller_notices_a_server_of_a_foreign_ca(federation: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(CLOUD.server_name).configure_cert(tls)
    with (
        serving(tls) as (port, _),
        pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"),
    ):
        call(port, context(federation, "edge-1", server=False))


def test_a_renewed_certificate_is_the_same_identity(ca_folder: Path, tmp_path: Path) -> None:
    from hiflash.serve.authority import opened

    shutil.copytree(ca_folder / "cloud", tmp_path / "before")
    with opened(ca_folder) as ca:
        ca.sign(ca.examine(ca_folder / "cloud/cloud.csr", renew=True))
    before, after = (Credentials.load(path, "cloud") for path in (tmp_path / "before", ca_folder / "cloud"))
    assert before.certificate != after.certificate
    assert before.key == after.key
    assert identity_of(before.certificate) == identity_of(after.certificate)


class TestGrpc:
    """gRPC takes the same bytes, and tells the server the certificate of its peer."""

    @pytest.fixture
    def port(self, federation: Path) -> Iterator[int]:
        grpc = pytest.importorskip("grpc", reason=REASON)
        own = Credentials.load(federation, "cloud")

        def who(_: bytes, call: Any) -> bytes:
            (pem,) = call.auth_context()["x509_pem_cert"]
            return check_peer(pem, "hospitals", {"edge"}).uri.encode()

        server = grpc.server(futures.ThreadPoolExecutor(1))
        methods = {"Who": grpc.unary_unary_rpc_method_handler(who)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Test", methods)])
        port = server.add_secure_port(
            "127.0.0.1:0",
            grpc.ssl_server_credentials([(own.key, own.certificate)], own.ca, require_client_auth=True),
        )
        server.start()
        yield port
        server.stop(None).wait()

    def ask(self, port: int, own: Credentials | None, server_name: str, ca: bytes = b"") -> bytes:
        grpc = pytest.importorskip("grpc", reason=REASON)
        tls = (
            grpc.ssl_channel_credentials(ca)
            if own is None
            else grpc.ssl_channel_credentials(own.ca, own.key, own.certificate)
        )
        options = [("grpc.ssl_target_name_override", server_name)]
        with grpc.secure_channel(f"127.0.0.1:{port}", tls, options) as channel:
            return bytes(channel.unary_unary("/Test/Who")(b"", timeout=10))

    def test_the_identity_comes_from_the_certificate(self, port: int, federation: Path) -> None:
        own = Credentials.load(federation, "edge/1")
        assert self.ask(port, own, CLOUD.server_name) == b"spiffe://hospitals/edge/1"

    def test_no_certificate_a_wrong_purpose_and_a_wrong_server_are_refused(
        self, port: int, federation: Path
    ) -> None:
        grpc = pytest.importorskip("grpc", reason=REASON)
        edge = Credentials.load(federation, "edge/1")
        for own, name in (
            (None, CLOUD.server_name),
            (Credentials.load(federation, "cloud"), CLOUD.server_name),
            (edge, Identity("hospitals", "edge", 0).server_name),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                self.ask(port, own, name, ca=edge.ca)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
