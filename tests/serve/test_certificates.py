from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from hiflash.errors import IdentityError
from hiflash.serve.certificates import (
    LOOPBACK,
    Request,
    ca_certificate,
    certificate_pem,
    check_hosts,
    federation_of,
    new_key,
    new_request,
    node_certificate,
    read_request,
)
from hiflash.serve.identity import Identity
from x509_samples import request_with

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CA_KEY = new_key()
CA = ca_certificate(CA_KEY, "hospitals", NOW)
EDGE = Identity("hospitals", "edge", 3)
URI = x509.UniformResourceIdentifier("spiffe://hospitals/edge/3")


def signed(role: str, number: int, *hosts: str) -> x509.Certificate:
    asked = Request(Identity("hospitals", role, number), hosts, new_key().public_key())  # type: ignore[arg-type]
    return node_certificate(CA_KEY, CA, asked, NOW)


def names_of(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_the_ca_signs_nodes_and_no_other_ca_for_ten_years() -> None:
    constraints = CA.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert CA.not_valid_after_utc == datetime(
        2036, 3, 1, 12, tzinfo=UTC
    )  # 2028, 2032 and 2036 are leap years
    assert federation_of(CA) == "hospitals"
    CA.verify_directly_issued_by(CA)


def test_a_certificate_is_valid_from_an_hour_ago_for_ninety_days() -> None:
    certificate = signed("client", 17)
    assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate.not_valid_after_utc == datetime(2026, 5, 30, 12, tzinfo=UTC)  # 30 + 30 + 30 days
    certificate.verify_directly_issued_by(CA)


@pytest.mark.parametrize(
    ("role", "hosts", "names", "purposes"),
    [
        (
            "cloud",
            ("cloud.example.org", "10.0.0.5"),
            ["spiffe://hospitals/cloud", "cloud.hospitals.hiflash.internal", "cloud.example.org", "10.0.0.5"],
            [ExtendedKeyUsageOID.SERVER_AUTH],
        ),
        (
            "edge",
            ("::1",),
            ["spiffe://hospitals/edge/0", "edge-0.hospitals.hiflash.internal", "::1"],
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        ),
        ("client", (), ["spiffe://hospitals/client/0"], [ExtendedKeyUsageOID.CLIENT_AUTH]),
    ],
)
def test_a_certificate_holds_the_names_and_the_purposes_of_its_role(
    role: str, hosts: tuple[str, ...], names: list[str], purposes: list[x509.ObjectIdentifier]
) -> None:
    certificate = signed(role, 0, *hosts)
    assert names_of(certificate) == names
    assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == purposes
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("days", [0, -1, 3654, True, 1.5])
def test_a_certificate_does_not_outlive_its_ca(days: int) -> None:
    asked = Request(EDGE, LOOPBACK, new_key().public_key())
    with pytest.raises(IdentityError, match="valid for 1 to 3653 days, as long as its CA, got"):
        node_certificate(CA_KEY, CA, asked, NOW, days)


def test_a_request_is_read_back() -> None:
    key = new_key()
    pem = certificate_pem(new_request(key, EDGE, ("edge3.example.org", "10.0.0.7", "::1")))
    asked = read_request(pem)
    assert asked.identity == EDGE
    assert sorted(asked.hosts) == ["10.0.0.7", "::1", "edge3.example.org"]
    assert asked.public_key == key.public_key()


def test_a_changed_request_is_refused() -> None:
    pem = request_with([x509.UniformResourceIdentifier("spiffe://hospitals/client/17")])
    der = x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER)
    forged = der.replace(b"client/17", b"client/18")
    assert forged != der
    csr = x509.load_der_x509_csr(forged)
    with pytest.raises(IdentityError, match="the signature of the request is wrong"):
        read_request(certificate_pem(csr))


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (b"", "the request cannot be read"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "cannot be read"),
        (request_with([URI], key=ed25519.Ed25519PrivateKey.generate()), "not for a P-256 key"),
        (request_with([URI], key=ec.generate_private_key(ec.SECP384R1())), "not for a P-256 key"),
        (request_with([URI], x509.BasicConstraints(True, None)), r"other extensions .*2\.5\.29\.19"),
        (request_with([URI], x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])), "other extensions"),
        (request_with([]), "names 0 identities"),
        (request_with([x509.DNSName("localhost")]), "names 0 identities, 1 hosts and 0 others"),
        (request_with([URI, URI]), "names 2 identities"),
        (request_with([URI, x509.RFC822Name("me@example.org")]), "names 1 identities, 0 hosts and 1 others"),
        (request_with([URI, x509.DNSName("*.example.org")]), "a host is a DNS name"),
        (request_with([URI, x509.DNSName("cloud.hospitals.hiflash.internal")]), "follow from identities"),
        (request_with([URI, x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))]), "a host is a DNS name"),
        (request_with([x509.UniformResourceIdentifier("spiffe://hospitals/edge/03")]), "an identity is like"),
        (request_with([x509.UniformResourceIdentifier("https://hospitals")]), "an identity is like"),
        (
            request_with([x509.UniformResourceIdentifier("spiffe://hospitals/client/1"), x509.DNSName("a")]),
            "client/1 serves nobody",
        ),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_with_the_reason(pem: bytes, said: str) -> None:
    with pytest.raises(IdentityError, match=said):
        read_request(pem)


@pytest.mark.parametrize(
    ("host", "spelling"),
    [
        ("Edge3.Example.ORG", "edge3.example.org"),
        ("localhost", "localhost"),
        ("10.0.0.7", "10.0.0.7"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("3com.example", "3com.example"),
    ],
)
def test_hosts_have_one_spelling(host: str, spelling: str) -> None:
    assert check_hosts(EDGE, [host, spelling]) == (spelling,)


@pytest.mark.parametrize(
    "host",
    [
        "", "*", "*.org", "a b", "a..b", "-a.org", "a-.org", "a_b.org", "example.org.", "10.0.0", "1.2.3.4.5",
        "0.0.0.0",  # noqa: S104  # refused here
        "::", "224.0.0.1", "fe80::1%eth0", "https://a.org", "a.org:443", "größe.org", "a\n",
        "x" * 64, "a." * 127 + "org", "hiflash.internal", "cloud.hospitals.hiflash.internal",
    ],
)  # fmt: skip
def test_what_nobody_can_dial_is_no_host(host: str) -> None:
    with pytest.raises(IdentityError, match="host"):
        check_hosts(EDGE, [host])


@given(st.text(max_size=40))
def test_a_host_is_accepted_in_its_one_spelling_or_refused(host: str) -> None:
    try:
        (spelling,) = check_hosts(EDGE, [host])
    except IdentityError:
        return
    assert check_hosts(EDGE, [spelling]) == (spelling,)
    assert spelling in names_of(signed("edge", 0, spelling))


def test_who_serves_is_on_loopback_unless_hosts_are_given_and_a_client_serves_nobody() -> None:
    assert check_hosts(EDGE, []) == ("localhost", "127.0.0.1", "::1")
    assert check_hosts(Identity("hospitals", "client", 1), []) == ()
    with pytest.raises(IdentityError, match="client/1 serves nobody and has no hosts; leave out --host"):
        check_hosts(Identity("hospitals", "client", 1), ["localhost"])
    with pytest.raises(IdentityError, match="names 51 hosts; at most 50"):
        check_hosts(EDGE, [f"h{number}.org" for number in range(51)])
