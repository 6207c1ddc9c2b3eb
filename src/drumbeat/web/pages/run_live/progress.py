"""How far a run is: its phases as bubbles, and timers that never jump back."""

from datetime import timedelta

from nicegui import ui

from drumbeat.bench.model import Watched
from drumbeat.core.clock import Clock
from drumbeat.core.run import RUN_ENDED, Phase, Run, RunStatus
from drumbeat.web.pages.element_names import given
from drumbeat.web.snapshot import elapsed, phase_began

BUBBLES = ("Preparing", "Warmup", "Running", "Processing", "Completed")
_PLACES = {
    Phase.PREPARING: 0,
    Phase.WARMUP: 1,
    Phase.MEASUREMENT: 2,
    Phase.COOLDOWN: 3,
    Phase.PROCESSING: 3,
}
_ENDS = {RunStatus.COMPLETED: "Completed", RunStatus.FAILED: "Failed", RunStatus.CANCELLED: "Cancelled"}


def place_of(run: Run) -> int:
    """Which bubble a run is at; -1: it was not started."""
    if run.status in RUN_ENDED:
        return len(BUBBLES) - 1
    return _PLACES.get(Phase(run.phase), 0) if run.phase in set(Phase) else -1


class Ticking:
    """A time that goes on by this machine's clock between two looks, and never back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown = timedelta()
        self._known: tuple[timedelta, timedelta] | None = None  #: so much had passed, at that moment

    def know(self, passed: timedelta, *, goes_on: bool) -> None:
        self._known = (passed, self._clock.elapsed()) if goes_on else None
        self._shown = max(self._shown, passed)

    def begin_anew(self) -> None:
        self._shown, self._known = timedelta(), None

    def read(self) -> timedelta:
        if self._known is not None:
            passed, at = self._known
            self._shown = max(self._shown, passed + self._clock.elapsed() - at)
        return self._shown


class Progress:
    """Bubbles and timers of one page."""

    def __init__(self, clock: Clock) -> None:
        self._reached = -1
        self._whole, self._phase = Ticking(clock), Ticking(clock)
        with ui.row().classes("items-center w-full gap-4"):
            with ui.element("ol").classes("bubbles").props('aria-label="Phases"'):
                self._bubbles = [ui.element("li").classes("bubble") for _ in BUBBLES]
                self._words = []
                for bubble, name in zip(self._bubbles, BUBBLES, strict=True):
                    with bubble:
                        self._words.append(ui.label(name).classes("inline"))
            self._time = ui.label("Ready").classes("number text-subtitle1").props('role=timer aria-label="Time"')

    def show(self, seen: Watched) -> None:
        """What a look brought. A phase that was reached stays reached."""
        place, ended = place_of(seen.run), seen.run.status in RUN_ENDED
        if place > self._reached:
            self._phase.begin_anew()
        self._reached = max(self._reached, place)
        self._whole.know(elapsed(seen), goes_on=not ended and seen.run.started_at is not None)
        began = phase_began(seen.run)
        if began is not None and place == self._reached and not ended:
            self._phase.know(max(seen.now - began, timedelta()), goes_on=True)
        self._draw(seen.run, missed=seen.judgement.is_bad)
        self.tick()

    def _draw(self, run: Run, *, missed: bool) -> None:
        for place, bubble in enumerate(self._bubbles):
            bubble.classes(replace=f"bubble {self._state(place, run, missed=missed)}")
            if place == self._reached:
                given(bubble, "aria-current", "step")
            elif "aria-current" in bubble.props:
                bubble.props(remove="aria-current")
        self._words[-1].text = _ENDS.get(run.status, BUBBLES[-1])

    def _state(self, place: int, run: Run, *, missed: bool) -> str:
        if place == len(BUBBLES) - 1 and run.status in RUN_ENDED:
            return "bad" if missed or run.status is not RunStatus.COMPLETED else "good"
        return "past" if place < self._reached else "now" if place == self._reached else ""

    def tick(self) -> None:
        """Once a second, with or without news."""
        if self._reached < 0:
            return
        whole, phase = self._whole.read(), self._phase.read()
        within = f" · this phase {watch_face(phase)}" if phase and self._reached < len(BUBBLES) - 1 else ""
        self._time.text = f"{watch_face(whole)}{within}"


def watch_face(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}" if hours else f"{minutes}:{seconds % 60:02d}"
