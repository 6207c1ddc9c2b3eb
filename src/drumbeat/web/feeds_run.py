"""Live updates of a run. A viewer who sees a run end gets an update in phase PROCESSING (computing the result) before that."""

from collections.abc import Sequence
from dataclasses import replace

from drumbeat.bench.model import LiveRun, RunSeries
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.run import RUN_ENDED, Phase, RunId, RunStatus
from drumbeat.web.feeds import Feed, Feeds, FeedUpdate
from drumbeat.web.snapshot import log_document, run_document

RUN_UPDATE = "RUN_UPDATE"


class RunSource:
    """Reads the live updates of one run from the store."""

    def __init__(self, plane: ControlPlane, run_id: RunId) -> None:
        self._watch = plane.bench().watch(run_id)
        self._before: LiveRun | None = None  #: the last snapshot before the run ended

    async def read(self) -> Sequence[FeedUpdate[LiveRun]]:
        """Return the run's current state. If the run has ended since the last read, first an update in phase PROCESSING."""
        watched = await self._watch.poll()
        if watched.run.status not in RUN_ENDED:
            self._before = watched
            return [_update(watched)]
        earlier, self._before = self._before, None
        if earlier is None:
            return [_update(watched)]
        return [_update(_processing_snapshot(earlier, watched)), _update(replace(watched, logs=()))]

    async def catch_up(self) -> bool:
        return await self._watch.catch_up_a_little()

    def series(self) -> RunSeries:
        """Return the run's chart data, as far as it has been read."""
        return self._watch.series()


def _update(watched: LiveRun) -> FeedUpdate[LiveRun]:
    return FeedUpdate(
        event=RUN_UPDATE,
        data=run_document(watched),
        seen=watched,
        logs=[log_document(line) for line in watched.logs],
        is_last=watched.run.status in RUN_ENDED,
        must_be_seen=watched.run.phase == Phase.PROCESSING and watched.run.status not in RUN_ENDED,
    )


def _processing_snapshot(earlier: LiveRun, last: LiveRun) -> LiveRun:
    """Return a made-up snapshot in phase PROCESSING, which may have been too short for a read to see. It has the figures of
    ``earlier``, and the run, workers, decisions and logs of ``last``."""
    ending = RunStatus.CANCELLING if last.run.status is RunStatus.CANCELLED else RunStatus.STOPPING
    run = replace(last.run, status=ending, phase=Phase.PROCESSING, ended_at=None)
    return replace(earlier, run=run, now=last.now, workers=last.workers, decisions=last.decisions, logs=last.logs)


def run_feed(feeds: Feeds, plane: ControlPlane, run_id: RunId) -> tuple[Feed[LiveRun], RunSource]:
    """Return a run's feed (live updates) and its source, which reads the run. Raises MissingExtra without the bench extra."""
    feed = feeds.get(f"run {run_id}", lambda: RunSource(plane, run_id))
    assert isinstance(feed.source, RunSource)
    return feed, feed.source
