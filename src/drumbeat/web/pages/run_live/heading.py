"""The top of a run's page: name, status, verdict, limits and buttons."""

from collections.abc import Mapping
from functools import partial

from nicegui import ui

from drumbeat.bench.model import LiveRun, RunJudgement, ScalingMode
from drumbeat.core.errors import NotFound
from drumbeat.core.run import RUN_ENDED, RunId, RunStatus
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import Action, button, confirm, may_change, notify
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.frame import breadcrumbs, heading
from drumbeat.web.pages.plain_words import END_REASONS, LOAD_MODES, RUN_STATUSES, counted, plain
from drumbeat.web.snapshot_sections import bounds, whole_result
from drumbeat.web.verdicts import status_colour, verdict_colour, verdict_words

CREATE_SAME = "Run again (create a copy)"  #: label of the button that creates the copy, without starting it


class Heading:
    """Shows name, status, verdict, limits and buttons of a run."""

    def __init__(self, app: AppState, watched: LiveRun, template: str | None) -> None:
        """``template``: the name of the run's template; None if it has none."""
        self._app, self._run_id, self._template = app, watched.run.run_id, template
        breadcrumbs(("Runs", "/runs"))
        with ui.row().classes("items-center w-full gap-2"):
            heading(watched.run.name or str(watched.run.run_id))
            self._status = ui.badge("", text_color="white").classes("q-px-sm q-py-xs").props('aria-label="Status"')
            self._verdict = ui.badge("", text_color="white").classes("q-px-sm q-py-xs").props('aria-label="Run verdict"')
            ui.space()
            self._buttons = {name: self._button(name) for name in ("start", "stop", "rerun", "delete")} if may_change() else {}
        self._facts = ui.label().classes("text-caption faint")
        with ui.row().classes("items-center gap-2"):
            self._bounds = ui.label().classes("text-caption")
            self._ceiling = (
                ui.badge("", color="warning", text_color="white").classes("q-pa-xs").props('aria-label="Limit reached"')
            )
        self._reason = ui.label().classes("text-weight-medium").props('role=status aria-label="Reason for the verdict"')
        self._why = ui.label().classes("text-weight-medium")

    def _button(self, name: str) -> ui.button:
        actions: dict[str, tuple[str, Action, str]] = {
            "start": ("Start", self._start, "play_arrow"),
            "stop": ("Stop", self._stop, "stop"),
            "rerun": (CREATE_SAME, partial(run_again, self._app, self._run_id), "replay"),
            "delete": ("Delete", partial(delete_run, self._app, self._run_id), "delete"),
        }
        text, action, icon = actions[name]
        return button(text, action, icon, danger=name in ("stop", "delete"))

    def show(self, watched: LiveRun) -> None:
        run = watched.run
        self._status.text = RUN_STATUSES[run.status]
        set_attribute(self._status, "color", status_colour(run, watched.judgement))
        self._show_verdict(watched.judgement)
        self._facts.text = " · ".join(f"{name} {value}" for name, value in _facts(watched, self._template).items() if value)
        self._why.text = end_reason(watched)
        self._why.set_visibility(bool(self._why.text))
        self._show_bounds(watched)
        self._show_buttons(run.status)

    def _show_verdict(self, judgement: RunJudgement) -> None:
        text = verdict_words(judgement)
        self._verdict.text = text or ""
        self._verdict.set_visibility(text is not None)
        set_attribute(self._verdict, "color", verdict_colour(judgement))
        self._reason.text = judgement.reason
        self._reason.set_visibility(text is not None and bool(judgement.reason))

    def _show_bounds(self, watched: LiveRun) -> None:
        limits = bounds(watched)
        self._bounds.text = bounds_words(watched)
        message = limits["message"] if limits else None
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
        await self._app.plane.bench().start(self._run_id)
        notify("Run started.")

    async def _stop(self) -> None:
        if await confirm("Stop this run? Workers finish their current operations; measurements are kept.", "Stop run"):
            await self._app.plane.bench().stop(self._run_id)
            notify("Stopping the run.")


async def run_again(app: AppState, run_id: RunId) -> None:
    """Create a new run with the same configuration, and go to its page."""
    made, preflight = await app.plane.bench().recreate(run_id)
    app.run_warnings.add(made.run_id, preflight.warnings)
    ui.navigate.to(f"/runs/{made.run_id}")


async def delete_run(app: AppState, run_id: RunId) -> None:
    if await confirm("Delete this run with its samples, results, files and logs? This cannot be undone.", "Delete run"):
        await app.plane.bench().remove(run_id)
        ui.navigate.to("/runs")


async def template_name(app: AppState, template_id: str | None) -> str | None:
    """Return the name of a run's template; its id if the template was deleted; None if the run has none."""
    if template_id is None:
        return None
    try:
        return (await app.plane.store.templates.get(template_id)).name
    except NotFound:
        return template_id


def _facts(watched: LiveRun, template: str | None) -> Mapping[str, object]:
    plan, document = watched.plan, watched.run.config.get("document")
    workload = document.get("workload") if isinstance(document, Mapping) else None
    standard = workload.get("standard") if isinstance(workload, Mapping) else None
    return {
        "run": watched.run.run_id,
        "load mode": plain(LOAD_MODES, plan.load_mode),
        "workload": standard,
        "warmup": f"{plan.warmup.total_seconds():g} s",
        "duration": f"{plan.duration.total_seconds():g} s" if plan.load_mode != "FIND_MAX_CONCURRENCY" else "open-ended",
        "template": template,
    }


def bounds_words(watched: LiveRun) -> str:
    """Return the worker and connection limits of a run in one line; empty if it has none."""
    scaling = watched.plan.scaling
    match scaling.mode:
        case ScalingMode.FIXED:
            each = counted(scaling.min_connections, "connection")
            return f"{counted(scaling.min_workers, 'worker')} with {each} each (FIXED)"
        case ScalingMode.BOUNDED:
            least, limit = scaling.min_workers, scaling.max_workers
            workers = f"{least} or more workers" if limit is None else f"{least} to {counted(limit, 'worker')}"
            most = scaling.max_connections if scaling.max_connections is not None else scaling.cap
            return f"{workers} with {scaling.min_connections} to {counted(most, 'connection')} each (BOUNDED)"
        case ScalingMode.AUTO:
            return ""


def end_reason(watched: LiveRun) -> str:
    """Return why the run ended, as one line; empty while it is active."""
    if watched.run.status not in RUN_ENDED:
        return ""
    total = whole_result(watched)
    why = total.failure_reason if total else None
    reasons = [part for part in (plain(END_REASONS, watched.run.completion_reason), why) if part]
    return f"Ended: {': '.join(reasons)}" if reasons else ""
