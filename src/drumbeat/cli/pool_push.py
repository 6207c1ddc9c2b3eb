"""drumbeat pool push and import: push one job, JSON lines, or a file of jobs."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from drumbeat.cli.csv_rows import CsvRows
from drumbeat.cli.interrupt import interruptible_items
from drumbeat.cli.job_options import backoff_option, given_options, rate_option
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, parse_start, with_control_plane
from drumbeat.cli.pool_work import PoolArgument
from drumbeat.cli.render import errors, say, show_json
from drumbeat.cli.stdin_lines import standard_input
from drumbeat.client import IfFailed, JobId, NewJob, job_from_line, new_job
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.plain import too_deep
from drumbeat.core.pool import PoolId

app = typer.Typer()

Advance = Callable[[int], None]
Reader = Callable[[Any, int], NewJob]  #: builds a job from the JSON value of a line, given the most bytes of a payload
Line = tuple[int, str | InvalidInput | None]  #: line number, and the line's text or error; None: no line has arrived yet
BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_TEXT = '"a text"'  #: a text as JSON, as an example
_TEXT_ARGUMENT = f"'{_TEXT}'"  #: the same as an argument for a shell

BatchOption = Annotated[int, typer.Option("--batch", min=1, max=100_000, help="Maximum number of jobs per transaction.")]
JobsOption = Annotated[
    bool,
    typer.Option("--jobs", help='Each line is a complete job, {"payload": …, "priority": …}, as from pool list --json.'),
]


@app.command()
def push(
    pool: PoolArgument,
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Payload as JSON; - reads JSON lines from standard input.")],
    job_type: Annotated[str | None, typer.Option("--type", help="Job type; selects the handler.")] = None,
    job_id: Annotated[
        str | None,
        typer.Option("--id", help="Job id. Pushing it again has no effect until retention deletes the job."),
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Higher priorities run first. Default: 0")] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Delay before the job may run, such as 10m.")] = None,
    run_at: Annotated[
        str | None, typer.Option("--at", help="Earliest start, with a time zone, such as 2026-12-24T18:00:00+01:00.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="Failures before it is poisoned. Default: 3")
    ] = None,
    max_crashes: Annotated[
        int | None, typer.Option("--max-crashes", help="Worker crashes before the job is poisoned. Default: 3")
    ] = None,
    backoff: Annotated[str | None, typer.Option("--backoff", help="Delay before the first retry, such as 10s.")] = None,
    max_backoff: Annotated[str | None, typer.Option("--max-backoff", help="Maximum delay before a retry.")] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", help="Timeout of an attempt, such as 90s.")] = None,
    unique_key: Annotated[
        str | None, typer.Option("--key", help="Unique key: while a job with this key is unfinished, no second one is created.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Group name; the jobs of a group share its limits.")] = None,
    group_limit: Annotated[int | None, typer.Option("--group-limit", help="Maximum running jobs of the group.")] = None,
    group_rate: Annotated[
        str | None,
        typer.Option("--group-rate", metavar="N/TIME", help="Rate limit of the group, such as 10/1m."),
    ] = None,
    capability: Annotated[str | None, typer.Option("--capability", help="Capability that a worker needs for the job.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="JOB", help="Job id: run after that job is done, in any pool. Repeatable."),
    ] = None,
    after_any: Annotated[bool, typer.Option("--after-any", help="Run when one of the jobs of --after is done.")] = False,
    if_failed: Annotated[
        IfFailed | None,
        typer.Option(
            "--if-failed", help="If a job of --after is poisoned or cancelled: wait (block), be cancelled (skip) or run."
        ),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="ID", help="Workflow that the job belongs to: see pool workflow.")
    ] = None,
    jobs: JobsOption = False,
    batch: BatchOption = BATCH,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a job, or with - one job per JSON line. A missing pool or store is created.

    Lines are pushed in order, in batches, and at once when the input pauses. An invalid line ends the push with an error that
    names the line; all lines before it are pushed.
    """
    what = given_options(type=job_type, job_id=job_id, priority=priority, unique_key=unique_key)
    tries = given_options(max_attempts=max_attempts, max_crashes=max_crashes, backoff=backoff_option(backoff, max_backoff))
    when = given_options(
        delay=delay and parse_age(delay, "--delay"),
        run_at=run_at and parse_start(run_at, "--at"),
        timeout=timeout and parse_age(timeout, "--timeout"),
    )
    rate = group_rate and rate_option(group_rate)
    where = given_options(group=group, group_limit=group_limit, group_rate=rate, capability=capability)
    flow = given_options(after=after, after_any=after_any or None, if_failed=if_failed, workflow_id=workflow)
    read = _reader(jobs, {**what, **tries, **when, **where, **flow})
    if payload == "-":
        _expect_no_id(job_id)
        _push_lines(store, pool, _numbered(standard_input()), read, batch, as_json=as_json)
    else:
        line = payload if payload.strip() else InvalidInput(f"expected JSON, got {payload!r}")
        _print_ids(pool, _push_lines(store, pool, [(1, line)], read, 1, as_json=True, single=True), as_json=as_json)


