"""Real processes for end-to-end tests: started together, none left behind, and waiting that has an end."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 180.0  #: seconds for anything to happen: not how long it takes, but how long a busy machine may need
_PROGRAMS = Path(__file__).parent / "programs"


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(_PROGRAMS / f"{program}.py"), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def cleared_away(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    """Whatever happens inside, the processes are gone after."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def finished(process: subprocess.Popen[str], within: float = PATIENCE) -> str:
    """What a process printed, once it has ended well."""
    out, err = process.communicate(timeout=within)
    assert process.returncode == 0, err[-2000:]
    return out


async def eventually(happened: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + PATIENCE
    while not await happened():
        assert time.monotonic() < deadline, f"expected within {PATIENCE:g} s: {what}"
        await asyncio.sleep(0.05)
