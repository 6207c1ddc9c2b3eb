"""Whether a run under way has lost its orchestrator, decided from its row, its lease and the time."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.bench.results.judgement import TAKEN_OVER_WITHIN, under_way
from drumbeat.core.run import Run, RunId, RunStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
JUST_NOW, LONG_AGO = NOW - TAKEN_OVER_WITHIN / 2, NOW - TAKEN_OVER_WITHIN


@pytest.mark.parametrize(
    ("status", "leader", "started", "updated", "orphan"),
    [
        (RunStatus.STARTING, None, JUST_NOW, JUST_NOW, False),
        (RunStatus.STARTING, None, JUST_NOW, None, False),
        (RunStatus.STARTING, None, LONG_AGO, LONG_AGO, True),
        (RunStatus.RUNNING, None, LONG_AGO, LONG_AGO, True),
        (RunStatus.CANCELLING, None, LONG_AGO, JUST_NOW, False),
        (RunStatus.RUNNING, "another", LONG_AGO, LONG_AGO, False),
        (RunStatus.PREPARED, None, None, LONG_AGO, False),
    ],
)
def test_a_started_run_without_leader_is_an_orphan_once_nothing_has_changed_it_for_some_seconds(
    status: RunStatus, leader: str | None, started: datetime | None, updated: datetime | None, orphan: bool
) -> None:
    run = Run(run_id=RunId("r"), name="r", config={}, status=status, started_at=started, updated_at=updated)

    found = under_way(run, leader, NOW)

    assert found.is_orphan is orphan
    assert ("no orchestrator" in found.reason) is orphan


def test_an_orchestrator_has_longer_than_the_time_between_two_looks_for_orphans() -> None:
    assert timedelta(seconds=2) < TAKEN_OVER_WITHIN <= timedelta(seconds=10)
