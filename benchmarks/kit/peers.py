"""Installs the tools that Drumbeat is compared with, each in its own environment, at its first use."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "drumbeat-benchmarks"


class PeerMissing(Exception):
    """A tool is not available on this machine; the message says why."""


def python_with(name: str, *packages: str) -> Path:
    """Return a Python interpreter with these packages; installs them at the first call. Raises PeerMissing."""
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
    """Return a program from Debian packages, which are unpacked with their libraries but not installed. Raises PeerMissing.

    The folder gets its final name, which depends on the packages, only after all of them are unpacked.
    """
    if found := shutil.which(name):
        return Path(found)
    wanted = sorted({name, *packages})
    folder = CACHE / f"debian-{name}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:8]}"
    program = folder / "usr" / "bin" / name
    if not program.exists() or missing_libraries(program):
        shutil.rmtree(folder, ignore_errors=True)
        _unpack(wanted, folder)
    if missing := missing_libraries(program):
        raise PeerMissing(f"{name} needs libraries that {', '.join(wanted)} do not have: {', '.join(missing)}")
    return program


def _unpack(packages: Sequence[str], folder: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        command = ["apt-get", "download", *packages]
        downloaded = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if downloaded.returncode:
            raise PeerMissing(f"{', '.join(packages)} cannot be downloaded from Debian: {downloaded.stderr.strip()[-200:]}")
        tree = Path(work) / "tree"
        for package in Path(work).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(tree)], check=True)
        tree.rename(folder)


def libraries_of(program: Path) -> dict[str, str]:
    """Return the environment variables with which an unpacked program finds its libraries."""
    folders = [*program.parents[2].glob("lib/*-linux-gnu*"), *program.parents[2].glob("usr/lib/*-linux-gnu*")]
    return {"LD_LIBRARY_PATH": ":".join(map(str, folders))} if CACHE in program.parents else {}


def missing_libraries(program: Path) -> list[str]:
    environment = {**os.environ, **libraries_of(program)}
    listed = subprocess.run(["ldd", str(program)], env=environment, capture_output=True, text=True, check=False).stdout
    return [line.split()[0] for line in listed.splitlines() if "not found" in line]
