"""A dashboard for browser tests: the real command, on a store with something in it."""

import base64
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.given import environment
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.settings import Settings
from servers.reaper import reaper

PATIENCE = 60.0  #: seconds for a server to come up
ANNOUNCED = "serving at "
KEY = base64.b64encode(b"k" * 32).decode()  #: what a server seals passwords with


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that answers."""

    address: str
    store: str  #: its store's URL, for tests to look into
    folder: Path

    def url(self, path: str = "/") -> str:
        return f"{self.address}{path}"


async def filled(folder: Path, build: Callable[[ControlPlane], Awaitable[object]]) -> str:
    """A SQLite store in a folder, with what ``build`` puts into it; answers with its URL."""
    settings = Settings(store=f"sqlite:///{folder}/drumbeat.db", state_dir=folder / "state")
    async with open_control_plane(settings, create=True) as plane:
        await build(plane)
    return settings.store


@contextmanager
def serving(folder: Path, store: str, *options: str, **variables: str) -> Iterator[Served]:
    """``drumbeat serve`` as a process of its own, working in ``folder``, from its first answer to the end of the block."""
    log = folder / "serve.log"
    command = (sys.executable, "-m", "drumbeat", "serve", "--port", "0", *options)
    around = environment(DRUMBEAT_STORE=store, DRUMBEAT_STATE_DIR=str(folder / "state"), **variables)
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=folder, env=around, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        reaper().watch(process.pid)
        try:
            yield Served(address=_address(process, log), store=store, folder=folder)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
                reaper().forget(process.pid)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.startswith(ANNOUNCED), f"expected the server to come up, got {line!r} and:\n{log.read_text()[-4000:]}"
    return line.removeprefix(ANNOUNCED)
