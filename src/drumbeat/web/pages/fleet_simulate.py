"""A trace's jobs under a policy, on virtual time: what it would cost, and how long jobs would wait."""

import math
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import events, ui

from drumbeat.composition.offline import trace_jobs
from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import PolicyName
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import say, told
from drumbeat.web.pages.components import PageTable, Series, TableColumn, chart
from drumbeat.web.pages.forms import Field, blame
from drumbeat.web.pages.frame import heading, page, trail
from drumbeat.web.simulations import HIGHEST_PRICE, LONGEST_LAG, MOST_WORKERS, Jobs, apart, simulated

if TYPE_CHECKING:
    from drumbeat.composition.offline import Simulated

LARGEST = 4 * 1024 * 1024  #: bytes of an uploaded trace
_POINTS = 1500
_MOST = {
    "spawn_lag": LONGEST_LAG,
    "max_workers": MOST_WORKERS,
    "min_workers": MOST_WORKERS,
    "price_per_hour": HIGHEST_PRICE,
}
_EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
_FIGURES = (
    TableColumn(name="figure", read=lambda row: row[0].replace("_", " ")),
    TableColumn(name="cold", read=lambda row: _shown(row[1]), number=True),
    TableColumn(name="warm", read=lambda row: _shown(row[2]), number=True),
)


def sample_trace() -> str:
    """Eight hours with two peaks: made by rule, the same each time."""
    lines, at, end = ["arrival,duration"], 0.0, 8 * 3600.0
    while at < end:
        hour = at / 3600
        rate = 0.01 + 0.06 * math.exp(-((hour - 2) ** 2) / 0.5) + 0.09 * math.exp(-((hour - 5.5) ** 2) / 0.8)
        lines.append(f"{at:.1f},{60 + 45 * math.sin(at):.1f}")
        at += 1 / rate
    return "\n".join(lines)


def add(house: AppState) -> None:
    @page(house, "/simulate", "Fleet")
    async def simulate() -> None:
        trail(("Fleet", "/fleet"))
        heading("Simulate a policy")
        ui.label(
            "A trace is a CSV file with the header arrival,duration, in seconds; or an Azure LLM trace as it is published."
        )
        SimulateForm(house)


class SimulateForm:
    """What to simulate, and what came of it."""

    def __init__(self, house: AppState) -> None:
        self._house = house
        self._trace = sample_trace()
        self._name = ui.label("Trace: the built-in working day with two peaks").props("aria-live=polite")
        upload = ui.upload(auto_upload=True, max_files=1, max_file_size=LARGEST, on_upload=self._take).props("accept=.csv")
        upload.classes("hidden")
        choose = ui.button("Choose another trace (CSV)", icon="upload_file").props("no-caps outline")
        choose.on("click", js_handler=f"() => getElement({upload.id}).$refs.qRef.pickFiles()")
        with ui.row().classes("w-full gap-2"):
            names = {each.value: each.value for each in PolicyName}
            self._policy = (
                ui.select(names, value=PolicyName.LAG_AWARE.value, label="Policy")
                .props("outlined dense stack-label")
                .classes("w-44")
            )
            self._fields: dict[str, Field] = {
                "spawn_lag": ui.number("Spawn lag (s)", value=120),
                "max_workers": ui.number("Most workers", value=10, precision=0),
                "min_workers": ui.number("Fewest workers", value=0, precision=0),
                "price_per_hour": ui.number("Price an hour", value=0.5),
            }
            for field in self._fields.values():
                field.props("outlined dense stack-label").classes("w-36")
        ui.button("Simulate", icon="play_arrow", on_click=lambda: told(self._simulate)).props("no-caps unelevated")
        self._place = ui.column().classes("w-full").props('role=region aria-label="Outcome" aria-live=polite')

    async def _take(self, event: events.UploadEventArguments) -> None:
        if event.file.size() > LARGEST:
            say(f"Expected at most {LARGEST} bytes, got {event.file.size()}.", wrong=True)
            return
        self._trace = (await event.file.read()).decode("utf-8-sig", errors="replace")
        self._name.text = f"Trace: {event.file.name}"

    async def _simulate(self) -> None:
        try:
            given = {name: _number(name, field.value) for name, field in self._fields.items()}
        except InvalidInput as exc:
            blame(self._fields, str(exc))
            return
        blame(self._fields, "")
        async with self._house.busy:
            found = await run(self._trace, str(self._policy.value), given)
        self._place.clear()
        with self._place:
            show(found)


def _number(name: str, value: Any) -> float:
    """A number somebody typed. Raises InvalidInput."""
    above, most = name in ("spawn_lag", "max_workers"), _MOST[name]
    if value is None or value < 0 or (above and value == 0):
        raise InvalidInput(f"{name}: expected a number above 0" if above else f"{name}: expected 0 or more")
    if value > most:
        raise InvalidInput(f"{name}: expected at most {most:,.0f}")
    return float(value)


async def run(trace: str, policy: str, given: dict[str, float]) -> "Simulated":
    """Simulate a trace's text. Raises InvalidInput."""
    most = int(given["max_workers"])
    settings = (
        {"workers": most} if policy == PolicyName.FIXED else {"max_workers": most, "min_workers": int(given["min_workers"])}
    )
    around: dict[str, Any] = {"spawn_lag": timedelta(seconds=given["spawn_lag"]), "price_per_hour": given["price_per_hour"]}
    return await simulated(await apart(lambda: jobs_of(trace)), policy, settings, **around)


def jobs_of(trace: str) -> Jobs:
    """The jobs of a trace's text. Raises InvalidInput."""
    with tempfile.TemporaryDirectory(prefix="drumbeat-") as folder:
        file = Path(folder) / "trace.csv"
        file.write_text(trace, encoding="utf-8")
        return trace_jobs(file)


def show(found: "Simulated") -> None:
    heading("Outcome", 2)
    at = found.outcome.course
    chart("Workers, busy workers and queued jobs over the trace", course(at.at, at.workers, at.busy, at.queued), step=True)
    ui.label("Cold: the fleet begins without workers. Warm: the same jobs when they come a second time, right after the first.")
    PageTable("Figures", _FIGURES, key=lambda row: row[0]).show(figures(found))


def figures(found: "Simulated") -> list[tuple[str, Any, Any]]:
    """Each figure's name with its cold and its warm value."""
    cold = found.figures()
    warm = cold.pop("warm") or {}
    return [(name, value, warm.get(name, "–")) for name, value in cold.items()]


def _shown(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value


def course(at: Sequence[float], workers: Sequence[int], busy: Sequence[int], queued: Sequence[int]) -> Series:
    """The course thinned to what a screen shows."""
    every = max(len(at) // _POINTS, 1)
    lines = {"workers": workers, "busy": busy, "queued": queued}
    return {
        name: [(_EPOCH + timedelta(seconds=when), value) for when, value in zip(at[::every], line[::every], strict=True)]
        for name, line in lines.items()
    }
