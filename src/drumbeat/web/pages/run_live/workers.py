"""A run's workers by health: a grid to see at a glance, and one worker closely."""

from datetime import timedelta
from functools import partial

from nicegui import ui

from drumbeat.bench.model import Curves, Watched, WorkerSnapshot
from drumbeat.core.run import RunId
from drumbeat.core.worker import Health
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import told
from drumbeat.web.pages.components import lasting, words
from drumbeat.web.pages.element_names import called, given
from drumbeat.web.pages.run_live.charts import ChartLine, LimitLine, LiveChart, options
from drumbeat.web.pages.run_live.figures import ms, number

_JUST_NOW = timedelta(seconds=2)


def state_of(seen: WorkerSnapshot) -> str:
    """How a worker looks: healthy, stale, lost; gone when it left as it should."""
    if not seen.worker.is_live and seen.health is not Health.LOST:
        return "gone"
    return str(seen.health)


def sentence(seen: WorkerSnapshot) -> str:
    worker = seen.worker
    if not worker.is_live:
        return f"{worker.status}" + (f": {worker.error}" if worker.error else "")
    heard = "heard just now" if seen.silence < _JUST_NOW else f"heard {lasting(seen.silence)} ago"
    return f"{worker.status}, {seen.health} · {number(seen.qps)}/s · {worker.applied_target}/{worker.target} · {heard}"


class WorkerGrid:
    """Every worker as a field that opens when pressed."""

    def __init__(self, house: AppState, run_id: RunId) -> None:
        self._house, self._run_id = house, run_id
        self._fields: dict[str, tuple[ui.element, ui.label]] = {}
        self._seen: dict[str, WorkerSnapshot] = {}
        self._count = ui.label("Workers").classes("text-h6").props("role=heading aria-level=2")
        self._grid = ui.element("div").classes("worker-grid w-full")
        self._none = ui.label("None has been started yet.").classes("faint")

    def show(self, seen: Watched) -> None:
        self._seen = {each.worker.worker_id: each for each in seen.workers}
        live = sum(each.worker.is_live for each in seen.workers)
        self._count.text = f"Workers ({live} of {len(seen.workers)} live)"
        self._none.set_visibility(not seen.workers)
        for each in seen.workers:
            self._draw(each)

    def _draw(self, seen: WorkerSnapshot) -> None:
        name, state = seen.worker.worker_id, state_of(seen)
        field, text = self._fields.get(name) or self._add(name)
        text.text = sentence(seen)
        field.classes(replace=f"worker {state}")
        given(called(field, f"{name}: {state}"), "data-health", state)

    def _add(self, name: str) -> tuple[ui.element, ui.label]:
        with self._grid, ui.element("button").props("type=button").on("click", partial(self._open, name)) as field:
            ui.label(name).classes("name")
            text = ui.label().classes("text-caption number")
        self._fields[name] = (field, text)
        return field, text

    async def _open(self, name: str) -> None:
        made = called(ui.dialog().props("transition-duration=0"), name)
        with made as dialog, ui.card().classes("w-full max-w-3xl"):
            ui.label(name).classes("text-h6").props("role=heading aria-level=2")
            seen = self._seen[name]
            for what, value in facts(seen).items():
                with ui.row().classes("gap-2"):
                    ui.label(f"{what}:").classes("faint")
                    ui.label(words(value))
            chart, load = LiveChart("Throughput of this worker"), LiveChart("CPU and memory of its host", height=180)
            ui.button("Close", on_click=dialog.close).props("flat no-caps autofocus")
        dialog.on("hide", dialog.delete)
        dialog.open()
        await told(partial(self._fill, name, chart, load))

    async def _fill(self, name: str, chart: LiveChart, load: LiveChart) -> None:
        curves = await self._house.plane.bench().worker_curves(self._run_id, name)
        chart.show(options([ChartLine(name="operations", points=curves.series.get("qps", ()))], unit="operations/s"))
        load.show(_load(curves))


def _load(curves: Curves) -> dict[str, object]:
    lines = [ChartLine(name=name, points=curves.series.get(key, ())) for key, name in _LOAD.items()]
    return options(lines, unit="%", limits=[LimitLine(name="100 %", level=100)])


_LOAD = {"cpu_percent": "CPU", "memory_percent": "memory"}


def facts(seen: WorkerSnapshot) -> dict[str, object]:
    """What is known of one worker."""
    worker = seen.worker
    return {
        "status": worker.status,
        "health": seen.health,
        "last heard": f"{lasting(seen.silence)} ago",
        "host": worker.host,
        "process": worker.pid,
        "phase": worker.phase,
        "connections": f"{worker.active} active, {worker.applied_target} held, {worker.target} asked for",
        "operations": worker.operations,
        "errors": worker.errors,
        "p50 / p95 / p99": f"{ms(seen.p50_ms)} / {ms(seen.p95_ms)} / {ms(seen.p99_ms)}",
        "reads / writes in the last second": f"{seen.reads:,} / {seen.writes:,}",
        "CPU / memory": f"{number(worker.cpu_percent)} % / {number(worker.memory_percent)} %",
        "started": worker.started_at,
        "ended": worker.ended_at,
        "error": worker.error,
    }
