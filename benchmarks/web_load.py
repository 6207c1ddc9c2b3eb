"""Measure the dashboard under load: 200 streams and 50 requests a second during a run; load time and traffic of a run's page.

A server orchestrates a run of four workers. Periods with and without clients alternate; each period's beats are read from the
store: the time between them, and how long each took. The clients are a separate process on the same machine.

Then the page of a run with an hour of samples of four workers is opened in Chromium. Measured is the time until its status is
shown, its socket is connected and a part of it opens when clicked, and the time until its charts are drawn. First in a fresh
browser, then several times in the same one. Once for an ended run (its curves are stored), once for an active one (everything
is read again).

Last, the traffic of a live page: a run's page is open while its workers run for some seconds; the bytes of its socket's frames
are counted, without compression, after its charts are drawn.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import psutil

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.composition.offline import prepare
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId
from drumbeat.core.worker import WorkerId
from drumbeat.settings import Settings
from drumbeat.store.interface import Heartbeat
from kit.long_run import histograms, long_run, sample
from kit.report import Report, parser, percentile, print_table, say
from kit.runs import BUSY_HOST, beside

WATCHERS, REQUESTS = 200, 50.0
WORKERS = 4
PATIENCE = 120.0


@contextmanager
def serving(folder: Path, settings: Settings, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run ``drumbeat serve``; yields its address and its process."""
    around = {**os.environ, "DRUMBEAT_STORE": settings.store, "DRUMBEAT_STATE_DIR": str(settings.state_dir)}
    command = [sys.executable, "-m", "drumbeat", "serve", "--port", "0", *options]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=around, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().rpartition(" ")[2], psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


def document(target: str, seconds: float) -> str:
    return json.dumps(
        {
            "name": "watched",
            "target": {"url": target},
            "workload": {"standard": "read-only", "scale": 0.01, "think_time_ms": 50},
            "timing": {"warmup_seconds": 0, "duration_seconds": seconds},
            "scaling": {"mode": "FIXED", "min_workers": WORKERS, "min_connections": 2},
            "guardrails": dict(BUSY_HOST),
            "recording": {"sampling": 0},
        }
    )


async def started(plane: ControlPlane, folder: Path, seconds: float) -> RunId:
    """Start a run, which the server orchestrates; returns once it is in MEASUREMENT."""
    target = f"sqlite:///{folder}/under-test.db"
    await prepare(target, "read-only", 0.01, fresh=True, on_progress=lambda *_: None)
    bench = plane.bench()
    run, _ = await bench.create(await bench.document(document(target, seconds), is_text=True))
    await bench.start(run.run_id)
    until = time.monotonic() + PATIENCE
    while (await plane.store.runs.get(run.run_id)).phase != "MEASUREMENT":
        assert time.monotonic() < until, "the run did not start measuring in time"
        await asyncio.sleep(0.2)
    return run.run_id


async def window(plane: ControlPlane, run_id: RunId, seconds: float) -> list[Beat]:
    """Return the beats of the next ``seconds``."""
    last = await plane.store.beats.last(PoolId(run_id))
    await asyncio.sleep(seconds)
    return list(await plane.store.beats.list(PoolId(run_id), after=last.n if last else 0))


