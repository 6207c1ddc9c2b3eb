"""Peers to be measured beside: each in an environment of its own, made when first asked for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "drumbeat-benchmarks"


class PeerMissing(Exception):
    """A peer that cannot be had on this machine, and why."""


def python_with(name: str, *packages: str) -> Path:
    """A Python that has these packages. Raises PeerMissing."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        if installed.returncode:
            raise PeerMissing(f"{', '.join(packages)} cannot be installed: {installed.stderr.strip()[-200:]}")
        (folder / ".ready").touch()
    return python


def program_from_debian(name: str, *packages: str) -> Path:
    """A program from Debian's packages, unpacked without installing. Raises PeerMissing."""
    if found := shutil.which(name):
        return Path(found)
    folder = CACHE / f"debian-{name}"
    program = folder / "usr" / "bin" / name
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        downloaded = subprocess.run(["apt-get", "download", *packages], cwd=folder, capture_output=True, text=True, check=False)
        if downloaded.returncode:
            raise PeerMissing(f"{name} cannot be had from Debian's packages: {downloaded.stderr.strip()[-200:]}")
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    return program
