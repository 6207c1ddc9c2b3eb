"""The file by which a probe sees whether a controller hangs."""

from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.liveness import LivenessFile
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId

P = PoolId("a/b")
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("every", "within"), [(MINUTE / 60, 15 * MINUTE), (10 * MINUTE, 100 * MINUTE)])
def test_a_controller_has_time_for_many_beats(tmp_path: Path, every: timedelta, within: timedelta) -> None:
    clock = ManualClock()
    alive = LivenessFile(tmp_path / "state", P, every, clock)

    alive.renew()

    [file] = (tmp_path / "state").iterdir()
    assert (file.name, file.stat().st_mtime) == ("controller-a%2Fb", (clock.now() + within).timestamp())
    alive.remove()
    alive.remove()
    assert not file.exists()


def test_a_folder_that_cannot_be_written_does_not_stop_the_controller(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")

    alive = LivenessFile(tmp_path / "state", P, MINUTE, ManualClock())

    alive.renew()
    alive.remove()

    assert (tmp_path / "state").read_text() == "in the way"
