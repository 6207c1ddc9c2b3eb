"""A run's name, state and bounds, and what may be done with it."""

from collections.abc import Mapping
from functools import partial

from nicegui import ui

from drumbeat.bench.model import RunJudgement, ScalingMode, Watched
from drumbeat.core.run import RUN_ENDED, RunId, RunStatus
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import Deed, button, confirmed, may_change, say
from drumbeat.web.pages.element_names import given
from drumbeat.web.pages.frame import heading, trail
from drumbeat.web.snapshot_sections import bounds
from drumbeat.web.verdicts import status_colour, verdict_colour, verdict_words


class Heading:
    """The top of a run's page."""

    def __init__(self, house: AppState, seen: Watched) -> None:
        self._house, self._run_id = house, seen.run.run_id
        trail(("Runs", "/runs"))
        with ui.row().classes("items-center w-full gap-2"):
            heading(seen.run.name or str(seen.run.run_id))
            self._status = ui.badge("", text_color="white").classes("q-px-sm q-py-xs").props('aria-label="Status"')
            self._verdict = ui.badge("", text_color="white").classes("q-px-sm q-py-xs").props('aria-label="Run verdict"')
            ui.space()
            self._buttons = {name: self._button(name) for name in ("start", "stop", "rerun", "delete")} if may_change() else {}
        self._facts = ui.label().classes("text-caption faint")
        with ui.row().classes("items-center gap-2"):
            self._bounds = ui.label().classes("text-caption")
            self._ceiling = (
                ui.badge("", color="warning", text_color="white").classes("q-pa-xs").props('aria-label="At the bounds"')
            )
        self._reason = ui.label().classes("text-weight-medium").props('role=status aria-label="Reason for the verdict"')
        self._why = ui.label().classes("text-weight-medium")

    def _button(self, name: str) -> ui.button:
        deeds: dict[str, tuple[str, Deed, str]] = {
            "start": ("Start", self._start, "play_arrow"),
            "stop": ("Stop", self._stop, "stop"),
            "rerun": ("Run again", partial(run_again, self._house, self._run_id), "replay"),
            "delete": ("Delete", partial(delete_run, self._house, self._run_id), "delete"),
        }
        words, deed, icon = deeds[name]
        return button(words, deed, icon, danger=name in ("stop", "delete"))

    def show(self, seen: Watched) -> None:
        run = seen.run
        self._status.text = run.status
        given(self._status, "color", status_colour(run, seen.judgement))
        self._show_verdict(seen.judgement)
        self._facts.text = " · ".join(f"{name} {value}" for name, value in _facts(seen).items() if value)
        self._why.text = ended_because(seen)
        self._why.set_visibility(bool(self._why.text))
        self._show_bounds(seen)
        self._show_buttons(run.status)

    def _show_verdict(self, judgement: RunJudgement) -> None:
        words = verdict_words(judgement)
        self._verdict.text = (words or "").upper()
        self._verdict.set_visibility(words is not None)
        given(self._verdict, "color", verdict_colour(judgement))
        self._reason.text = judgement.reason
        self._reason.set_visibility(words is not None and bool(judgement.reason))

    def _show_bounds(self, seen: Watched) -> None:
        told = bounds(seen)
        self._bounds.text = bounds_words(seen)
        message = told["message"] if told else None
        self._ceiling.text = message or ""
        self._ceiling.set_visibility(bool(message))

    def _show_buttons(self, status: RunStatus) -> None:
        ended = status in RUN_ENDED
        when = {
            "start": status is RunStatus.PREPARED,
            "stop": not ended and status is not RunStatus.CANCELLING,
            "rerun": ended,
            "delete": ended or status is RunStatus.PREPARED,
        }
        for name, made in self._buttons.items():
            made.set_visibility(when[name])

    async def _start(self) -> None:
        await self._house.plane.bench().start(self._run_id)
        say("Started.")

    async def _stop(self) -> None:
        if await confirmed("Stop this run? Its workers finish what they hold; what was measured is kept.", "Stop it"):
            await self._house.plane.bench().stop(self._run_id)
            say("It is being stopped.")


async def run_again(house: AppState, run_id: RunId) -> None:
    """Another run like this one, ready to be started."""
    made, preflight = await house.plane.bench().recreate(run_id)
    for warning in preflight.warnings:
        say(str(warning))
    ui.navigate.to(f"/runs/{made.run_id}")


async def delete_run(house: AppState, run_id: RunId) -> None:
    if await confirmed("Delete this run, its samples, results, files and logs? That cannot be undone.", "Delete it"):
        await house.plane.bench().remove(run_id)
        ui.navigate.to("/runs")


def _facts(seen: Watched) -> Mapping[str, object]:
    plan, document = seen.plan, seen.run.config.get("document")
    workload = document.get("workload") if isinstance(document, Mapping) else None
    standard = workload.get("standard") if isinstance(workload, Mapping) else None
    return {
        "run": seen.run.run_id,
        "load": plan.load_mode,
        "workload": standard,
        "warmup": f"{plan.warmup.total_seconds():g} s",
        "duration": f"{plan.duration.total_seconds():g} s" if plan.load_mode != "FIND_MAX_CONCURRENCY" else "as it takes",
        "template": seen.run.template_id,
    }


def bounds_words(seen: Watched) -> str:
    """The bounds of a run in one line; nothing where there are none."""
    scaling = seen.plan.scaling
    match scaling.mode:
        case ScalingMode.FIXED:
            return f"FIXED: {scaling.min_workers} workers of {scaling.min_connections} connections"
        case ScalingMode.BOUNDED:
            workers = f"{scaling.min_workers} to {scaling.max_workers if scaling.max_workers is not None else 'any number of'}"
            most = scaling.max_connections if scaling.max_connections is not None else scaling.cap
            return f"BOUNDED: {workers} workers of {scaling.min_connections} to {most} connections"
        case ScalingMode.AUTO:
            return ""


def ended_because(seen: Watched) -> str:
    """Why it ended as it did."""
    if seen.run.status not in RUN_ENDED:
        return ""
    whole = next((row for row in seen.results if row.worker_id is None and row.kind is None), None)
    why = whole.failure_reason if whole else None
    return ": ".join(str(part) for part in (seen.run.completion_reason, why) if part)