async def crowded(plane: ControlPlane, address: str, run_id: RunId, seconds: float) -> tuple[list[Beat], dict[str, Any]]:
    """Return the beats of ``seconds`` with connected clients, and the clients' figures. Beats while clients connect
    or disconnect do not count."""
    come = 3.0
    arguments = (address, run_id, str(WATCHERS), str(REQUESTS), str(seconds + 2 * come))
    crowd = await asyncio.create_subprocess_exec(*beside("stream_crowd.py"), *arguments, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(2 * come)
    beats = await window(plane, run_id, seconds)
    told, _ = await crowd.communicate()
    found: dict[str, Any] = json.loads(told)
    return beats, found


def gaps(beats: Sequence[Beat]) -> list[float]:
    return [(after.at - before.at).total_seconds() for before, after in pairwise(beats)]


def took(beats: Sequence[Beat]) -> list[float]:
    return [beat.duration.total_seconds() * 1000 for beat in beats]


async def measure_beats(folder: Path, rounds: int, seconds: float, report: Report) -> None:
    settings = Settings(store=f"sqlite:///{folder}/drumbeat.db", state_dir=folder / "state")
    apart: dict[str, list[float]] = {"alone": [], "watched": []}
    lasted: dict[str, list[float]] = {"alone": [], "watched": []}
    crowds: list[dict[str, Any]] = []
    async with open_control_plane(settings, create=True) as plane:
        with serving(folder, settings) as (address, server):
            run_id = await started(plane, folder, 4 * rounds * seconds + 600)
            for n in range(rounds):
                say(f"round {n + 1} of {rounds}")
                alone = await window(plane, run_id, seconds)
                server.cpu_percent()
                watched, crowd = await crowded(plane, address, run_id, seconds)
                crowds.append({**crowd, "cpu": server.cpu_percent()})
                for name, beats in (("alone", alone), ("watched", watched)):
                    apart[name] += gaps(beats)
                    lasted[name] += took(beats)
            await plane.bench().stop(run_id)
            await _ended(plane, run_id)
    _tell_beats(report, apart, lasted, crowds)


async def _ended(plane: ControlPlane, run_id: RunId) -> None:
    until = time.monotonic() + PATIENCE
    while (await plane.store.runs.get(run_id)).ended_at is None and time.monotonic() < until:
        await asyncio.sleep(0.2)


def _tell_beats(
    report: Report, apart: dict[str, list[float]], lasted: dict[str, list[float]], crowds: Sequence[dict[str, Any]]
) -> None:
    mean = {name: sum(values) / len(values) for name, values in apart.items()}
    rows = [
        (name, len(apart[name]), mean[name], percentile(apart[name], 95), max(apart[name]), percentile(lasted[name], 50))
        for name in apart
    ]
    print_table(("beats", "count", "apart, mean s", "p95 s", "max s", "took, median ms"), rows)
    heard = [gap for crowd in crowds for gap in crowd["gaps"]]
    answers = [answer * 1000 for crowd in crowds for answer in crowd["answers"]]
    failed = [failure for crowd in crowds for failure in crowd["failed"]]
    report.ratios["beats_apart_watched_to_alone"] = mean["watched"] / mean["alone"]
    report.ratios["beats_p95_apart_watched_to_alone"] = percentile(apart["watched"], 95) / percentile(apart["alone"], 95)
    report.figures |= {
        "watchers": WATCHERS,
        "requests_a_second": REQUESTS,
        "beats_took_ms": {name: percentile(values, 50) for name, values in lasted.items()},
        "frames": sum(crowd["frames"] for crowd in crowds),
        "frames_apart_p99_s": percentile(heard, 99),
        "answers": len(answers),
        "answers_p50_ms": percentile(answers, 50),
        "answers_p99_ms": percentile(answers, 99),
        "failed": len(failed),
        "server_cpu_percent": sum(crowd["cpu"] for crowd in crowds) / len(crowds),
    }
    for failure in failed[:5]:
        say(f"client error: {failure}")


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    from servers.chromium import installation

    found = installation()
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        browser = await playwright.chromium.launch(
            executable_path=found.program, args=arguments, env={**os.environ, **found.environment}
        )
        try:
            yield browser
        finally:
            await browser.close()


_ANSWERS = {"Operation log": "Only failed operations", "worker-0": "last heartbeat:"}  #: click target and the text that appears
_THERE = """() => window.socket && window.socket.connected && document.querySelector('[aria-label="Status"]')?.innerText"""
_DRAWN = "() => Number(document.querySelector('[data-drawn]')?.dataset.drawn) > 0"


async def opened(context: Any, url: str, press: str) -> tuple[float, float]:
    """Open a page; returns the seconds until it reacts to a click, and until its charts are drawn."""
    page = await context.new_page()
    try:
        began = time.monotonic()
        await page.goto(url, wait_until="commit")
        await page.wait_for_function(_THERE, polling=25, timeout=PATIENCE * 1000)
        await page.get_by_role("button", name=press).first.click()
        await page.get_by_text(_ANSWERS[press]).first.wait_for()
        interactive = time.monotonic() - began
        await page.wait_for_function(_DRAWN, polling=25, timeout=PATIENCE * 1000)
        return interactive, time.monotonic() - began
    finally:
        await page.close()


async def visits(browser: Any, url: str, press: str, times: int) -> list[tuple[float, float]]:
    """Return the load times of the first visit in a fresh browser, and of the visits that follow."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        return [await opened(context, url, press) for _ in range(times + 1)]
    finally:
        await context.close()


async def measure_pages(folder: Path, seconds: int, times: int, report: Report) -> None:
    file = folder / "drumbeat.db"
    settings = Settings(store=f"sqlite:///{file}", state_dir=folder / "state")
    async with open_control_plane(settings, create=True) as plane:
        say(f"writing {seconds} s of samples of {WORKERS} workers")
        runs = {
            "ended": await long_run(plane.store, file, "ended", seconds, WORKERS, ended=True),
            "under_way": await long_run(plane.store, file, "under-way", seconds, WORKERS, ended=False),
        }
    presses = {"ended": "Operation log", "under_way": "worker-0"}
    with serving(folder, settings, "--no-conduct") as (address, _):
        async with chromium() as browser:
            for name, run_id in runs.items():
                first, *spent = await visits(browser, f"{address}/runs/{run_id}", presses[name], times)
                say(f"{name}: first {first[0]:.2f} s, then " + ", ".join(f"{each:.2f} s" for each, _ in spent))
                report.figures[f"page_{name}_first_s"] = first[0]
                report.figures[f"page_{name}_median_s"] = percentile([each for each, _ in spent], 50)
                report.figures[f"page_{name}_worst_s"] = max(each for each, _ in spent)
                report.figures[f"page_{name}_drawn_median_s"] = percentile([drawn for _, drawn in spent], 50)


async def going_on(plane: ControlPlane, run_id: RunId, first: int, seconds: int) -> None:
    """Simulate a run's workers and its orchestrator, second by second."""
    known, pool_id = histograms(Random(8), 10), PoolId(run_id)
    await plane.store.leases.acquire(run_id, "o", timedelta(hours=1))
    for n in range(first, first + seconds):
        began = time.monotonic()
        for slot in range(WORKERS):
            worker = f"worker-{slot}"
            await plane.store.membership.beat(
                Heartbeat(
                    pool_id=pool_id,
                    worker_id=WorkerId(worker),
                    instance=worker,
                    read_to=0,
                    phase="MEASUREMENT",
                    applied_target=5,
                    active=5,
                    operations=1000 * n,
                    errors=0,
                    cpu_percent=50.0,
                    memory_percent=30.0,
                    sample=sample(n, timedelta(), known[n % 10]),
                )
            )
        await plane.store.beats.append(pool_id, NewBeat(owner="o", epoch=1, view={}, why_not="all is well"))
        await asyncio.sleep(max(1.0 - (time.monotonic() - began), 0.0))


async def measure_live(folder: Path, lasted: int, seconds: int, report: Report) -> None:
    """Measure the bytes per second that a live page receives, for a run that has already lasted ``lasted`` seconds."""
    file = folder / "drumbeat.db"
    settings = Settings(store=f"sqlite:///{file}", state_dir=folder / "state")
    received: list[int] = []
    async with open_control_plane(settings, create=True) as plane, chromium() as browser:
        run_id = await long_run(plane.store, file, "live", lasted, WORKERS, ended=False)
        with serving(folder, settings, "--no-conduct") as (address, _):
            page = await browser.new_page()
            page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
            await page.goto(f"{address}/runs/{run_id}", wait_until="commit")
            await page.wait_for_function(_DRAWN, polling=100, timeout=PATIENCE * 1000)
            await going_on(plane, run_id, lasted, 5)
            received.clear()
            await going_on(plane, run_id, lasted + 5, seconds)
            report.figures[f"live_page_after_{lasted}_s_bytes_per_second"] = sum(received) / seconds


async def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", choices=("beats", "pages", "live"), help="run only one part")
    given = options.parse_args()
    report = Report("web_load")
    with tempfile.TemporaryDirectory() as folder:
        if given.only in (None, "beats"):
            place = Path(folder) / "beats"
            place.mkdir()
            await measure_beats(place, 2 if given.quick else 4, 6.0 if given.quick else 12.0, report)
        if given.only in (None, "pages"):
            place = Path(folder) / "pages"
            place.mkdir()
            await measure_pages(place, 900 if given.quick else 3600, 3 if given.quick else 7, report)
        if given.only in (None, "live"):
            for lasted in (300,) if given.quick else (300, 3000):
                place = Path(folder) / f"live-{lasted}"
                place.mkdir()
                await measure_live(place, lasted, 20, report)
    report.note_versions(["nicegui", "uvicorn", "websockets", "playwright"])
    report.print()


if __name__ == "__main__":
    asyncio.run(main())
