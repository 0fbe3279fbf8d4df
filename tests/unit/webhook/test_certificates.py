"""Certificates are made as API servers require, and a clause says why a certificate cannot be used."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge.webhook.certificates import (
    MOST_AUTHORITIES,
    SKEW_S,
    Pair,
    Unusable,
    bundle,
    check,
    make,
    read,
    signed_by,
)
from tests.unit.webhook.pem import DAY, NAMES, NOW, another_key, encrypted, made


def test_a_made_pair_is_for_its_names_and_signed_by_its_authority() -> None:
    one, other = made(), made()
    assert one.pair.names == {*NAMES}
    assert (one.pair.starts, one.pair.ends) == (NOW - SKEW_S, NOW + 90 * DAY)
    assert signed_by(one.pair, one.authority)
    assert signed_by(one.pair, other.authority + one.authority)
    assert not signed_by(one.pair, other.authority)
    assert not signed_by(one.pair, b"")
    assert ssl.create_default_context(cadata=one.authority.decode()).cert_store_stats()["x509_ca"] == 1


def test_it_is_renewed_when_two_thirds_of_its_life_have_passed() -> None:
    pair = made().pair
    assert not pair.is_due(NOW + 59 * DAY)
    assert pair.is_due(NOW + 60 * DAY)


def test_dates() -> None:
    pair = made().pair
    check(pair, NOW)
    with pytest.raises(Unusable, match=r"^the certificate expired at 2027-04-15T08:00:00Z$"):
        check(pair, NOW + 90 * DAY)
    with pytest.raises(Unusable, match=r"^the certificate is not valid before 2027-01-15T07:00:00Z, and it is "):
        check(pair, NOW - 2 * SKEW_S)


def _of_version_54(certificate: bytes) -> bytes:
    content = ssl.PEM_cert_to_DER_cert(certificate.decode())
    assert content.count(b"\xa0\x03\x02\x01\x02") == 1
    return ssl.DER_cert_to_PEM_cert(content.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x35")).encode()


def mistakes() -> dict[str, tuple[bytes, bytes, str]]:
    one, other = made().pair, made().pair
    return {
        "swapped": (one.key, one.certificate, "the certificate and the key are swapped"),
        "of two pairs": (one.certificate, other.key, "the key does not belong to the certificate"),
        "of two kinds": (one.certificate, another_key(), "the key does not belong to the certificate"),
        "no certificate": (b"hello", one.key, "there is no certificate in PEM"),
        "empty": (b"", b"", "there is no certificate in PEM"),
        "a certificate of nonsense": (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            one.key,
            "there is no certificate in PEM",
        ),
        "of a version that does not exist": (
            _of_version_54(one.certificate),
            one.key,
            "there is no certificate in PEM",
        ),
        "no key": (one.certificate, b"hello", "there is no private key in PEM"),
        "twice the certificate": (one.certificate, one.certificate, "there is no private key in PEM"),
        "a key with a passphrase": (one.certificate, encrypted(one.key), "the key has a passphrase"),
    }


@pytest.mark.parametrize("case", mistakes())
def test_what_cannot_be_used_is_reported(case: str) -> None:
    certificate, key, why = mistakes()[case]
    with pytest.raises(Unusable) as told:
        read(certificate, key)
    assert str(told.value) == why


ONE = made().pair


@given(some.binary(max_size=200), some.integers(0, 900), some.integers(0, 900), some.booleans())
def test_a_damaged_file_is_unusable_or_usable_and_nothing_else(
    text: bytes, first: int, last: int, in_the_key: bool
) -> None:
    certificate, key = ONE.certificate, ONE.key
    if in_the_key:
        key = key[:first] + text + key[last:]
    else:
        certificate = certificate[:first] + text + certificate[last:]
    with suppress(Unusable):  # and no other exception
        assert isinstance(read(certificate, key), Pair)


def test_a_bundle_has_each_authority_once_and_no_expired_ones() -> None:
    old, new = made(NOW - 89 * DAY), made()
    assert bundle([new.authority, old.authority + new.authority, b"junk"], NOW) == new.authority + old.authority
    assert bundle([new.authority, old.authority], NOW + 2 * DAY) == new.authority
    many = [make(["x"], NOW).authority for _ in range(MOST_AUTHORITIES + 1)]
    assert bundle(many, NOW) == b"".join(many[:MOST_AUTHORITIES])


def test_a_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(made())
