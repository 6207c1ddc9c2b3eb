"""The workers of a run: a grid coloured by health, and a dialog with the details of one worker."""

from datetime import timedelta
from functools import partial

from nicegui import ui

from drumbeat.bench.model import Curves, LiveRun, WorkerSnapshot
from drumbeat.core.run import RunId
from drumbeat.core.worker import Health, WorkerId, WorkerStatus
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import report_errors
from drumbeat.web.pages.components import as_text, duration_text
from drumbeat.web.pages.element_names import set_attribute, set_label
from drumbeat.web.pages.plain_words import PHASES, counted, plain
from drumbeat.web.pages.run_live.charts import ChartLine, LimitLine, LiveChart, options
from drumbeat.web.pages.run_live.figures import ms, number

_JUST_NOW = timedelta(seconds=2)


def state_of(snapshot: WorkerSnapshot) -> str:
    """Return the state of a worker in the grid: healthy, stale (or not started), lost, or terminated if it ended normally."""
    if snapshot.worker.is_live and snapshot.worker.not_started is not None:
        return str(Health.STALE)
    if not snapshot.worker.is_live and snapshot.health is not Health.LOST:
        return str(WorkerStatus.TERMINATED)
    return str(snapshot.health)


def sentence(snapshot: WorkerSnapshot) -> str:
    """Return the state of a worker in one line: status, health, throughput, connections, last heartbeat."""
    worker = snapshot.worker
    problem = worker.error or worker.not_started
    if not worker.is_live or worker.not_started is not None:
        return f"{worker.shown_status}" + (f": {problem}" if problem else "")
    heartbeat = "just now" if snapshot.silence < _JUST_NOW else f"{duration_text(snapshot.silence)} ago"
    connections = f"{worker.applied_target} of {counted(worker.target, 'connection')}"
    return f"{worker.status}, {snapshot.health} · {number(snapshot.qps)} operations/s · {connections} · heartbeat {heartbeat}"


class WorkerGrid:
    """A grid with a button for each worker, which opens the worker's details."""

    def __init__(self, app: AppState, run_id: RunId) -> None:
        self._app, self._run_id = app, run_id
        self._buttons: dict[str, tuple[ui.element, ui.label]] = {}
        self._snapshots: dict[str, WorkerSnapshot] = {}
        self._count = ui.label("Workers").classes("text-h6").props("role=heading aria-level=2")
        self._grid = ui.element("div").classes("worker-grid w-full")
        self._none = ui.label("No workers yet").classes("faint")

    def show(self, watched: LiveRun) -> None:
        self._snapshots = {each.worker.worker_id: each for each in watched.workers}
        live = sum(each.worker.is_live for each in watched.workers)
        self._count.text = f"Workers ({live} of {len(watched.workers)} live)"
        self._none.set_visibility(not watched.workers)
        for each in watched.workers:
            self._draw(each)

    def _draw(self, snapshot: WorkerSnapshot) -> None:
        name, state = snapshot.worker.worker_id, state_of(snapshot)
        button, text = self._buttons.get(name) or self._add(name)
        text.text = sentence(snapshot)
        button.classes(replace=f"worker {state}")
        set_attribute(set_label(button, f"{name}: {state}"), "data-health", state)

    def _add(self, name: str) -> tuple[ui.element, ui.label]:
        with self._grid, ui.element("button").props("type=button").on("click", partial(self._open, name)) as button:
            ui.label(name).classes("name")
            text = ui.label().classes("text-caption number")
        self._buttons[name] = (button, text)
        return button, text

    async def _open(self, name: str) -> None:
        made = set_label(ui.dialog().props("transition-duration=0"), name)
        with made as dialog, ui.card().classes("w-full max-w-3xl"):
            ui.label(name).classes("text-h6").props("role=heading aria-level=2")
            snapshot = self._snapshots[name]
            for what, value in facts(snapshot).items():
                with ui.row().classes("gap-2"):
                    ui.label(f"{what}:").classes("faint")
                    ui.label(as_text(value))
            chart, load = LiveChart("Throughput of this worker"), LiveChart("Worker host CPU and memory", height=180)
            ui.button("Close", on_click=dialog.close).props("flat no-caps autofocus")
        dialog.on("hide", dialog.delete)
        dialog.open()
        await report_errors(partial(self._fill, name, chart, load))

    async def _fill(self, name: str, chart: LiveChart, load: LiveChart) -> None:
        curves = await self._app.plane.bench().worker_curves(self._run_id, WorkerId(name))
        chart.show(options([ChartLine(name="operations", points=curves.series.get("qps", ()))], unit="operations/s"))
        load.show(_load(curves))


def _load(curves: Curves) -> dict[str, object]:
    lines = [ChartLine(name=name, points=curves.series.get(key, ())) for key, name in _LOAD.items()]
    return options(lines, unit="%", limits=[LimitLine(name="100 %", level=100)])


_LOAD = {"cpu_percent": "CPU", "memory_percent": "memory"}


def facts(snapshot: WorkerSnapshot) -> dict[str, object]:
    """Return the details of one worker: each a name and a value."""
    worker = snapshot.worker
    return {
        "status": worker.shown_status,
        "health": snapshot.health if worker.not_started is None else None,
        "last heartbeat": f"{duration_text(snapshot.silence)} ago",
        "engine": worker.engine,
        "host": worker.place,
        "process ID": worker.pid,
        "phase": plain(PHASES, worker.phase),
        "connections": f"{worker.active} busy, {worker.applied_target} open, {worker.target} target",
        "operations": worker.operations,
        "errors": worker.errors,
        "latency p50 / p95 / p99": f"{ms(snapshot.p50_ms)} / {ms(snapshot.p95_ms)} / {ms(snapshot.p99_ms)}",
        "reads / writes in the last second": f"{snapshot.reads:,} / {snapshot.writes:,}",
        "host CPU / memory": f"{number(worker.cpu_percent)} % / {number(worker.memory_percent)} %",
        "started (UTC)": worker.started_at,
        "ended (UTC)": worker.ended_at,
        "error": worker.error or worker.not_started,
    }
