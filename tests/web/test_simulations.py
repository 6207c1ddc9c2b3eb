"""Simulations are bounded wherever they come from, and a long one does not keep a process from ending."""

import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.web.pages.fleet_simulate import run, sample_trace
from drumbeat.web.simulations import LONGEST, MOST_JOBS, Jobs, run_in_daemon_thread, simulate_on_server

ENDING = """
import asyncio, threading
from drumbeat.web.simulations import run_in_daemon_thread

async def leave():
    begun = threading.Event()
    def work():
        begun.set()
        while True:
            pass
    waiting = asyncio.ensure_future(run_in_daemon_thread(work))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    waiting.cancel()

asyncio.run(leave())
"""


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "1 to 20,000 jobs"),
        ([(float(n), 1.0) for n in range(MOST_JOBS + 1)], "got 20,001"),
        ([(0.0, 1.0), (LONGEST + 1, 1.0)], "expected arrivals within"),
        ([(0.0, 100_000.0)], "durations of at most 86,400 s"),
        ([(0.0, 80_000.0)] * 100, "beats"),
    ],
)
async def test_more_than_a_server_simulates_is_refused(jobs: Jobs, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        await simulate_on_server(jobs, "lag_aware", {}, spawn_lag=timedelta(seconds=1))


@pytest.mark.parametrize(
    "settings",
    [{"max_workers": 1001}, {"workers": 2000}, {"schedules": [{"from": "09:00", "to": "10:00", "max_workers": 5000}]}],
)
async def test_more_workers_than_a_server_simulates_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="expected at most 1,000 workers"):
        await simulate_on_server([(0.0, 1.0)], "lag_aware", settings, spawn_lag=timedelta(seconds=1))


async def test_a_trace_from_a_page_has_the_bounds_of_the_api() -> None:
    given = {"spawn_lag": 1.0, "max_workers": 2.0, "min_workers": 1.0, "price_per_hour": 0.0}

    with pytest.raises(InvalidInput, match="expected arrivals within"):
        await run("arrival,duration\n0,1\n1e8,1\n", "lag_aware", given)
    assert (await run(sample_trace(), "lag_aware", given)).figures()["jobs"] > 100


async def test_a_simulation_runs_apart_and_its_error_is_told() -> None:
    assert await run_in_daemon_thread(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await run_in_daemon_thread(lambda: 1 // 0)


def test_a_process_ends_while_a_simulation_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], timeout=60, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
