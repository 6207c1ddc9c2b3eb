"""A process on a leash ends when the other end of it is gone."""

import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.spawn.leash import LEASH_FD, Leash, hold_leash
from spawn.programs import PATIENCE_SECONDS, eventually, is_alive, process_of, python

HOLD = "import sys, time\nfrom datetime import timedelta\nfrom drumbeat.spawn.leash import hold_leash\n"
SAY = "print('held', flush=True)\n"


@pytest.fixture
def leash() -> Iterator[Leash]:
    leash = Leash()
    yield leash
    leash.close()


def start(program: str, leash: Leash) -> "subprocess.Popen[str]":
    environment = {**os.environ, LEASH_FD: str(leash.inherited)}
    process = subprocess.Popen(
        python(program), env=environment, pass_fds=(leash.inherited,), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


class TestHoldLeash:
    def test_it_asks_itself_to_leave(self) -> None:
        leash = Leash()
        program = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        with start(HOLD + program + "hold_leash()\n" + SAY + "signal.alarm(120)\nsignal.pause()", leash) as process:
            assert process.poll() is None

            leash.close()

            assert process.wait(PATIENCE_SECONDS) == 7

    def test_one_that_does_not_leave_is_killed_with_its_children(self) -> None:
        leash = Leash()
        program = (
            "import signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "hold_leash(timedelta(milliseconds=50))\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])\n"
        )
        with start(HOLD + program + SAY + "print(child.pid, flush=True)\ntime.sleep(120)", leash) as process:
            assert process.stdout is not None
            child = process_of(process.stdout.readline())

            leash.close()

            assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
            eventually(lambda: not is_alive(child), "its child, who ignores SIGTERM too, to be gone")

    def test_its_own_children_do_not_see_the_leash(self, leash: Leash) -> None:
        hold = "import os\nfd = int(os.environ['DRUMBEAT_LEASH_FD'])\nhold_leash()\n"
        look = "print(os.environ.get('DRUMBEAT_LEASH_FD'), hold_leash(), os.get_inheritable(fd))"
        with start(HOLD + hold + SAY + look, leash) as process:
            assert process.communicate()[0] == "None False False\n"

    def test_without_a_leash_nothing_is_held(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(LEASH_FD, raising=False)

        assert hold_leash() is False

    @pytest.mark.parametrize("value", ["", "seven", "-1", "54321", "file"])
    def test_a_number_that_is_no_pipe_is_refused(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        with open(os.devnull) as file:
            monkeypatch.setenv(LEASH_FD, str(file.fileno()) if value == "file" else value)

            with pytest.raises(InvalidSettings, match=f"expected {LEASH_FD} to be the number of a pipe"):
                hold_leash(timedelta(seconds=1))
