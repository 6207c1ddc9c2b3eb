"""Mutation testing: plant known bugs in a copy of the source, one at a time, and check that the tests catch them.

The bugs are listed in benchmarks/planted/, one file for each area; kit/planting.py describes an entry. The checkout is never
changed: each slot has a copy of it and its own PostgreSQL. First the tests run on the unchanged copy and must pass. A bug is
caught when a test fails; a test run that hangs counts only if the entry says so. The exit status is 1 if fewer than 95 % are
caught, or if a bug no longer fits the source, breaks the import or has no tests.

python benchmarks/planted.py --area fleet --jobs 2
python benchmarks/planted.py --only 'settle_and_claim' --survivors survivors.txt
"""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import cache_from_source
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

import kit  # noqa: F401  (makes the tests' servers importable)
from kit.planting import Bug, CannotPlant, listed
from kit.report import Report, parser, print_table, say
from servers.places import memory_folder
from servers.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
ENOUGH = 0.95
QUICK = 20  #: bugs of a quick run
LIMIT_SECONDS = 180.0
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
_CAUGHT, _SURVIVED, _BROKEN = "caught", "survived", "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result for one bug."""

    bug: Bug
    outcome: str
    by: str  #: the test that failed, or what went wrong
    seconds: float


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
    """Like ``run_all``; tests that a signal killed are run a second time, because Snowflake's connector, which is compiled,
    sometimes crashes its process. A bug in our own C code is meant to crash it."""
    killed: list[tuple[Bug | None, Sequence[str]]] = []
    for done, code in run_all(slots, work, limit):
        if code is not None and code < 0 and not (done.bug and done.bug.file.endswith(".c")):
            say(f"a signal killed the tests {' '.join(done.tests)}; they are run again")
            killed.append((done.bug, done.tests))
        else:
            yield done, code
    yield from run_all(slots, killed, limit)


def judged(done: Running, bug: Bug, code: int | None) -> Finding:
    seconds = time.monotonic() - done.began
    seen = done.slot.seen_by.read_text() if done.slot.seen_by.exists() else ""
    if code is None:
        outcome, by = (_CAUGHT if bug.hangs else _SURVIVED), "the tests did not end in time"
    elif code == 0:
        outcome, by = _SURVIVED, ""
    elif code < 0:
        outcome, by = _CAUGHT, f"the tests were killed by signal {-code}"
    elif seen:
        outcome, by = _CAUGHT, seen
    else:
        outcome, by = _BROKEN, f"pytest ended with {code}: {done.slot.log_tail().splitlines()[-1:]}"
    return Finding(bug=bug, outcome=outcome, by=by, seconds=seconds)


def check_green(slots: Sequence[Slot], bugs: Sequence[Bug], limit: float) -> None:
    """Check that the chosen tests pass without a bug; exit if not."""
    by_file: dict[str, set[str]] = {}
    for test in (test for bug in bugs for test in bug.tests):
        by_file.setdefault(test.partition("::")[0], set()).add(test)
    say(f"running the chosen tests of {len(by_file)} files without a bug")
    red = [
        f"without a bug pytest ended with {code} on {' '.join(done.tests)}:\n{done.slot.log_tail()}"
        for done, code in run_killed_again(slots, [(None, sorted(tests)) for tests in by_file.values()], limit * 4)
        if code != 0
    ]
    if red:
        raise SystemExit("\n".join(red))


def find(slots: Sequence[Slot], bugs: Sequence[Bug], limit: float) -> list[Finding]:
    found: list[Finding] = []
    for done, code in run_killed_again(slots, [(bug, bug.tests) for bug in bugs], limit):
        assert done.bug is not None
        finding = judged(done, done.bug, code)
        found.append(finding)
        which = f"{finding.bug.area}: {finding.bug.name}"
        say(f"{len(found):4}/{len(bugs)} {finding.seconds:5.1f} s  {finding.outcome:8}  {which}  {finding.by}")
    return found


def fits(bugs: Sequence[Bug]) -> list[str]:
    """Errors for bugs that no longer fit the source."""
    wrong: list[str] = []
    for bug in bugs:
        try:
            bug.planted_in((ROOT / "src" / "drumbeat" / bug.file).read_text())
        except (CannotPlant, FileNotFoundError) as exc:
            wrong.append(str(exc))
    return wrong


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


def tell(found: Sequence[Finding], survivors: Path | None, seconds: float) -> bool:
    """Print the results; returns whether enough bugs were caught."""
    caught = Counter(each.bug.area for each in found if each.outcome == _CAUGHT)
    areas = Counter(each.bug.area for each in found)
    share = caught.total() / len(found)
    print_table(
        ["area", "planted", "caught", "%"],
        [
            [area, number, caught[area], 100 * caught[area] / number]
            for area, number in [
                *areas.items(),
            ]
        ],
    )
    say(f"{caught.total()} of {len(found)} caught ({100 * share:.1f} %) in {seconds:.0f} s")
    left = [each for each in found if each.outcome != _CAUGHT]
    lines = [f"{each.outcome}: {each.bug.area}: {each.bug.name}: {each.bug.breaks} {each.by}".rstrip() for each in left]
    for line in lines:
        say(line)
    if survivors:
        survivors.write_text("".join(f"{line}\n" for line in lines))
    report = Report("planted", ratios={"caught": share})
    report.figures = {
        "areas": {area: f"{caught[area]}/{areas[area]}" for area in areas},
        "seconds": seconds,
        "survivors": lines,
    }
    report.print()
    return share >= ENOUGH and all(each.outcome != _BROKEN for each in left)


def main() -> int:
    options = parser(__doc__)
    options.add_argument(
        "--only", metavar="PATTERN", help="only bugs whose name, file or guarantee matches this regular expression"
    )
    options.add_argument("--area", action="append", help="only bugs of this area (repeatable)")
    options.add_argument("--jobs", type=int, default=2, help="bugs tested in parallel")
    options.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, metavar="SECONDS", help="time limit for the tests of one bug"
    )
    options.add_argument("--list", action="store_true", help="print the list and exit")
    options.add_argument("--survivors", type=Path, metavar="FILE", help="write the bugs that were not caught to this file")
    options.add_argument("--unchecked", action="store_true", help="skip the first run without a bug")
    chosen = options.parse_args()
    bugs = [bug for bug in listed() if not chosen.area or bug.area in chosen.area]
    if chosen.only:
        bugs = [bug for bug in bugs if re.search(chosen.only, f"{bug.name}\n{bug.file}\n{bug.breaks}")]
    if chosen.quick:
        bugs = bugs[:: max(1, len(bugs) // QUICK)]
    if chosen.list:
        for bug in bugs:
            print(json.dumps({"area": bug.area, "name": bug.name, "file": bug.file, "breaks": bug.breaks, "tests": bug.tests}))
        return 0
    if wrong := fits(bugs):
        say("\n".join(wrong))
        return 1
    if not bugs:
        say("no bug matches --area and --only")
        return 1
    load_once()
    began = time.monotonic()
    with ExitStack() as stack:
        slots: list[Slot] = []
        for _ in range(min(chosen.jobs, len(bugs))):
            folder = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="drumbeat-planted-", dir=memory_folder(), ignore_cleanup_errors=True)
                )
            )
            slots.append(Slot(folder, stack.enter_context(PostgresServer(settings={"fsync": "off"}, folder=memory_folder()))))
        if not chosen.unchecked:
            check_green(slots, bugs, chosen.limit)
        found = find(slots, bugs, chosen.limit)
    return 0 if tell(found, chosen.survivors, time.monotonic() - began) else 1


if __name__ == "__main__":
    sys.exit(main())
