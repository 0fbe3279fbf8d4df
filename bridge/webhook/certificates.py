"""Makes, reads and checks certificates of the webhook.  No files, no network, no clock.

The webhook's own certificate is signed by an authority that is made for this one certificate.  The key of the authority is
dropped after that.  So a thief of the Secret can use one certificate until it expires, and cannot sign others.  Renewal makes
a new authority, and both authorities are trusted until the older one expires.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE_S = 90 * 86_400.0
SKEW_S = 3_600.0  # clocks of API servers may be behind ours
RENEW_AT = 2 / 3  # of its life
MOST_AUTHORITIES = 4  # in a bundle
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_ENCRYPTED = (b"ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


class Unusable(Exception):
    """A certificate and its key cannot be used.  str() is a clause that says why: "the certificate expired at …"."""


# A check of a signature raises one of these if another authority signed, or if the signature cannot be checked.
_NOT_SIGNED = (InvalidSignature, TypeError, UnsupportedAlgorithm, Unusable, ValueError)


@dataclass(frozen=True, slots=True)
class Pair:
    """A serving certificate with its key.

    certificate  PEM: the server's certificate, then the certificates of intermediate authorities
    key          PEM, without a passphrase
    names        DNS names and addresses for which the certificate is valid
    starts, ends when the certificate becomes valid and when it expires, epoch seconds
    """

    certificate: bytes
    key: bytes
    names: frozenset[str]
    starts: float
    ends: float

    def __repr__(self) -> str:
        return f"Pair({sorted(self.names)}, until {moment(self.ends)})"

    def is_due(self, now: float) -> bool:
        """True if it is time to renew the certificate: two thirds of its life have passed."""
        return now >= self.starts + RENEW_AT * (self.ends - self.starts)


@dataclass(frozen=True, slots=True)
class Made:
    """A new pair.  authority: the certificate of the authority that signed it, or several certificates, PEM"""

    pair: Pair
    authority: bytes


def read(certificate: bytes, key: bytes) -> Pair:
    """The pair in these PEM texts.  Raises Unusable if the texts are malformed, or are no usable pair."""
    if not _CERTIFICATE.search(certificate) and _KEY.search(certificate) and _CERTIFICATE.search(key):
        raise Unusable("the certificate and the key are swapped")
    leaf = _leaf(certificate)
    if any(mark in key for mark in _ENCRYPTED):
        raise Unusable("the key has a passphrase")
    try:
        loaded = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Unusable("there is no private key in PEM") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        belongs = loaded.public_key().public_bytes(*form) == leaf.public_key().public_bytes(*form)
    except (ValueError, UnsupportedAlgorithm):
        raise Unusable("the kind of the key is not supported") from None
    if not belongs:
        raise Unusable("the key does not belong to the certificate")
    return Pair(certificate, key, _names(leaf), _epoch(leaf.not_valid_before_utc), _epoch(leaf.not_valid_after_utc))


def check(pair: Pair, now: float) -> None:
    """Raises Unusable if the certificate has expired or is not valid yet: API servers then refuse it."""
    if now >= pair.ends:
        raise Unusable(f"the certificate expired at {moment(pair.ends)}")
    if now < pair.starts:
        raise Unusable(f"the certificate is not valid before {moment(pair.starts)}, and it is {moment(now)} here")


def make(names: Iterable[str], now: float, life_s: float = LIFE_S) -> Made:
    """A new authority, and a pair that it signed, for these DNS names and addresses, valid from an hour ago."""
    starts, ends = _time(now - SKEW_S), _time(now + life_s)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"slurm-bridge webhook {moment(now)}")])
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), starts, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slurm-bridge webhook")])
    certificate = (
        _builder(subject, issuer, key.public_key(), starts, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in sorted(names)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, SHA256())
    )
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Made(read(certificate.public_bytes(Encoding.PEM), key_pem), authority.public_bytes(Encoding.PEM))


def signed_by(pair: Pair, bundle: bytes) -> bool:
    """True if an authority in the bundle directly signed the certificate of the pair."""
    leaf = _leaf(pair.certificate)
    for certificate in _CERTIFICATE.findall(bundle):
        try:
            leaf.verify_directly_issued_by(_leaf(certificate))
        except _NOT_SIGNED:
            continue
        return True
    return False


def bundle(authorities: Iterable[bytes], now: float) -> bytes:
    """The certificates of the authorities as one PEM text: in this order, each once, at most MOST_AUTHORITIES.

    Expired and malformed certificates are left out.
    """
    kept: dict[bytes, None] = {}
    for text in authorities:
        for certificate in _CERTIFICATE.findall(text):
            try:
                ends = _epoch(_leaf(certificate).not_valid_after_utc)
            except Unusable:
                continue
            if ends > now:
                kept[certificate + b"\n"] = None
    return b"".join(list(kept)[:MOST_AUTHORITIES])


def moment(epoch: float) -> str:
    """A time in epoch seconds as text: 2026-11-23T05:43:34Z"""
    return _time(epoch).strftime("%Y-%m-%dT%H:%M:%SZ")


def _leaf(text: bytes) -> x509.Certificate:
    """The first certificate in a PEM text.  Raises Unusable if there is none."""
    found = _CERTIFICATE.search(text)
    try:
        if found:
            return x509.load_pem_x509_certificate(found[0])
    except (ValueError, x509.InvalidVersion):
        pass
    raise Unusable("there is no certificate in PEM")


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return frozenset()
    addresses = {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    return frozenset({*found.get_values_for_type(x509.DNSName), *addresses})


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, starts: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _time(epoch: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(epoch))


def _epoch(time: datetime) -> float:
    return time.timestamp()
