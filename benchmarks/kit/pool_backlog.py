"""The same course with a million other jobs queued before it."""

from collections.abc import Mapping

from kit.pool_contenders import Contender
from kit.pool_course import Course
from kit.pool_places import Places
from kit.report import Report, median, print_table, say

RIVALS = ("ours", "pgqueuer", "huey")  #: the fastest on each store
_PARTS = ("push one", "push 1000", "work")


def with_backlog(
    place: Places, settings: Mapping[Contender, int | str], backlog: int, repeats: int, share: float, report: Report
) -> None:
    """Fill each one's queue once, then measure in turn: pushed to its end, worked off from its head."""
    rivals = [each for each in settings if each.name in RIVALS]
    urls = {each: place.lasting(each, number) for number, each in enumerate(rivals, 1)}
    for each in rivals:
        _fill(each, urls[each], backlog)
        say(f"{each.store:<10} {each.name:<15} has {backlog:,} queued")
    found: dict[Contender, list[Mapping[str, float]]] = {each: [] for each in rivals}
    for _ in range(repeats):
        for each in rivals:
            found[each].append(each.run(each.course(urls[each], settings[each], share)))
    _tell(report, found, backlog)


def _fill(contender: Contender, url: str, backlog: int) -> None:
    """Through its own API. Huey on SQLite is filled without fsync, or it would take an hour."""
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


def _tell(report: Report, found: Mapping[Contender, list[Mapping[str, float]]], backlog: int) -> None:
    figures = {
        each: {part: median(run[part] for run in runs) for part in _PARTS if all(part in run for run in runs)}
        for each, runs in found.items()
    }
    rows = []
    for each, mine in figures.items():
        name = f"{each.store}, {each.name}"
        report.figures[f"backlog of {backlog}: {name}"] = mine
        alone = report.figures.get(name, {}).get("work")
        kept = f"{mine['work'] / alone:.2f}" if alone else "–"
        rows.append([name, *(f"{mine[part]:,.0f}" if part in mine else "–" for part in _PARTS), kept])
        ours = next((other for other in figures if other.is_ours and other.store == each.store), None)
        if ours is not None and ours is not each:
            for part in mine:
                report.ratios[f"backlog, {each.store}: {part}, ours / {each.name}"] = figures[ours][part] / mine[part]
    print_table([f"with {backlog:,} queued", *_PARTS, "work / without"], rows)
