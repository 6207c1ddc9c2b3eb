"""Programs out of Debian's packages, unpacked into a cache without being installed, which needs no rights."""

import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path.home() / ".cache" / "drumbeat-tests"
_APT_SECONDS = 120.0


class Unavailable(Exception):
    """There is no such program to be had here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server's program, which is laid with the libraries it needs into one folder."""

    name: str  #: of the program's file
    folder: str  #: of the cache
    packages: tuple[str, ...]
    depending: str  #: the package that names the libraries' packages
    lay_out: Callable[[Path, Path], None]  #: from an unpacked tree into the folder; libraries are laid out already

    def unpacked(self) -> Path:
        """The folder, filled the first time. Raises Unavailable."""
        place = CACHE / f"{self.folder}-{platform.machine()}"
        if not (place / self.name).exists():
            self._unpack_into(place)
        return place

    def _unpack_into(self, place: Path) -> None:
        """Fetch the packages and move them into place at once, so that two test processes may do it together."""
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise Unavailable(f"no {self.name} in the path, and no apt-get and dpkg to fetch Debian's package with")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            flat = Path(work) / "flat"
            flat.mkdir()
            self._fill(Path(work), flat)
            try:
                flat.rename(place)
            except OSError:
                if not (place / self.name).exists():
                    raise

    def _fill(self, work: Path, flat: Path) -> None:
        self._lay_out(fetched(work, self.packages), flat)
        for choose in (_named_alike, _all_libraries):
            missing = missing_libraries(flat / self.name)
            if missing and (wanted := choose(_depends(work, self.depending), missing)):
                self._lay_out(fetched(work, wanted), flat)
        if missing := missing_libraries(flat / self.name):
            raise Unavailable(f"Debian's {self.name} needs libraries that are not here: {', '.join(missing)}")

    def _lay_out(self, tree: Path, flat: Path) -> None:
        for library in tree.rglob("lib*.so.*"):
            shutil.copy(library, flat / library.name)
        self.lay_out(tree, flat)


def fetched(work: Path, packages: Sequence[str]) -> Path:
    """The tree that packages make, unpacked over one another. Raises Unavailable."""
    if not apt(work, "download", *packages):
        apt(work, "update")
        if not apt(work, "download", *packages):
            raise Unavailable(f"apt-get download {' '.join(packages)} failed, also after apt-get update")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(work / "tree")], check=True, capture_output=True)
    return work / "tree"


def apt(work: Path, *arguments: str) -> bool:
    """Whether apt-get could do it."""
    try:
        done = subprocess.run(["apt-get", "-q", *arguments], cwd=work, capture_output=True, check=False, timeout=_APT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def missing_libraries(program: Path) -> list[str]:
    """What a program needs and finds neither beside it nor in the system."""
    environment = {"LD_LIBRARY_PATH": str(program.parent), "PATH": "/usr/bin:/bin"}
    listing = subprocess.run(["ldd", str(program)], env=environment, check=False, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listing.splitlines() if "not found" in line]


def _depends(work: Path, package: str) -> list[str]:
    [file] = work.glob(f"{package}_*.deb")
    told = subprocess.run(["dpkg", "-f", str(file), "Depends"], check=True, capture_output=True, text=True).stdout
    return [re.split(r"[ |(:]", part.strip())[0] for part in told.split(",")]


def _named_alike(packages: Sequence[str], missing: Sequence[str]) -> list[str]:
    """Those whose names begin like the libraries that are missing."""
    wanted = tuple(library.partition(".so")[0] for library in missing)
    return [name for name in packages if name.startswith(wanted)]


def _all_libraries(packages: Sequence[str], _: Sequence[str]) -> list[str]:
    return [name for name in packages if name.startswith("lib") and name != "libc6"]
