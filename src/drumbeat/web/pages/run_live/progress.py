"""The progress of a run: its phases as a row of labels (bubbles), and timers that never run backwards."""

from datetime import timedelta

from nicegui import ui

from drumbeat.bench.model import LiveRun
from drumbeat.core.clock import Clock
from drumbeat.core.run import RUN_ENDED, Phase, Run, RunStatus
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.snapshot import elapsed, phase_began

BUBBLES = ("Preparing", "Warmup", "Measurement", "Processing", "Completed")
_POSITIONS = {
    Phase.PREPARING: 0,
    Phase.WARMUP: 1,
    Phase.MEASUREMENT: 2,
    Phase.COOLDOWN: 3,
    Phase.PROCESSING: 3,
}
_ENDS = {RunStatus.COMPLETED: "Completed", RunStatus.FAILED: "Failed", RunStatus.CANCELLED: "Cancelled"}


def position_of(run: Run) -> int:
    """Return the index of a run's current phase in ``BUBBLES`` (the row of labels); -1 if the run has not started."""
    if run.status in RUN_ENDED:
        return len(BUBBLES) - 1
    return _POSITIONS.get(Phase(run.phase), 0) if run.phase in set(Phase) else -1


class SteadyTimer:
    """The elapsed time to show: between two updates from the store it advances by the local clock. It never goes backwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown = timedelta()
        self._synced: tuple[timedelta, timedelta] | None = None  #: elapsed time at the last update, and the local clock then

    def sync(self, passed: timedelta, *, running: bool) -> None:
        self._synced = (passed, self._clock.elapsed()) if running else None
        self._shown = max(self._shown, passed)

    def reset(self) -> None:
        self._shown, self._synced = timedelta(), None

    def read(self) -> timedelta:
        if self._synced is not None:
            passed, at = self._synced
            self._shown = max(self._shown, passed + self._clock.elapsed() - at)
        return self._shown


class Progress:
    """Shows the phases and timers of a run."""

    def __init__(self, clock: Clock) -> None:
        self._reached = -1
        self._total, self._phase = SteadyTimer(clock), SteadyTimer(clock)
        with ui.row().classes("items-center w-full gap-4"):
            with ui.element("ol").classes("bubbles").props('aria-label="Phases"'):
                self._bubbles = [ui.element("li").classes("bubble") for _ in BUBBLES]
                self._labels = []
                for bubble, name in zip(self._bubbles, BUBBLES, strict=True):
                    with bubble:
                        self._labels.append(ui.label(name).classes("inline"))
            self._time = ui.label("Not started").classes("number text-subtitle1").props('role=timer aria-label="Elapsed time"')

    def show(self, watched: LiveRun) -> None:
        """Show the current phase and time. A phase that was reached stays marked as reached."""
        position, ended = position_of(watched.run), watched.run.status in RUN_ENDED
        if position > self._reached:
            self._phase.reset()
        self._reached = max(self._reached, position)
        self._total.sync(elapsed(watched), running=not ended and watched.run.started_at is not None)
        began = phase_began(watched.run)
        if began is not None and position == self._reached and not ended:
            self._phase.sync(max(watched.now - began, timedelta()), running=True)
        self._draw(watched.run, missed=watched.judgement.is_bad)
        self.tick()

    def _draw(self, run: Run, *, missed: bool) -> None:
        for position, bubble in enumerate(self._bubbles):
            bubble.classes(replace=f"bubble {self._state(position, run, missed=missed)}")
            if position == self._reached:
                set_attribute(bubble, "aria-current", "step")
            elif "aria-current" in bubble.props:
                bubble.props(remove="aria-current")
        self._labels[-1].text = _ENDS.get(run.status, BUBBLES[-1])

    def _state(self, position: int, run: Run, *, missed: bool) -> str:
        if position == len(BUBBLES) - 1 and run.status in RUN_ENDED:
            return "bad" if missed or run.status is not RunStatus.COMPLETED else "good"
        return "past" if position < self._reached else "now" if position == self._reached else ""

    def tick(self) -> None:
        """Show the elapsed time. Called once a second, also without new data."""
        if self._reached < 0:
            return
        total, phase = self._total.read(), self._phase.read()
        phase_time = f" · this phase {clock_text(phase)}" if phase and self._reached < len(BUBBLES) - 1 else ""
        self._time.text = f"{clock_text(total)}{phase_time}"


def clock_text(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}" if hours else f"{minutes}:{seconds % 60:02d}"
