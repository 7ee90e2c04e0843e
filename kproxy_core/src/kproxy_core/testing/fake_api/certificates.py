"""Certificates for the fake API server: an authority of its own, server and client certificates, made in memory."""

import datetime
import ipaddress
from collections.abc import Sequence

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=1)
BACKDATED = datetime.timedelta(minutes=5)
"""Certificates are valid from this long ago, so that a clock which is a little behind does not refuse them."""


@frozen(kw_only=True)
class Certificate:
    """A certificate and its key, both PEM, and the serial number by which a server can refuse it."""

    certificate: bytes
    key: bytes
    serial: int


class Authority:
    """Signs certificates. Two authorities with the same name are still two: neither verifies what the other signed."""

    def __init__(self, name: str = "fake-api-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _sign(_name(name), _name(name), self._key, self._key, _authority_extensions(self._key))

    @property
    def pem(self) -> bytes:
        """The authority's own certificate: what belongs into ``certificate-authority-data``."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, names: Sequence[str] = ("localhost", "127.0.0.1", "::1")) -> Certificate:
        """Make a certificate for a server that is reached by ``names``: host names or addresses."""
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        return self._issue(_name("kube-apiserver"), (alternatives, _usage(ExtendedKeyUsageOID.SERVER_AUTH)))

    def client(self, user: str, groups: Sequence[str] = ()) -> Certificate:
        """Make a client certificate for ``user`` (the common name) in ``groups`` (organisations), as kubeadm does."""
        return self._issue(_name(user, groups), (_usage(ExtendedKeyUsageOID.CLIENT_AUTH),))

    def _issue(self, subject: x509.Name, extensions: Sequence[x509.ExtensionType]) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        made = _sign(subject, self._certificate.subject, key, self._key, (*extensions, *self._leaf_extensions(key)))
        return Certificate(
            certificate=made.public_bytes(serialization.Encoding.PEM), key=_key_pem(key), serial=made.serial_number
        )

    def _leaf_extensions(self, key: ec.EllipticCurvePrivateKey) -> tuple[x509.ExtensionType, ...]:
        # OpenSSL's strict mode, Python's default since 3.13, wants both key identifiers.
        return (
            x509.BasicConstraints(ca=False, path_length=None),
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )


def _authority_extensions(key: ec.EllipticCurvePrivateKey) -> tuple[x509.ExtensionType, ...]:
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (x509.BasicConstraints(ca=True, path_length=None), usage, identifier)


def _usage(purpose: x509.ObjectIdentifier) -> x509.ExtendedKeyUsage:
    return x509.ExtendedKeyUsage([purpose])


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extensions: Sequence[x509.ExtensionType],
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, hashes.SHA256())


def _name(common_name: str, organisations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation) for organisation in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
