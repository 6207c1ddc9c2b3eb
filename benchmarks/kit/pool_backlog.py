"""Measures queues that have a million other jobs queued and, in turn, empty queues."""

from collections.abc import Mapping

from kit.pool_contenders import Contender, Found
from kit.pool_course import Course
from kit.pool_held import dead_rows
from kit.pool_places import Places
from kit.report import Report, median, print_table, say

RIVALS = ("ours", "pgqueuer", "huey")  #: the fastest on each store
_PARTS = ("push one", "push 1000", "work")
Rounds = dict[Contender, list[Found]]


def with_backlog(
    place: Places, settings: Mapping[Contender, int | str], backlog: int, repeats: int, share: float, report: Report
) -> None:
    """Fill each queue once, then measure in turn in an empty queue and in the full one."""
    rivals = [each for each in settings if each.name in RIVALS]
    urls = {each: place.lasting(each, number) for number, each in enumerate(rivals, 1)}
    for each in rivals:
        _fill(each, urls[each], backlog)
        say(f"{each.store:<10} {each.name:<15} has {backlog:,} jobs queued")
    empty: Rounds = {each: [] for each in rivals}
    queued: Rounds = {each: [] for each in rivals}
    for _ in range(repeats):
        for number, each in enumerate(rivals, 1):
            with place.apart(each, number + len(rivals)) as url:
                empty[each].append(each.run(each.course(url, settings[each], share)))
            queued[each].append(each.run(each.course(urls[each], settings[each], share)))
            say(f"{each.store:<10} {each.name:<15} {_told(queued[each][-1])}; in an empty queue {_told(empty[each][-1])}")
    dead = {each: dead_rows(place.postgres, urls[each]) for each in rivals if each.store == "postgresql"}
    _tell(report, empty, queued, dead, backlog)


def _told(run: Found) -> str:
    return ", ".join(f"{part} {run[part]:,.0f}/s" for part in _PARTS if part in run)


def _fill(contender: Contender, url: str, backlog: int) -> None:
    """Fill a queue through its own API. Huey on SQLite is filled without fsync, because with fsync it would take an hour."""
    faster = {"huey": "huey, no fsync"} if contender.store == "sqlite" else {}
    filler = Contender(
        name=faster.get(contender.name, contender.name),
        store=contender.store,
        program=contender.program,
        settings=contender.settings,
        jobs=contender.jobs,
        environment=contender.environment,
    )
    filler.run(Course(url=url, batched=backlog, batches=(1000,)))


def _tell(report: Report, empty: Rounds, queued: Rounds, dead: Mapping[Contender, int], backlog: int) -> None:
    rows = []
    for each, runs in queued.items():
        parts = [part for part in _PARTS if all(part in run for run in runs)]
        found = {part: median(run[part] for run in runs) for part in parts}
        loss = {part: 1 - median(a[part] / b[part] for a, b in zip(runs, empty[each], strict=True)) for part in parts}
        name = f"{each.store}, {each.name}"
        report.figures[f"backlog of {backlog}: {name}"] = {
            **found,
            "loss": loss,
            **({"dead rows": dead[each]} if each in dead else {}),
        }
        cells = [f"{found[part]:,.0f} ({loss[part]:+.0%})" if part in found else "–" for part in _PARTS]
        rows.append([name, *cells, f"{dead[each]:,}" if each in dead else "–"])
        _ratios(report, queued, each)
    print_table([f"with {backlog:,} queued (loss)", *_PARTS, "dead rows"], rows)


def _ratios(report: Report, queued: Rounds, peer: Contender) -> None:
    ours = next((runs for each, runs in queued.items() if each.is_ours and each.store == peer.store), [])
    for part in _PARTS if not peer.is_ours else ():
        pairs = [(a[part], b[part]) for a, b in zip(ours, queued[peer], strict=False) if part in a and part in b]
        if pairs:
            report.ratios[f"backlog, {peer.store}: {part}, ours / {peer.name}"] = median(a / b for a, b in pairs)
