"""A certificate for servers on this machine."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Authority", "certificate"]


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for this machine that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").touch(0o600)
    (folder / "tls.key").write_bytes(private)
    return str(folder / "cert.pem"), str(folder / "tls.key")


class Authority:
    """A private certificate authority, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        cert, key = certificate(folder)
        self.file = cert
        self._folder = folder
        self._name = x509.load_pem_x509_certificate(Path(cert).read_bytes()).subject
        loaded = serialization.load_pem_private_key(Path(key).read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded

    def issue(self, name: str) -> tuple[str, str]:
        """A certificate for a host name, or an address of this machine, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        here = name.replace(".", "").isdecimal()
        alternative = x509.IPAddress(ipaddress.ip_address(name)) if here else x509.DNSName(name)
        made = (
            x509.CertificateBuilder(self._name, x509.Name([]), key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        cert, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.touch(0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(cert), str(private)
