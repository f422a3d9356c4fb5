"""Credentials of a Dask cluster: mutual TLS between its processes.

A private cluster has its own key, in the run's temporary folder. For a permanent cluster, `python -m indexmill_pipeline
flows.credentials FOLDER` writes a key and a certificate valid for ten years, unless the folder has them.
"""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

_CERTIFICATE = "certificate.pem"
_KEY = "key.pem"


def write_credentials(folder: Path, days: int = 365) -> None:
    """Write a new key and its self-signed certificate into a folder, readable by this user only.

    Holders of the certificate trust holders of the key, in every role. The certificate is written last: a key without
    a certificate was left by a killed process, and is replaced. Raises FileExistsError if the folder has a
    certificate, OSError if it cannot be written to.
    """
    if (folder / _CERTIFICATE).exists():
        raise FileExistsError(f"{folder / _CERTIFICATE} already exists; for new credentials, remove it and {_KEY}")
    from cryptography import x509  # imported late, to keep the start of commands fast
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "indexmill")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # the clock may be set back
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(folder / _KEY, text)
    _write(folder / _CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))


def dask_settings(folder: Path) -> dict[str, object]:
    """Return Dask's settings for a cluster open only to holders of the credentials in a folder."""
    pair = {"cert": str(folder / _CERTIFICATE), "key": str(folder / _KEY)}
    roles = {
        f"distributed.comm.tls.{role}.{what}": path
        for role in ("client", "scheduler", "worker")
        for what, path in pair.items()
    }
    return {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.min-version": 1.3,
        "distributed.comm.tls.ca-file": pair["cert"],
        **roles,
    }


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by this user alone."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)  # left by a killed process
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m indexmill_pipeline flows.credentials",
        description="Write a key and a certificate of ten years for a Dask cluster, unless the folder has them.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where key.pem and certificate.pem are written")
    folder = parser.parse_args().folder
    try:
        if not (folder / _CERTIFICATE).exists():
            write_credentials(folder, days=3650)
    except OSError as error:
        parser.exit(2, f"{parser.prog}: cannot write credentials to {folder}: {error.strerror or error}\n")


if __name__ == "__main__":
    _main()
