"""Runs tests in copies of the checkout (slots), one planted bug at a time in each: for benchmarks/planted.py.

Each run is a forked child of this process, which has pytest and common imports loaded already.
"""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import cache_from_source
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from kit.planting import Bug
from kit.report import say
from servers.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "artefacts", "*.db*")
_OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "0"]
_LOADED_ONCE = (
    "asyncio",
    "asyncpg",
    "fastapi",
    "httpx",
    "msgspec",
    "numpy",
    "psutil",
    "pyarrow",
    "pydantic",
    "rich.console",
    "typer",
)
_CORE = Path("bench", "driver", "core.c")
_LOOPS = "asyncio_default_fixture_loop_scope=session"  #: if unset, pytest-asyncio warns


class Watch:
    """A pytest plugin: runs only the chosen tests, with the slot's PostgreSQL, and records the first that fails."""

    def __init__(self, slot: "Slot", tests: Sequence[str]) -> None:
        self._slot = slot
        self._chosen: dict[str, set[str]] = {}
        for test in tests:
            path, _, name = test.partition("::")
            self._chosen.setdefault(path, set()).add(name)

    @property
    def files(self) -> list[str]:
        return sorted(self._chosen)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if self._is_chosen(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def _is_chosen(self, item: pytest.Item) -> bool:
        names = self._chosen[item.nodeid.partition("::")[0]]
        return "" in names or getattr(item, "originalname", item.name) in names

    def pytest_collection_finish(self) -> None:
        import drumbeat

        if not Path(drumbeat.__file__).is_relative_to(self._slot.folder):
            pytest.exit(f"expected drumbeat from {self._slot.folder}, got {drumbeat.__file__}", returncode=4)

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> PostgresServer | None:
        if fixturedef.argname != "postgres":
            return None
        fixturedef.cached_result = (self._slot.postgres, fixturedef.cache_key(request), None)
        return self._slot.postgres

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._slot.seen_by.exists():
            self._slot.seen_by.write_text(report.nodeid + ("" if report.when == "call" else f" ({report.when})"))

    def pytest_sessionfinish(self) -> None:
        made = self._slot.postgres.sql(f"SELECT datname FROM pg_database WHERE datname LIKE 'test\\_{os.getpid()}\\_%'")
        for name in made.split():
            self._slot.postgres.drop_database(name)


class Slot:
    """A copy of the checkout, with a PostgreSQL, for one bug at a time."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self.folder, self.postgres = folder, postgres
        self.seen_by = folder / "seen-by.txt"
        self._source = folder / "src" / "drumbeat"
        shutil.copytree(ROOT, folder, ignore=_LEFT_OUT, dirs_exist_ok=True)
        (folder / "tmp").mkdir()
        _compile(self._source / _CORE)
        found = subprocess.run(
            [sys.executable, "-c", "import drumbeat; print(drumbeat.__file__)"],
            env={**os.environ, **self._environment()},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if Path(found) != self._source / "__init__.py":
            raise SystemExit(f"expected processes to import drumbeat from {self._source}, got {found}")

    def plant(self, bug: Bug) -> None:
        self._write(bug, bug.planted_in((ROOT / "src" / "drumbeat" / bug.file).read_text()))

    def clear(self, bug: Bug) -> None:
        self._write(bug, (ROOT / "src" / "drumbeat" / bug.file).read_text())

    def _write(self, bug: Bug, text: str) -> None:
        path = self._source / bug.file
        path.write_text(text)
        if path.suffix == ".py":  # Python compares bytecode only by whole seconds and size
            Path(cache_from_source(str(path))).unlink(missing_ok=True)
        if path.suffix == ".c":
            _compile(path)

    def _environment(self) -> Mapping[str, str]:
        return {
            "PYTHONPATH": str(self.folder / "src"),
            "TMPDIR": str(self.folder / "tmp"),
            "DRUMBEAT_TEST_SNOWFLAKE": "1",  # else the tests on the emulator are left out
        }

    def start(self, tests: Sequence[str]) -> multiprocessing.context.ForkProcess:
        """Run tests in a forked child, which has pytest already loaded; its exit code is pytest's."""
        self.seen_by.unlink(missing_ok=True)
        child = multiprocessing.get_context("fork").Process(target=self._run, args=(tests,))
        child.start()
        return child

    def _run(self, tests: Sequence[str]) -> None:
        os.setsid()
        log = os.open(self.folder / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.environ |= self._environment()
        os.chdir(self.folder)
        tempfile.tempdir = None
        sys.path[:0] = [str(self.folder / "src"), str(self.folder / "tests")]
        watch = Watch(self, tests)
        os._exit(
            int(pytest.main([*_OPTIONS, "--basetemp", str(self.folder / "tmp" / "pytest"), *watch.files], plugins=[watch]))
        )

    def log_tail(self) -> str:
        return (self.folder / "pytest.log").read_text(errors="replace")[-2000:]


def _compile(path: Path) -> None:
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(path.with_name("_core.so")), str(path)], check=True)


