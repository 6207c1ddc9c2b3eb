"""drumbeat pool push and import: jobs in, one or many, as JSON lines."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from drumbeat.cli.csv_rows import CsvRows
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_work import PoolArgument
from drumbeat.cli.render import errors, say, show_json
from drumbeat.cli.stdin_lines import standard_input
from drumbeat.client import JobId, NewJob, job_from_line, new_job
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.plain import too_deep
from drumbeat.core.pool import PoolId

app = typer.Typer()

Advance = Callable[[int], None]
Line = tuple[int, str | InvalidInput | None]  #: its number, and what it says or why it says nothing; None: none has come yet
BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024

BatchOption = Annotated[
    int, typer.Option("--batch", min=1, max=100_000, help="How many jobs one transaction holds, at the most.")
]
JobsOption = Annotated[
    bool, typer.Option("--jobs", help='Each line is a whole job, {"payload": …, "priority": …}, as pool list --json writes.')
]


@app.command()
def push(
    pool: PoolArgument,
    payload: Annotated[str, typer.Argument(metavar="JSON", help="The payload; - reads JSON lines from standard input.")],
    job_type: Annotated[str | None, typer.Option("--type", help="Which handler it is for.")] = None,
    job_id: Annotated[
        str | None, typer.Option("--id", help="Its id: pushed twice, it is there once, until retention deletes it.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Higher first. Else 0.")] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Not before so long from now, such as 10m.")] = None,
    run_at: Annotated[str | None, typer.Option("--at", help="Not before this moment, such as 2026-12-24T18:00:00Z.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="Failures until it is poisoned. Else 3.")] = None,
    max_crashes: Annotated[
        int | None, typer.Option("--max-crashes", help="Workers that may die while it runs until it is poisoned. Else 3.")
    ] = None,
    backoff: Annotated[str | None, typer.Option("--backoff", help="How long its first retry waits, such as 10s.")] = None,
    max_backoff: Annotated[str | None, typer.Option("--max-backoff", help="How long any retry waits at the most.")] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", help="How long an attempt may take, such as 90s.")] = None,
    unique_key: Annotated[
        str | None, typer.Option("--key", help="While one of this key is unfinished, this is that one.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Jobs of a group share its limit.")] = None,
    group_limit: Annotated[int | None, typer.Option("--group-limit", help="How many of the group may run at once.")] = None,
    group_rate: Annotated[
        str | None,
        typer.Option("--group-rate", metavar="N/TIME", help="How many of the group may begin in a time, such as 10/1m."),
    ] = None,
    capability: Annotated[str | None, typer.Option("--capability", help="Only a worker that has it may claim it.")] = None,
    jobs: JobsOption = False,
    batch: BatchOption = BATCH,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a job, or with - one for each JSON line. The pool, and the store, are made if they are not there.

    Lines are pushed in order, in batches or as they come. At a line that cannot be used everything before it is pushed,
    and its number told.
    """
    what = _given(type=job_type, job_id=job_id, priority=priority, unique_key=unique_key)
    tries = _given(max_attempts=max_attempts, max_crashes=max_crashes, backoff=_waits(backoff, max_backoff))
    when = _given(delay=delay and parse_age(delay), run_at=run_at, timeout=timeout and parse_age(timeout))
    where = _given(group=group, group_limit=group_limit, group_rate=group_rate and _rate(group_rate), capability=capability)
    if (group_limit is not None or group_rate is not None) and group is None and not jobs:
        raise InvalidInput("expected --group with --group-limit and --group-rate: the limit is the group's")
    read = _reader(jobs, {**what, **tries, **when, **where})
    if payload == "-":
        _expect_no_id(job_id)
        _push_lines(store, pool, _numbered(standard_input()), read, batch, as_json=as_json)
    else:
        given = payload if payload.strip() else InvalidInput(f"expected JSON, got {payload!r}")
        _finish(pool, _push_lines(store, pool, [(1, given)], read, 1, as_json=True, alone=True), as_json=as_json)


def _waits(first: str | None, most: str | None) -> dict[str, Any] | None:
    found = _given(first=first and parse_age(first), most=most and parse_age(most))
    return found or None


def _rate(text: str) -> dict[str, Any]:
    count, slash, per = text.partition("/")
    if not slash or not count.strip().isdigit():
        raise InvalidInput(f"expected --group-rate as a number and a time, such as 10/1m, got {text!r}")
    return {"count": int(count), "per": parse_age(per)}


def _expect_no_id(job_id: str | None) -> None:
    if job_id is not None:
        raise InvalidInput("expected --id with a single payload, got it with -; give each line its own job_id, with --jobs")


