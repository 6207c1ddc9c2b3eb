"""The page that simulates a policy on a trace of jobs: what it would cost, and how long jobs would wait."""

import math
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import events, ui

from drumbeat.composition.offline import trace_jobs
from drumbeat.core.downsample import downsample
from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import PolicyName
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import notify, report_errors
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.forms import Field, mark_field
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.plain_words import POLICIES, SIMULATED, plain
from drumbeat.web.pages.run_live.charts import ChartLine, LiveChart, options
from drumbeat.web.simulations import HIGHEST_PRICE, LONGEST_LAG, MOST_WORKERS, Jobs, run_in_daemon_thread, simulate_on_server

if TYPE_CHECKING:
    from drumbeat.composition.offline import Simulated

MAX_BYTES = 4 * 1024 * 1024  #: maximum size of an uploaded trace
_POINTS = 1500
_MAXIMUM = {
    "spawn_lag": LONGEST_LAG,
    "max_workers": MOST_WORKERS,
    "min_workers": MOST_WORKERS,
    "price_per_hour": HIGHEST_PRICE,
}
_METRICS = (
    TableColumn(name="metric", read=lambda row: plain(SIMULATED, row[0])),
    TableColumn(name="cold", read=lambda row: _value_text(row[1]), number=True),
    TableColumn(name="warm", read=lambda row: _value_text(row[2]), number=True),
)


def sample_trace() -> str:
    """Return an example trace as CSV text: eight hours with two peaks, always the same."""
    lines, at, end = ["arrival,duration"], 0.0, 8 * 3600.0
    while at < end:
        hour = at / 3600
        rate = 0.01 + 0.06 * math.exp(-((hour - 2) ** 2) / 0.5) + 0.09 * math.exp(-((hour - 5.5) ** 2) / 0.8)
        lines.append(f"{at:.1f},{60 + 45 * math.sin(at):.1f}")
        at += 1 / rate
    return "\n".join(lines)


def add(app: AppState) -> None:
    @page(app, "/simulate", "Fleets")
    async def simulate() -> None:
        breadcrumbs(("Fleets", "/fleet"))
        heading("Simulate a policy")
        ui.label("A trace is a CSV file with the header arrival,duration (in seconds), or a published Azure LLM trace.")
        SimulateForm(app)


class SimulateForm:
    """The form for a simulation, with its result below."""

    def __init__(self, app: AppState) -> None:
        self._app = app
        self._trace = sample_trace()
        self._name = ui.label("Trace: built-in example, 8 hours with two peaks").props("aria-live=polite")
        upload = ui.upload(auto_upload=True, max_files=1, max_file_size=MAX_BYTES, on_upload=self._upload).props("accept=.csv")
        upload.classes("hidden")
        choose = ui.button("Upload a trace (CSV)", icon="upload_file").props("no-caps outline")
        choose.on("click", js_handler=f"() => getElement({upload.id}).$refs.qRef.pickFiles()")
        with ui.row().classes("w-full gap-2"):
            self._policy = ui.select(
                dict(POLICIES), value=PolicyName.LAG_AWARE.value, label="Policy", on_change=self._show_fields
            )
            self._policy.props("outlined dense stack-label").classes("w-full max-w-md")
            self._fields: dict[str, Field] = {
                "spawn_lag": ui.number("Worker startup time (s)", value=120),
                "max_workers": ui.number("Max workers", value=10, precision=0),
                "min_workers": ui.number("Min workers", value=0, precision=0),
                "price_per_hour": ui.number("Worker price per hour", value=0.5),
            }
            for field in self._fields.values():
                field.props("outlined dense stack-label").classes("w-44")
        ui.button("Simulate", icon="play_arrow", on_click=lambda: report_errors(self._simulate)).props("no-caps unelevated")
        self._column = ui.column().classes("w-full").props('role=region aria-label="Simulation result" aria-live=polite')

    @property
    def _is_fixed(self) -> bool:
        return bool(self._policy.value == PolicyName.FIXED)

    def _show_fields(self) -> None:
        """Show the number of workers that the selected policy uses: exactly so many, or a minimum and a maximum."""
        set_attribute(self._fields["max_workers"], "label", "Workers" if self._is_fixed else "Max workers")
        self._fields["min_workers"].set_visibility(not self._is_fixed)

    async def _upload(self, event: events.UploadEventArguments) -> None:
        if event.file.size() > MAX_BYTES:
            notify(f"File too large: expected at most {MAX_BYTES:,} bytes, got {event.file.size():,}.", error=True)
            return
        self._trace = (await event.file.read()).decode("utf-8-sig", errors="replace")
        self._name.text = f"Trace: {event.file.name}"

    async def _simulate(self) -> None:
        try:
            values = {name: _number(name, field.value) for name, field in self._fields.items() if field.visible}
        except InvalidInput as exc:
            mark_field(self._fields, str(exc))
            return
        mark_field(self._fields, "")
        async with self._app.busy:
            found = await run(self._trace, str(self._policy.value), values)
        self._column.clear()
        with self._column:
            show(found)


