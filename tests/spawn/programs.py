"""Small programs that stand in for workers and controllers, and ways to watch them."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PATIENCE_SECONDS = 180.0

#: runs until SIGTERM, then leaves with 0; a test that is killed does not leave it behind for long
WORKER = """
import signal, sys
signal.alarm(120)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", *sys.argv[1:], flush=True)
while True:
    signal.pause()
"""

#: the same, on its leash
LEASHED = (
    """
from drumbeat.spawn.leash import hold_leash
print("leash", hold_leash(), flush=True)
"""
    + WORKER
)

#: has a child in its own group and one in a session apart
PARENT = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(120)"]
near, far = subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)
print("children", near.pid, far.pid, flush=True)
near.wait()
"""

#: leaves with 3, and leaves a child in a session apart
LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
print("children", child.pid, flush=True)
sys.exit(3)
"""

#: has a child that carries no tags
PARENT_OF_A_STRANGER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], env={})
print("children", child.pid, flush=True)
child.wait()
"""

#: says the ref of each worker it spawned; sys.argv: folder, survive or not, program, then worker names
CONTROLLER = """
import asyncio, sys
from pathlib import Path
from drumbeat.spawn.interface import Order
from drumbeat.spawn.local import LocalSpawner

async def main(folder, survive, program, *names):
    command = (sys.executable, "-c", program)
    print("started", flush=True)
    sys.stdin.readline()
    async with LocalSpawner(Path(folder), {}, survive=survive == "survive") as spawner:
        orders = [Order(pool_id="p", worker_id=n, slot=0, group_count=1, command=command) for n in names]
        for instance in await asyncio.gather(*map(spawner.spawn, orders)):
            print(instance.ref, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(*sys.argv[1:]))
"""


def python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program, *arguments)


def exits(code: int) -> tuple[str, ...]:
    return python(f"raise SystemExit({code})")


def process_of(ref: str) -> psutil.Process:
    return psutil.Process(int(ref.partition(":")[0]))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(wish: Callable[[], bool], what: str) -> None:
    """Return once the wish is true; fails after a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not wish():
        assert time.monotonic() < deadline, f"expected within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(0.01)


def said(log: Path, word: str) -> list[str]:
    """What follows the word in the first line that begins with it, once there is one."""

    def lines() -> list[list[str]]:
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        return [line.split()[1:] for line in whole.splitlines() if line.split()[:1] == [word]]

    eventually(lambda: bool(lines()), f"a line in {log} that begins with {word!r}")
    return lines()[0]
