from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.errors import IdentityError
from hiflash.serve.identity import MAX_NUMBER, ROLES, Identity, check_peer, parse_identity, parse_label

FEDERATIONS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
IDENTITIES = st.one_of(
    st.builds(Identity, FEDERATIONS, st.just("cloud"), st.just(0)),
    st.builds(Identity, FEDERATIONS, st.sampled_from(["edge", "client"]), st.integers(0, MAX_NUMBER)),
)


@pytest.mark.parametrize(
    ("uri", "identity"),
    [
        ("spiffe://hospitals/cloud", Identity("hospitals", "cloud", 0)),
        ("spiffe://hospitals/edge/3", Identity("hospitals", "edge", 3)),
        ("spiffe://hospitals/edge/0", Identity("hospitals", "edge", 0)),
        ("spiffe://a-1/client/999999999", Identity("a-1", "client", 999_999_999)),
        (f"spiffe://{'x' * 63}/client/17", Identity("x" * 63, "client", 17)),
    ],
)
def test_an_identity_is_read_from_its_uri_and_written_the_same(uri: str, identity: Identity) -> None:
    assert parse_identity(uri) == identity
    assert identity.uri == str(identity) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://",
        "spiffe://hospitals",
        "spiffe://hospitals/",
        "spiffe:///edge/3",
        "spiffe://hospitals/edge",
        "spiffe://hospitals/edge/",
        "spiffe://hospitals/edge/03",
        "spiffe://hospitals/edge/00",
        "spiffe://hospitals/edge/+3",
        "spiffe://hospitals/edge/-3",
        "spiffe://hospitals/edge/3.0",
        "spiffe://hospitals/edge/1_0",
        "spiffe://hospitals/edge/٣",  # an Arabic 3, which int() reads
        "spiffe://hospitals/edge/3 ",
        "spiffe://hospitals/edge/3\n",
        " spiffe://hospitals/edge/3",
        "spiffe://hospitals/edge/3/",
        "spiffe://hospitals/edge/3/4",
        "spiffe://hospitals//edge/3",
        "spiffe://hospitals/edge/3?x=1",
        "spiffe://hospitals/edge/3#x",
        "spiffe://hospitals/edge/1000000000",
        "spiffe://hospitals/cloud/0",
        "spiffe://hospitals/Edge/3",
        "spiffe://hospitals/admin/3",
        "spiffe://Hospitals/edge/3",
        "spiffe://hospitals:443/edge/3",
        "spiffe://me@hospitals/edge/3",
        "spiffe://hospitals.example/edge/3",
        "spiffe://-hospitals/edge/3",
        "spiffe://hospitals-/edge/3",
        f"spiffe://{'x' * 64}/edge/3",
        "spiffe://hospitals/../other/edge/3",
        "SPIFFE://hospitals/edge/3",
        "https://hospitals/edge/3",
        "hospitals/edge/3",
        "edge/3",
        None,
        b"spiffe://hospitals/edge/3",
    ],
)
def test_any_other_uri_is_refused(uri: str) -> None:
    with pytest.raises(IdentityError, match="an identity is like spiffe://FEDERATION/cloud"):
        parse_identity(uri)


def test_a_long_uri_is_not_repeated_in_the_error() -> None:
    with pytest.raises(IdentityError) as caught:
        parse_identity("spiffe://" + "x" * 100_000)
    assert len(str(caught.value)) < 300


@given(IDENTITIES)
def test_every_identity_is_read_back(identity: Identity) -> None:
    assert parse_identity(identity.uri) == identity
    assert parse_label(identity.label, identity.federation) == identity
    assert len(identity.server_name) <= 253


@given(
    st.one_of(
        st.text(),
        st.builds("spiffe://{}/{}/{}".format, st.text(), st.sampled_from([*ROLES, "x"]), st.text()),
        st.from_regex(r"spiffe://[a-z0-9-]{1,70}/(cloud|edge|client)(/[0-9]{1,12})?"),
    )
)
def test_nothing_is_accepted_that_would_not_be_printed(uri: str) -> None:
    try:
        identity = parse_identity(uri)
    except IdentityError:
        return
    assert identity.uri == uri


