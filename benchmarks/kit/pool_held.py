"""Measures throughput and dead rows of queues while an old transaction keeps PostgreSQL from vacuuming their tables."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from subprocess import PIPE, Popen

from kit.pool_contenders import Contender
from kit.report import Report, median, print_table, say
from servers.postgres import PostgresServer, installation

RIVALS = ("ours", "pgqueuer")
_BEFORE = 3  #: rounds before the old transaction begins
_SHARE = 0.25  #: share of a full run's jobs in one round
_DEAD = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables"


def with_held_xmin(server: PostgresServer, settings: Mapping[Contender, int | str], seconds: float, report: Report) -> None:
    """Let the queues push and process jobs in turn, at full speed: first with vacuum, then with vacuum blocked."""
    rivals = {each: server.new_database() for each in settings if each.store == "postgresql" and each.name in RIVALS}
    before: dict[Contender, list[float]] = {each: [] for each in rivals}
    during: dict[Contender, list[float]] = {each: [] for each in rivals}
    for _ in range(_BEFORE):
        _round(rivals, settings, before)
    with _old_transactions(server, rivals):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _round(rivals, settings, during)
            say(f"vacuum blocked for {seconds - (until - time.monotonic()):.0f} s: {_latest(during)}")
        dead = {each: dead_rows(server, url) for each, url in rivals.items()}
    _tell(report, before, during, dead)


def _round(
    rivals: Mapping[Contender, str], settings: Mapping[Contender, int | str], rates: dict[Contender, list[float]]
) -> None:
    for each, url in rivals.items():
        rates[each].append(each.run(each.course(url, settings[each], _SHARE))["work"])


@contextmanager
def _old_transactions(server: PostgresServer, rivals: Mapping[Contender, str]) -> Iterator[None]:
    """Hold one old transaction in each database; a transaction blocks only the vacuum of its own database."""
    psql = str(installation() / "bin" / "psql")
    holders = [Popen([psql, "-X", "-q", url], stdin=PIPE, stdout=PIPE, text=True) for url in rivals.values()]
    try:
        for holder in holders:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 'held', txid_current();\n")
            holder.stdin.flush()
            while "held" not in holder.stdout.readline():
                continue
        yield
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def dead_rows(server: PostgresServer, url: str) -> int:
    """Return the number of dead row versions that vacuum has not removed."""
    return int(server.sql(_DEAD, url.rpartition("/")[2]))


def _latest(rates: Mapping[Contender, list[float]]) -> str:
    return ", ".join(f"{each.name} {mine[-1]:,.0f}/s" for each, mine in rates.items())


def _tell(
    report: Report,
    before: Mapping[Contender, list[float]],
    during: Mapping[Contender, list[float]],
    dead: Mapping[Contender, int],
) -> None:
    rows, last = [], dict[str, float]()
    for each, rates in during.items():
        free, held = median(before[each]), median(rates[-3:])
        last[each.name] = held
        jobs = (len(rates) + len(before[each])) * each.course("", 1, _SHARE).jobs
        rows.append([each.name, f"{free:,.0f}", f"{held:,.0f}", f"{1 - held / free:.0%}", f"{dead[each]:,}", f"{jobs:,}"])
        report.figures[f"held xmin: {each.name}"] = {
            "free": free,
            "held": held,
            "loss": 1 - held / free,
            "dead rows": dead[each],
            "jobs": jobs,
        }
    print_table(["vacuum blocked", "work/s before", "at the end", "loss", "dead rows", "jobs in total"], rows)
    if set(last) == set(RIVALS):
        report.ratios["held xmin: work, ours / pgqueuer"] = last["ours"] / last["pgqueuer"]