def _expect_no_id(job_id: str | None) -> None:
    if job_id is not None:
        raise InvalidInput(
            "expected --id with a single payload, got it with - (many payloads); use --jobs, and set job_id in each line"
        )


@app.command("import")
def import_jobs(
    pool: PoolArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, or a .csv file (one JSON object per row).")],
    jobs: JobsOption = False,
    batch: BatchOption = BATCH,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a job for each line of a file: payloads, or with --jobs complete jobs, as printed by pool list POOL --json.

    Complete jobs are pushed as new jobs, whatever their status was: select them with the --status option of pool list.
    """
    try:
        with file.open("r", encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
            lines = _csv_lines(opened) if file.suffix.lower() == ".csv" else enumerate(opened, start=1)
            _push_lines(store, pool, lines, _reader(jobs, {}), batch, as_json=as_json, size=file.stat().st_size)
    except OSError as exc:
        raise InvalidInput(f"cannot read jobs from {file}: {exc.strerror}") from exc


def _reader(complete: bool, options: dict[str, Any]) -> Reader:
    """Return a function that builds a job from the JSON value of a line. Options in the line override those of the command."""
    if not complete:
        return lambda value, most_bytes: new_job(value, most_bytes, **options)
    return lambda value, most_bytes: job_from_line({**options, **value} if isinstance(value, dict) else value, most_bytes)


def _numbered(lines: Iterable[str | None]) -> Iterator[Line]:
    number = 0
    for line in lines:
        number += line is not None
        yield number, line


def _csv_lines(file: IO[str]) -> Iterator[Line]:
    rows = CsvRows(file, _BATCH_BYTES)
    header: list[str] = []
    try:
        for row in filter(None, rows):
            if not header:
                header = row
                continue
            fits = len(row) == len(header)
            job = (
                json.dumps(dict(zip(header, row, strict=True)))
                if fits
                else InvalidInput(
                    f"expected {len(header)} fields, as in the header, got {len(row)}; quote a value that has a comma"
                )
            )
            yield rows.line_number, job
    except InvalidInput as exc:
        yield rows.line_number, InvalidInput(f"expected a row of CSV, got: {exc}")


def _push_lines(
    store: str | None,
    pool: str,
    lines: Iterable[Line],
    read: Reader,
    batch: int,
    *,
    as_json: bool,
    single: bool = False,
    size: int | None = None,
) -> Sequence[JobId]:
    async def work(plane: ControlPlane) -> Sequence[JobId]:
        pusher = _BatchPusher(plane, pool, batch, as_json=as_json and not single, keep_ids=single)
        try:
            with _progress(size) as advance:
                failed = await pusher.push_all(lines, read, advance, single=single)
        except DrumbeatError:
            if pusher.count:
                errors.print(f"the {pusher.count} jobs up to line {pusher.last} were pushed")
            raise
        except (KeyboardInterrupt, asyncio.CancelledError):
            if not single:
                errors.print(f"interrupted: {pusher.progress()}")
            raise
        finally:
            await pusher.wake()
        if failed is not None:
            before = f"; the {pusher.count} jobs before it were pushed" if pusher.count else "; nothing was pushed"
            raise InvalidInput(f"{failed}{'' if single else before}") from failed
        if not as_json:
            say(f"pushed {pusher.count} jobs to {pool}")
        return pusher.ids

    return with_control_plane(store, work, create=True)


class _BatchPusher:
    """Pushes jobs in batches. With ``as_json``, it prints the id of each job."""

    def __init__(self, plane: ControlPlane, pool: str, batch: int, *, as_json: bool, keep_ids: bool) -> None:
        self._handle, self._pool, self._waker = plane.pool(pool), PoolId(pool), plane.waker()
        self._batch = batch
        self._as_json = as_json
        self._keep_ids = keep_ids
        self._waiting: list[tuple[int, NewJob]] = []
        self._bytes = 0
        self._woken = 0  #: number of pushed jobs when workers were last woken
        self._unsure: int | None = None  #: number of the last line of the batch that is being pushed
        self.last = 0  #: number of the last pushed line
        self.count = 0
        self.ids: list[JobId] = []

    async def push_all(self, lines: Iterable[Line], read: Reader, advance: Advance, *, single: bool) -> InvalidInput | None:
        """Push lines before the first invalid one. Returns that line's error (with its number unless ``single``) or None."""
        async for number, line in interruptible_items(lines):
            if line is None:
                await self._flush()
                await self.wake()
            if line is None or (isinstance(line, str) and not line.strip()):
                continue
            try:
                self._waiting.append((number, read(_parsed(line, single=single), self._handle.most_bytes)))
            except InvalidInput as exc:
                await self._flush()
                return exc if single else InvalidInput(f"line {number}: {exc}")
            self._bytes += len(str(line))
            advance(len(str(line)))
            if len(self._waiting) >= self._batch or self._bytes >= _BATCH_BYTES:
                await self._flush()
        await self._flush()
        return None

    def progress(self) -> str:
        """Return how many jobs were pushed, and up to which line of the input."""
        sure = [f"the {self.count} jobs up to line {self.last} were pushed"] if self.count else []
        unsure = [f"the jobs up to line {self._unsure} may have been pushed"] if self._unsure is not None else []
        return "; ".join((*sure, *unsure)) or "nothing was pushed"

    async def wake(self) -> None:
        """Wake workers if jobs were pushed since the last call."""
        if self.count > self._woken:
            self._woken = self.count
            await self._waker(self._pool)

    async def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self._unsure = waiting[-1][0] if waiting else None
        ids = await self._handle.push_jobs([job for _, job in waiting])
        self._unsure = None
        self.count, self.last = self.count + len(ids), waiting[-1][0] if waiting else self.last
        if self._keep_ids:
            self.ids.extend(ids)
        if self._as_json:
            for (number, _), job_id in zip(waiting, ids, strict=True):
                print(json.dumps({"line": number, "job_id": job_id}), flush=True)


def _parsed(line: str | InvalidInput, *, single: bool) -> Any:
    """Parse the JSON in a line of a file or, if ``single``, in an argument of the command. Raises InvalidInput."""
    if isinstance(line, InvalidInput):
        raise line
    try:
        parsed = json.loads(line)
        if not line.isascii() or "\\ud" in line.lower():
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep("JSON") from None
    except ValueError as exc:
        is_text = line.lstrip()[:1] not in ("{", "[", '"')
        hint = f"; put quotes around text: {_TEXT_ARGUMENT if single else _TEXT}" if is_text else ""
        raise InvalidInput(f"expected JSON, got {line.strip()[:60]!r}: {exc}{hint}") from exc
    return parsed


@contextmanager
def _progress(size: int | None) -> Iterator[Advance]:
    """Show a progress bar on standard error during the block, if it is a terminal."""
    if not errors.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("pushing"), BarColumn(), TextColumn("{task.fields[jobs]:,} jobs"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task, jobs = bar.add_task("", total=size, jobs=0), 0

        def advance(length: int) -> None:
            nonlocal jobs
            jobs += 1
            bar.update(task, advance=length, jobs=jobs)

        yield advance


def _print_ids(pool: str, ids: Sequence[JobId], *, as_json: bool) -> None:
    for job_id in ids:
        if as_json:
            show_json({"pool_id": pool, "job_id": job_id})
        else:
            say(job_id)