@pytest.mark.parametrize(
    ("federation", "role", "number"),
    [
        ("Hospitals", "edge", 3),
        ("", "edge", 3),
        (None, "edge", 3),
        ("hospitals", "admin", 3),
        ("hospitals", "cloud", 1),
        ("hospitals", "edge", -1),
        ("hospitals", "edge", MAX_NUMBER + 1),
        ("hospitals", "edge", True),
        ("hospitals", "edge", 3.0),
        ("hospitals", "edge", "3"),
    ],
)
def test_an_impossible_identity_cannot_be_made(federation: str, role: str, number: int) -> None:
    with pytest.raises(IdentityError, match="got"):
        Identity(federation, role, number)  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["edge", "edge/03", "cloud/0", "3", "edge-3", "edge/3\n", ""])
def test_a_label_is_as_strict_as_a_uri(label: str) -> None:
    with pytest.raises(IdentityError, match="a node is cloud, or like edge/3"):
        parse_label(label, "hospitals")


def test_files_and_the_server_name_follow_from_the_identity() -> None:
    edge = Identity("hospitals", "edge", 3)
    assert (edge.label, edge.stem) == ("edge/3", "edge-3")
    assert edge.server_name == "edge-3.hospitals.hiflash.internal"
    assert Identity("hospitals", "cloud", 0).server_name == "cloud.hospitals.hiflash.internal"


class TestPeers:
    """The identity of a certificate, and whether it may do something."""

    @pytest.fixture(autouse=True)
    def _extra(self) -> None:
        pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

    def test_the_identity_is_read_from_pem_and_der(self, federation: Path) -> None:
        import ssl

        from hiflash.serve.identity import fingerprint, identity_of

        pem = (federation / "edge-1.crt").read_bytes()
        der = ssl.PEM_cert_to_DER_cert(pem.decode())
        assert identity_of(pem) == identity_of(der) == Identity("hospitals", "edge", 1)
        assert fingerprint(pem) == fingerprint(der)

    @pytest.mark.parametrize(
        "data", [b"", b"\x00" * 100, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    )
    def test_bytes_that_are_no_certificate_are_refused(self, data: bytes) -> None:
        from hiflash.serve.identity import fingerprint, identity_of

        for read in (identity_of, fingerprint):
            with pytest.raises(IdentityError, match="the certificate cannot be read"):
                read(data)

    @given(st.data())
    def test_a_changed_certificate_gives_an_identity_or_one_error(self, data: st.DataObject) -> None:
        import ssl

        from hiflash.serve.identity import identity_of
        from x509_samples import certificate_with

        der = bytearray(ssl.PEM_cert_to_DER_cert(certificate_with("spiffe://hospitals/edge/3").decode()))
        for _ in range(data.draw(st.integers(1, 4))):
            der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
        try:
            identity = identity_of(bytes(der[: data.draw(st.integers(0, len(der)))]))
        except IdentityError:
            return
        assert parse_identity(identity.uri) == identity

    @pytest.mark.parametrize("uris", [[], ["spiffe://hospitals/edge/3", "spiffe://hospitals/edge/4"]])
    def test_a_certificate_must_name_exactly_one_identity(self, uris: list[str]) -> None:
        from hiflash.serve.identity import identity_of
        from x509_samples import certificate_with

        with pytest.raises(IdentityError, match=f"names one identity, this one names {len(uris)}"):
            identity_of(certificate_with(*uris))

    def test_a_certificate_without_alternative_names_has_no_identity(self, federation: Path) -> None:
        from hiflash.serve.identity import identity_of

        with pytest.raises(IdentityError, match="names one identity, this one names 0"):
            identity_of((federation / "ca.crt").read_bytes())

    def test_a_peer_must_have_the_role_the_federation_and_no_denial(self, federation: Path) -> None:
        from hiflash.serve.identity import fingerprint

        pem = (federation / "edge-1.crt").read_bytes()
        assert check_peer(pem, "hospitals", {"edge"}, {"00" * 32}) == Identity("hospitals", "edge", 1)
        with pytest.raises(IdentityError, match="edge/1 may not do this: it is for client"):
            check_peer(pem, "hospitals", {"client"})
        with pytest.raises(IdentityError, match="is of another federation than banks"):
            check_peer(pem, "banks", {"edge"})
        with pytest.raises(IdentityError, match="edge/1 was denied"):
            check_peer(pem, "hospitals", {"edge"}, {fingerprint(pem)})
