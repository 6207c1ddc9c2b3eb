"""The queues to compare on each store, their settings, and how to run one of them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kit.peers import PeerMissing, python_with
from kit.pool_course import Course

_BENCHMARKS = Path(__file__).parents[1]
_LONGEST = 900.0  #: seconds for one run
Settings = tuple[int | str, ...]
Found = Mapping[str, float]


class RunFailed(Exception):
    """A run without a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A queue, and how it is measured."""

    name: str
    store: str  #: postgresql, sqlite or redis
    program: str  #: the kit's module for it
    settings: Settings  #: settings to try; without a sweep the first is used
    jobs: int  #: in a full run; slow queues get fewer
    environment: tuple[str, ...] = ()  #: name and packages of its environment; empty: this Python

    @property
    def is_ours(self) -> bool:
        return not self.environment

    def course(self, url: str, setting: int | str, share: float) -> Course:
        """Push a tenth of the jobs one by one and the rest in batches of each size, then process all of them."""
        jobs = max(int(self.jobs * share) // 20, 5) * 20
        batched = jobs * 9 // 20
        return Course(url=url, setting=setting, singles=jobs - 2 * batched, batched=batched, jobs=jobs)

    def run(self, course: Course) -> Found:
        """Run the queue in a separate process, and return its figures. Raises PeerMissing, RunFailed."""
        python = str(python_with(*self.environment)) if self.environment else sys.executable
        command = [python, "-m", self.program, self.name, json.dumps(asdict(course))]
        process = subprocess.Popen(
            command, cwd=_BENCHMARKS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            output, errors = process.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired as exc:
            raise RunFailed(f"{self.name} on {self.store} took longer than {_LONGEST:.0f} s") from exc
        finally:
            _end_group(process.pid)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            raise RunFailed(f"{self.name} on {self.store} ended with {process.returncode}: {errors.strip()[-1500:]}")
        found: Found = json.loads(lines[-1])
        return found


def _end_group(pid: int) -> None:
    """End the process with all workers it forked."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


_SQLITE = ("queues-sqlite", "huey", "litequeue", "persist-queue")


def _ours(store: str, jobs: int) -> Contender:
    return Contender(name="ours", store=store, program="kit.pool_ours", settings=(10, 100, 500), jobs=jobs)


def _postgres(name: str, settings: Settings, jobs: int, *environment: str) -> Contender:
    program = "kit.pool_peers_postgres"
    return Contender(
        name=name, store="postgresql", program=program, settings=settings, jobs=jobs, environment=(name, *environment)
    )


def _sqlite(name: str, settings: Settings, jobs: int) -> Contender:
    return Contender(
        name=name, store="sqlite", program="kit.pool_peers_sqlite", settings=settings, jobs=jobs, environment=_SQLITE
    )


def _redis(name: str, settings: Settings, jobs: int, *environment: str) -> Contender:
    return Contender(
        name=name, store="redis", program="kit.pool_peers_redis", settings=settings, jobs=jobs, environment=environment
    )


CONTENDERS: Sequence[Contender] = (
    _ours("postgresql", 40_000),
    _postgres("pgqueuer", (500, 100, 1000), 40_000, "pgqueuer", "asyncpg", "uvloop"),
    _postgres("procrastinate", (10, 50), 2_000, "procrastinate", "psycopg[binary,pool]"),
    _ours("sqlite", 40_000),
    _sqlite("huey", (1, 4), 4_000),
    _sqlite("huey, no fsync", (1, 4), 10_000),
    _sqlite("litequeue", (1,), 4_000),
    _sqlite("persist-queue", (1,), 4_000),
    _ours("redis", 40_000),
    _redis("huey", (1, 4), 10_000, "huey-redis", "huey", "redis", "hiredis"),
    _redis("dramatiq", (16, 4, 1), 10_000, "dramatiq", "dramatiq[redis]", "hiredis"),
    _redis("rq", ("SimpleWorker", "Worker"), 1_000, "rq", "rq", "hiredis"),
    _redis("saq", (10, 100), 4_000, "saq", "saq[redis,hiredis]", "typing_extensions", "uvloop"),
    _redis("arq", (1000, 100), 4_000, "arq", "arq", "uvloop"),
    _redis("celery", ("solo", "prefork 2", "threads 4"), 2_000, "celery", "celery[redis]", "hiredis"),
)


def installed(contenders: Sequence[Contender]) -> tuple[list[Contender], dict[str, str]]:
    """Return the queues that can run on this machine, and for each other queue the reason why it cannot."""
    there, missing = list[Contender](), dict[str, str]()
    for each in contenders:
        try:
            if each.environment:
                python_with(*each.environment)
            there.append(each)
        except PeerMissing as exc:
            missing[each.name] = str(exc)
    return there, missing
