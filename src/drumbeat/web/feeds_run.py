"""What is read of a run for whoever watches it: looks, and the ending that nobody may miss."""

from collections.abc import Sequence
from dataclasses import replace

from drumbeat.bench.model import RunSeries, Watched
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.run import RUN_ENDED, Phase, RunId, RunStatus
from drumbeat.web.feeds import Feed, Feeds, FeedUpdate
from drumbeat.web.snapshot import log_document, run_document

RUN_UPDATE = "RUN_UPDATE"


class RunSource:
    """One run, looked at."""

    def __init__(self, plane: ControlPlane, run_id: RunId) -> None:
        self._watch = plane.bench().watch(run_id)
        self._before: Watched | None = None  #: the last look at it under way

    async def look(self) -> Sequence[FeedUpdate[Watched]]:
        """A look; at the end, before it, one at PROCESSING where none was had."""
        seen = await self._watch.look()
        if seen.run.status not in RUN_ENDED:
            self._before = seen
            return [_told(seen)]
        earlier, self._before = self._before, None
        if earlier is None:
            return [_told(seen)]
        return [_told(_processing(earlier, seen)), _told(replace(seen, logs=()))]

    async def catch_up(self) -> bool:
        return await self._watch.catch_up_a_little()

    def course(self) -> RunSeries:
        """Its lines to draw, as far as they have been read."""
        return self._watch.course()


def _told(seen: Watched) -> FeedUpdate[Watched]:
    return FeedUpdate(
        event=RUN_UPDATE,
        data=run_document(seen),
        seen=seen,
        logs=[log_document(line) for line in seen.logs],
        is_last=seen.run.status in RUN_ENDED,
        must_be_seen=seen.run.phase == Phase.PROCESSING and seen.run.status not in RUN_ENDED,
    )


def _processing(earlier: Watched, last: Watched) -> Watched:
    """The run as it was just before its end."""
    ending = RunStatus.CANCELLING if last.run.status is RunStatus.CANCELLED else RunStatus.STOPPING
    run = replace(last.run, status=ending, phase=Phase.PROCESSING, ended_at=None)
    return replace(earlier, run=run, now=last.now, workers=last.workers, decisions=last.decisions, logs=last.logs)


def run_feed(feeds: Feeds, plane: ControlPlane, run_id: RunId) -> tuple[Feed[Watched], RunSource]:
    """A run's feed and its source. Raises MissingExtra."""
    feed = feeds.get(f"run {run_id}", lambda: RunSource(plane, run_id))
    assert isinstance(feed.source, RunSource)
    return feed, feed.source
