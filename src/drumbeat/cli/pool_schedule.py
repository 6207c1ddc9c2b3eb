"""drumbeat pool schedule add, list, explain, pause, resume and rm: jobs that are pushed periodically."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from drumbeat.cli.job_options import backoff_option, given_options, rate_option
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_work import PoolArgument
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.client import JobSchedule, MissedTicks, ScheduleStatus
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.plain import read_json

app = typer.Typer(no_args_is_help=True, help="Periodic jobs: add, list, explain, pause, resume and remove schedules.")

ScheduleArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

_SCHEDULE: Columns = {
    "schedule": lambda row: row.name,
    "when": lambda row: row.schedule.timing,
    "type": lambda row: row.schedule.options.get("type"),
    "missed": lambda row: row.schedule.missed,
    "paused": lambda row: "yes" if row.schedule.paused else None,
    "last tick (UTC)": lambda row: row.last,
    "next ticks (UTC)": lambda row: "\n".join(f"{tick:%Y-%m-%d %H:%M:%S}" for tick in row.upcoming) or None,
}


@app.command()
def add(
    pool: PoolArgument,
    name: ScheduleArgument,
    payload: Annotated[str, typer.Argument(metavar="[JSON]", help="Payload of the jobs as JSON.")] = "null",
    cron: Annotated[str | None, typer.Option("--cron", help="Cron expression, such as '0 3 * * *', or @daily.")] = None,
    every: Annotated[str | None, typer.Option("--every", help="Interval, such as 10m; summer time does not affect it.")] = None,
    tz: Annotated[str | None, typer.Option("--tz", help="Time zone of --cron, such as Europe/Berlin. Default: UTC")] = None,
    missed: Annotated[
        MissedTicks,
        typer.Option("--missed", help="Missed ticks (no process was running): skip them, push one job, or one for each."),
    ] = MissedTicks.ONCE,
    job_type: Annotated[str | None, typer.Option("--type", help="Job type; selects the handler.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Higher priorities run first. Default: 0")] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Delay between a tick and its job, such as 10m.")] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="Failures before a job is poisoned. Default: 3")
    ] = None,
    max_crashes: Annotated[
        int | None, typer.Option("--max-crashes", help="Worker crashes before a job is poisoned. Default: 3")
    ] = None,
    backoff: Annotated[str | None, typer.Option("--backoff", help="Delay before the first retry, such as 10s.")] = None,
    max_backoff: Annotated[str | None, typer.Option("--max-backoff", help="Maximum delay before a retry.")] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", help="Timeout of an attempt, such as 90s.")] = None,
    unique_key: Annotated[
        str | None, typer.Option("--key", help="Unique key: while a job with this key is unfinished, a tick pushes no job.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Group name; the jobs of a group share its limits.")] = None,
    group_limit: Annotated[int | None, typer.Option("--group-limit", help="Maximum running jobs of the group.")] = None,
    group_rate: Annotated[
        str | None, typer.Option("--group-rate", metavar="N/TIME", help="Rate limit of the group, such as 10/1m.")
    ] = None,
    capability: Annotated[str | None, typer.Option("--capability", help="Capability that a worker needs for the jobs.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Change the schedule if it exists, from now on.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule. At each tick exactly one job is pushed, however many processes serve the pool.

    Workers that keep running, checks, triggers, daemons and fleets push the jobs; no other process is needed.
    """
    when = given_options(
        cron=cron, every=every and parse_age(every, "--every"), tz=tz, delay=delay and parse_age(delay, "--delay")
    )
    what = given_options(
        type=job_type, priority=priority, unique_key=unique_key, timeout=timeout and parse_age(timeout, "--timeout")
    )
    tries = given_options(max_attempts=max_attempts, max_crashes=max_crashes, backoff=backoff_option(backoff, max_backoff))
    rate = group_rate and rate_option(group_rate)
    where = given_options(group=group, group_limit=group_limit, group_rate=rate, capability=capability)
    content = read_json(payload, "the payload")

    async def save(plane: ControlPlane) -> ScheduleStatus:
        schedules = plane.pool(pool).schedules
        await schedules.add(name, content, missed=missed, exist_ok=update, **when, **what, **tries, **where)
        return await schedules.get(name)

    _print_status(with_control_plane(store, save, create=True), as_json=as_json)


@app.command("list")
def list_schedules(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the schedules of a pool, with their next five ticks."""
    rows = with_control_plane(store, lambda plane: plane.pool(pool).schedules.list())
    if as_json:
        show_json([_status_json(row) for row in rows])
        return
    show(rows, _SCHEDULE, as_json=False, nothing=f"pool {pool} has no schedules; add one with: drumbeat pool schedule add")
    for problem in dict.fromkeys(row.problem for row in rows if row.problem):
        say(problem, style="yellow")


@app.command()
def explain(pool: PoolArgument, name: ScheduleArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Explain when a schedule pushes its next jobs, and whether a process is there to push them."""
    _print_status(with_control_plane(store, lambda plane: plane.pool(pool).schedules.get(name)), as_json=as_json)


@app.command()
def pause(pool: PoolArgument, name: ScheduleArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Pause a schedule: it pushes no jobs until it is resumed."""
    _print_changed(pool, with_control_plane(store, lambda plane: plane.pool(pool).schedules.pause(name)), as_json=as_json)


@app.command()
def resume(pool: PoolArgument, name: ScheduleArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Resume a paused schedule. Ticks during the pause were missed: its option --missed says what happens to them."""
    _print_changed(pool, with_control_plane(store, lambda plane: plane.pool(pool).schedules.resume(name)), as_json=as_json)


@app.command("rm")
def remove(pool: PoolArgument, name: ScheduleArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Remove a schedule. Jobs that it has pushed stay."""
    with_control_plane(store, lambda plane: plane.pool(pool).schedules.remove(name))
    if as_json:
        show_json({"pool_id": pool, "name": name, "removed": True})
    else:
        say(f"removed schedule {name} of pool {pool}")


def _print_status(status: ScheduleStatus, *, as_json: bool) -> None:
    if as_json:
        show_json(_status_json(status))
        return
    for line in status.lines:
        say(line)


def _status_json(status: ScheduleStatus) -> dict[str, Any]:
    more = {"last": status.last, "next": status.upcoming, "problem": status.problem}
    return {"pool_id": status.pool_id, **asdict(status.schedule), **more}


def _print_changed(pool: str, schedule: JobSchedule, *, as_json: bool) -> None:
    if as_json:
        show_json({"pool_id": pool, **asdict(schedule)})
    else:
        say(f"schedule {schedule.name} of pool {pool} is {'paused' if schedule.paused else 'active'}")