@dataclass(slots=True)
class Running:
    """A test run in a slot, with or without a bug."""

    slot: Slot
    child: multiprocessing.context.ForkProcess
    began: float
    bug: Bug | None
    tests: Sequence[str]

    def ends_at(self, limit: float) -> float:
        return self.began + limit

    def end(self) -> None:
        """End the tests and all processes they started."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid or 0, signal.SIGKILL)
        self.child.join()


def run_all(
    slots: Sequence[Slot], work: Sequence[tuple[Bug | None, Sequence[str]]], limit: float
) -> Iterator[tuple[Running, int | None]]:
    """Run each piece of work in a free slot; yields it with pytest's exit code, or None after the time limit."""
    free, waiting, running = list(slots), list(reversed(work)), list[Running]()
    while waiting or running:
        while waiting and free:
            bug, tests = waiting.pop()
            slot = free.pop()
            if bug:
                slot.plant(bug)
            running.append(Running(slot, slot.start(tests), time.monotonic(), bug, tests))
        soonest = min(each.ends_at(limit) for each in running) - time.monotonic()
        wait([each.child.sentinel for each in running], max(0.0, soonest))
        for each in list(running):
            code = each.child.exitcode
            if code is None and time.monotonic() < each.ends_at(limit):
                continue
            each.end()
            running.remove(each)
            yield each, code
            if each.bug:
                each.slot.clear(each.bug)
            free.append(each.slot)


def run_killed_again(
    slots: Sequence[Slot], work: Sequence[tuple[Bug | None, Sequence[str]]], limit: float
) -> Iterator[tuple[Running, int | None]]:
    """Like ``run_all``, but run tests a second time if a signal killed them, because Snowflake's compiled connector sometimes
    crashes its process. A bug planted in C code is excepted: it may be what crashed the process."""
    killed: list[tuple[Bug | None, Sequence[str]]] = []
    for done, code in run_all(slots, work, limit):
        if code is not None and code < 0 and not (done.bug and done.bug.file.endswith(".c")):
            say(f"a signal killed the tests {' '.join(done.tests)}; they are run again")
            killed.append((done.bug, done.tests))
        else:
            yield done, code
    yield from run_all(slots, killed, limit)


def load_once() -> None:
    """Load pytest, its plugins and common imports once; every child is forked from this process."""
    with tempfile.TemporaryDirectory() as empty, open(os.devnull, "w") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        pytest.main(
            [
                *_OPTIONS,
                "--noconftest",
                "-c",
                os.devnull,
                "--rootdir",
                empty,
                "-p",
                "no:schemathesis",
                "-o",
                _LOOPS,
                "--collect-only",
                empty,
            ]
        )
        os.dup2(kept, 1)
        os.close(kept)
    for name in _LOADED_ONCE:
        with suppress(ImportError):
            import_module(name)
