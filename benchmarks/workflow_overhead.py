"""Measure what a workflow costs compared with plain jobs: 10,002 jobs in Drumbeat, and the same in Celery (chords).

The workflow: a first job, 100 after it, 98 after each of these, a callback for each of the 100 groups, and a last job after
all callbacks. One worker runs the empty jobs; the time counts from the push of all jobs until the last has ended. Workflow and
plain jobs are measured in turn, and each goes first in every second round, so that a busy machine slows both alike; medians of
the rounds count. Celery runs on Redis with results, because chords need them; its plain tasks store results too. It takes
minutes, so it has three rounds. Goal: a job of a workflow costs at most 25 % more than a plain one.

python benchmarks/workflow_overhead.py --stores sqlite postgresql redis
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drumbeat
import kit  # noqa: F401
from drumbeat.client import BlockingConnection
from drumbeat.core.job import JobId, NewJob
from kill_rounds import place
from kit.peers import PeerMissing, python_with
from kit.report import Report, median, parser, percentile, print_table, say
from servers.redis import RedisServer

POOL = "flow"
CELERY = "celery[redis]>=5.5,<6"
GOAL = 1.25
STORES = ("memory", "sqlite", "postgresql", "redis")
_CHORD = Path(__file__).parent / "kit" / "celery_chord.py"


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of the workflow."""

    branches: int
    leaves: int

    @property
    def jobs(self) -> int:
        return 2 + self.branches * (self.leaves + 2)


@dataclass(slots=True)
class Seconds:
    """The seconds that a job of a workflow takes, and a plain job: one entry for each round."""

    flow: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    def overhead(self) -> tuple[float, float, float]:
        """Return the median of the rounds' ratios, and their quartiles, which show how reliable the median is."""
        found = [flow / plain for flow, plain in zip(self.flow, self.plain, strict=True)]
        return median(found), percentile(found, 25), percentile(found, 75)


async def noop(payload: Any) -> None: ...


def workflow(size: Size, name: str) -> list[NewJob]:
    """The jobs of the workflow, parents first."""

    def job(label: str, *after: JobId) -> NewJob:
        return NewJob(payload=label, job_id=JobId(f"{name}-{label}"), after=after, workflow_id=name)

    first = job("first")
    jobs, callbacks = [first], list[NewJob]()
    for n in range(size.branches):
        branch = job(f"branch-{n}", JobId(f"{name}-first"))
        leaves = [job(f"leaf-{n}-{m}", JobId(f"{name}-branch-{n}")) for m in range(size.leaves)]
        callbacks.append(job(f"callback-{n}", *_ids(leaves)))
        jobs += [branch, *leaves]
    return [*jobs, *callbacks, job("last", *_ids(callbacks))]


def _ids(jobs: Sequence[NewJob]) -> list[JobId]:
    return [job.job_id for job in jobs if job.job_id is not None]


def run_ours(db: BlockingConnection, jobs: Sequence[NewJob]) -> float:
    """Push the jobs and run them; returns the seconds for each."""
    began = time.perf_counter()
    db.pool(POOL).push_jobs(jobs)
    db.work(POOL, noop, concurrency=20)
    took = time.perf_counter() - began
    left = db.pool(POOL).status().counts
    if left.waiting or left.pending or left.claimed or left.poisoned:
        raise SystemExit(f"expected all jobs done, got {left}")
    return took / len(jobs)


def measure_ours(url: str, size: Size, rounds: int) -> Seconds:
    seconds = Seconds()
    with drumbeat.connect_blocking(url) as db:
        for n in range(-1, rounds):
            say(f"  round {n + 1} of {rounds}")
            plain = [NewJob(payload="plain", job_id=JobId(f"plain-{n}-{m}")) for m in range(size.jobs)]
            kinds = {"flow": workflow(size, f"flow-{n}"), "plain": plain}
            for kind in ("flow", "plain") if n % 2 else ("plain", "flow"):  # each goes first in every second round
                took = run_ours(db, kinds[kind])
                if n >= 0:  # the first round warms up
                    getattr(seconds, kind).append(took)
    return seconds


def measure_celery(size: Size, rounds: int) -> Seconds:
    """Measure Celery's chords and plain tasks. Raises PeerMissing."""
    python, seconds = python_with("celery-chord", CELERY, "hiredis"), Seconds()
    with RedisServer() as redis, _celery_worker(python, url := redis.url()):
        for n in range(-1, rounds):
            say(f"  round {n + 1} of {rounds}")
            for kind in ("flow", "plain") if n % 2 else ("plain", "flow"):
                words = [str(python), str(_CHORD), kind, url, str(size.branches), str(size.leaves)]
                said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
                if n >= 0:
                    getattr(seconds, kind).append(float(said) / size.jobs)
    return seconds


@contextmanager
def _celery_worker(python: Path, url: str) -> Iterator[None]:
    with subprocess.Popen([str(python), str(_CHORD), "work", url, "0", "0"], stderr=sys.stderr) as worker:
        try:
            yield
        finally:
            worker.terminate()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", choices=STORES, default=["sqlite", "postgresql", "redis"])
    options.add_argument("--no-celery", action="store_true", help="compare only with Drumbeat's plain jobs")
    chosen = options.parse_args()
    size, rounds = (Size(10, 18), 3) if chosen.quick else (Size(100, 98), 7)
    report, found = Report("workflow_overhead"), dict[str, Seconds]()
    for store in chosen.stores:
        say(f"{store}: {size.jobs} jobs")
        with tempfile.TemporaryDirectory() as folder, place(store, Path(folder)) as url:
            found[store] = measure_ours(url, size, rounds)
    if not chosen.no_celery:
        say(f"Celery: {size.jobs} jobs")
        try:
            found["celery"] = measure_celery(size, min(rounds, 3))
        except PeerMissing as exc:
            say(f"without Celery: {exc}")
    rows = []
    for name, seconds in found.items():
        flow, plain, overhead = median(seconds.flow), median(seconds.plain), seconds.overhead()
        rows.append([name, flow * 1e6, plain * 1e6, (flow - plain) * 1e6, *overhead])
        report.ratios[f"{name}: workflow/plain"] = overhead[0]
        report.figures[name] = {"workflow µs": flow * 1e6, "plain µs": plain * 1e6, "quartiles": overhead[1:]}
    print_table(["", "workflow µs/job", "plain µs/job", "overhead µs", "ratio", "25 %", "75 %"], rows)
    say(f"goal: ratio at most {GOAL} in ours")
    report.note_versions(["drumbeat"])
    report.print()


if __name__ == "__main__":
    main()