def _number(name: str, value: Any) -> float:
    """Return the typed number of a field. Raises InvalidInput if it is out of range."""
    is_positive, most = name in ("spawn_lag", "max_workers"), _MAXIMUM[name]
    if value is None or value < 0 or (is_positive and value == 0):
        raise InvalidInput(f"{name}: expected a number above 0" if is_positive else f"{name}: expected 0 or more")
    if value > most:
        raise InvalidInput(f"{name}: expected at most {most:,.0f}, got {value:,.0f}")
    return float(value)


async def run(trace: str, policy: str, values: dict[str, float]) -> "Simulated":
    """Simulate a policy on a trace given as CSV text. Raises InvalidInput."""
    most = int(values["max_workers"])
    settings = (
        {"workers": most} if policy == PolicyName.FIXED else {"max_workers": most, "min_workers": int(values["min_workers"])}
    )
    provider: dict[str, Any] = {"spawn_lag": timedelta(seconds=values["spawn_lag"]), "price_per_hour": values["price_per_hour"]}
    return await simulate_on_server(await run_in_daemon_thread(lambda: jobs_of(trace)), policy, settings, **provider)


def jobs_of(trace: str) -> Jobs:
    """Parse the jobs of a trace given as CSV text. Raises InvalidInput."""
    with tempfile.TemporaryDirectory(prefix="drumbeat-") as folder:
        file = Path(folder) / "trace.csv"
        file.write_text(trace, encoding="utf-8")
        return trace_jobs(file)


def show(found: "Simulated") -> None:
    heading("Simulation result", 2)
    series = found.outcome.series
    lines = thinned_lines(series.at, series.workers, series.busy, series.queued)
    LiveChart("Workers, busy workers and queued jobs", _drawn(lines))
    ui.label("Cold: the fleet starts without workers. Warm: the same jobs arrive a second time, right after the first.")
    PageTable("Metrics", _METRICS, key=lambda row: row[0]).show(metrics(found))


def metrics(found: "Simulated") -> list[tuple[str, Any, Any]]:
    """Return each metric's name and two values: of a new fleet, and of a fleet that has run the same jobs before."""
    cold = found.figures()
    warm = cold.pop("warm") or {}
    return [(name, value, warm.get(name, "–")) for name, value in cold.items()]


def _value_text(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else POLICIES.get(value, value)


def thinned_lines(at: Sequence[float], workers: Sequence[int], busy: Sequence[int], queued: Sequence[int]) -> list[ChartLine]:
    """Return workers, busy workers and queued jobs by hours since the first job, each thinned to at most ``_POINTS`` points."""
    hours = [(each - at[0]) / 3600 for each in at]
    lines = {"workers": workers, "busy workers": busy, "queued jobs": queued}
    return [
        ChartLine(name=name, points=downsample(list(zip(hours, line, strict=True)), _POINTS)) for name, line in lines.items()
    ]


def _drawn(lines: Sequence[ChartLine]) -> dict[str, Any]:
    """Return the options of the chart: lines that change in steps, over the hours of the trace."""
    drawn = options(lines, across="hours since the first job")
    drawn["series"] = [{**line, "step": "end"} for line in drawn["series"]]
    return {**drawn, "tooltip": {"trigger": "axis"}}
