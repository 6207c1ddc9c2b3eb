"""Debian's Chromium for browser tests: the system's, else fetched and unpacked into the cache, which needs no rights.

Of its two forms the headless shell: the other draws its own window's pages beside the one that is tested.
"""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from servers.debian import CACHE, Unavailable

PACKAGES = ("chromium-headless-shell", "fonts-liberation")
_NAMES = ("chromium-headless-shell", "chromium")
_APT_SECONDS = 300.0
_PROGRAM = Path("usr/lib/chromium/chromium-headless-shell")
_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>{fonts}</dir>
  <cachedir>{cache}</cachedir>
</fontconfig>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A browser, and what its environment needs beside this process's."""

    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@cache
def installation() -> Installation:
    """A Chromium that starts. Raises Unavailable."""
    if (found := _of_the_system()) is not None:
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable(
            "no chromium-headless-shell and no chromium in the path, and no apt-get and dpkg to fetch Debian's package with"
        )
    return _unpacked()


def _of_the_system() -> Installation | None:
    places = f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin"
    programs = (shutil.which(name, path=places) for name in _NAMES)
    return next((Installation(program=Path(program)) for program in programs if program), None)


def _unpacked() -> Installation:
    """Every package that is not here yet, laid over one another in one folder; two test processes may do it together."""
    place = CACHE / f"chromium-headless-shell-{platform.machine()}"
    if not (place / _PROGRAM).exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            tree = _fetch(Path(work))
            try:
                tree.rename(place)
            except OSError:
                if not (place / _PROGRAM).exists():
                    raise
    return _in_a_tree(place)


def _fetch(work: Path) -> Path:
    missing = _missing_packages(work)
    if not missing or not _run("download", *missing, folder=work):
        _run("update")
        missing = _missing_packages(work)
        if not missing or not _run("download", *missing, folder=work):
            raise Unavailable(f"apt-get download {' '.join(missing or PACKAGES)} failed, also after apt-get update")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(work / "tree")], check=True, capture_output=True)
    return work / "tree"


def _missing_packages(work: Path) -> Sequence[str]:
    """What an installation would bring; asking needs no rights."""
    command = ["apt-get", "-s", "-o", "Debug::NoLocking=1", "install", "--no-install-recommends", *PACKAGES]
    told = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False, timeout=_APT_SECONDS)
    return re.findall(r"^Inst (\S+)", told.stdout, re.MULTILINE)


def _in_a_tree(tree: Path) -> Installation:
    libraries = ":".join(sorted({str(library.parent) for library in tree.rglob("*.so*") if library.is_file()}))
    fonts = tree / "fonts.conf"
    fonts.write_text(_FONTS.format(fonts=tree / "usr/share/fonts", cache=tree / "font-cache"))
    return Installation(program=tree / _PROGRAM, environment={"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(fonts)})


def _run(*arguments: str, folder: Path | None = None) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=_APT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
