"""Certificates for servers under test: signed by themselves, good for loopback and for two days."""

import shutil
import subprocess
from pathlib import Path

LOOPBACK = "DNS:localhost,IP:127.0.0.1"


def can_make_certificates() -> bool:
    return shutil.which("openssl") is not None


def make_certificate(folder: Path, names: str = LOOPBACK) -> Path:
    """``certificate.pem`` and ``key.pem`` in a folder; answers with the first, which is also the root that vouches for it."""
    subject = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={names}", "-days", "2"]
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *subject, *files],
        check=True,
        capture_output=True,
    )
    return certificate