@app.command("import")
def import_jobs(
    pool: PoolArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; a .csv becomes one object a row.")],
    jobs: JobsOption = False,
    batch: BatchOption = BATCH,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a job for each line of a file: payloads, or with --jobs whole jobs, as pool list POOL --json writes them.

    Whole jobs are pushed anew whatever became of them where they come from: choose among them with the --status of pool list.
    """
    try:
        with file.open("r", encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
            lines = _csv_lines(opened) if file.suffix.lower() == ".csv" else enumerate(opened, start=1)
            _push_lines(store, pool, lines, _reader(jobs, {}), batch, as_json=as_json, size=file.stat().st_size)
    except OSError as exc:
        raise InvalidInput(f"expected to read jobs from {file}, got: {exc.strerror}") from exc


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _reader(whole: bool, options: dict[str, Any]) -> Callable[[Any], NewJob]:
    """From what a line holds to a job; a whole job's own options count more than those given for all."""
    if not whole:
        return lambda value: new_job(value, **options)
    return lambda value: job_from_line({**options, **value} if isinstance(value, dict) else value)


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
                else InvalidInput("expected as many fields as the header has")
            )
            yield rows.line_number, job
    except InvalidInput as exc:
        yield rows.line_number, InvalidInput(f"expected a row of CSV, got: {exc}")


def _push_lines(
    store: str | None,
    pool: str,
    lines: Iterable[Line],
    read: Callable[[Any], NewJob],
    batch: int,
    *,
    as_json: bool,
    alone: bool = False,
    size: int | None = None,
) -> Sequence[JobId]:
    async def work(plane: ControlPlane) -> Sequence[JobId]:
        pushed = _Pushing(plane, pool, batch, as_json=as_json and not alone, keep=alone)
        try:
            with _progress(size) as advance:
                failed = await pushed.all(lines, read, advance, alone=alone)
        except DrumbeatError:
            if pushed.count:
                errors.print(f"the {pushed.count} jobs up to line {pushed.last} are pushed")
            raise
        finally:
            await pushed.wake()
        if failed is not None:
            before = f"; the {pushed.count} jobs before it are pushed" if pushed.count else "; nothing was pushed"
            raise InvalidInput(f"{failed}{'' if alone else before}") from failed
        if not as_json:
            say(f"pushed {pushed.count} jobs to {pool}")
        return pushed.ids

    return with_control_plane(store, work, create=True)


class _Pushing:
    """Pushes in batches, and tells each job's id if asked to."""

    def __init__(self, plane: ControlPlane, pool: str, batch: int, *, as_json: bool, keep: bool) -> None:
        self._desk, self._pool, self._waker = plane.pool(pool), PoolId(pool), plane.waker()
        self._batch = batch
        self._as_json = as_json
        self._keep = keep
        self._waiting: list[tuple[int, NewJob]] = []
        self._bytes = 0
        self._woken = 0  #: jobs that were there when workers were last called
        self.last = 0  #: the line up to which all is pushed
        self.count = 0
        self.ids: list[JobId] = []

    async def all(
        self, lines: Iterable[Line], read: Callable[[Any], NewJob], advance: Advance, *, alone: bool
    ) -> InvalidInput | None:
        """Push every line up to the first that cannot be used; answers with what is wrong with that one."""
        for number, line in lines:
            if line is None:
                await self._flush()
                await self.wake()
            if line is None or (isinstance(line, str) and not line.strip()):
                continue
            try:
                self._waiting.append((number, read(_parsed(line))))
            except InvalidInput as exc:
                await self._flush()
                return exc if alone else InvalidInput(f"line {number}: {exc}")
            self._bytes += len(str(line))
            advance(len(str(line)))
            if len(self._waiting) >= self._batch or self._bytes >= _BATCH_BYTES:
                await self._flush()
        await self._flush()
        return None

    async def wake(self) -> None:
        """Call for workers, if there are jobs they were not called for."""
        if self.count > self._woken:
            self._woken = self.count
            await self._waker(self._pool)

    async def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        ids = await self._desk.push_jobs([job for _, job in waiting])
        self.count, self.last = self.count + len(ids), waiting[-1][0] if waiting else self.last
        if self._keep:
            self.ids.extend(ids)
        if self._as_json:
            for (number, _), job_id in zip(waiting, ids, strict=True):
                print(json.dumps({"line": number, "job_id": job_id}), flush=True)


def _parsed(line: str | InvalidInput) -> Any:
    if isinstance(line, InvalidInput):
        raise line
    try:
        parsed = json.loads(line)
        if not line.isascii() or "\\ud" in line.lower():
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep("JSON") from None
    except ValueError as exc:
        raise InvalidInput(f"expected JSON, got {line.strip()[:60]!r}: {exc}") from exc
    return parsed


@contextmanager
def _progress(size: int | None) -> Iterator[Advance]:
    """A bar on standard error, where somebody looks at it."""
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


def _finish(pool: str, ids: Sequence[JobId], *, as_json: bool) -> None:
    for job_id in ids:
        if as_json:
            show_json({"pool_id": pool, "job_id": job_id})
        else:
            say(job_id)
