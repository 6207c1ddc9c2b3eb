"""A workflow of Celery, for workflow_overhead.py: python celery_chord.py work|flow|plain URL BRANCHES LEAVES

Needs Celery, but nothing of Drumbeat. ``work`` runs a worker. ``flow`` pushes a chord of chords, ``plain`` as many plain tasks;
both wait until all tasks have run, and print the seconds.
"""

import sys
import time
from importlib import import_module
from typing import Any

_POLL = 0.01


def app_at(url: str) -> Any:
    app: Any = import_module("celery").Celery("flow", broker=url, backend=url)
    app.conf.update(
        worker_prefetch_multiplier=64,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        result_expires=3600,
    )
    app.task(name="noop")(noop)
    return app


def noop(*_: object) -> None: ...


def run_worker(url: str) -> None:
    options = {"pool": "solo", "loglevel": "ERROR", "quiet": True}
    worker = app_at(url).Worker(**options, without_gossip=True, without_mingle=True, without_heartbeat=True)
    worker.start()


def run_flow(url: str, branches: int, leaves: int) -> float:
    """Run a workflow: a first task, branches after it, leaves after each branch, a callback of each branch, a last task."""
    canvas, task = import_module("celery"), app_at(url).tasks["noop"]
    parts = [canvas.chain(task.si(), canvas.chord([task.si() for _ in range(leaves)], task.si())) for _ in range(branches)]
    began = time.perf_counter()
    canvas.chain(task.si(), canvas.chord(parts, task.si())).apply_async().get(timeout=3600)
    return time.perf_counter() - began


def run_plain(url: str, count: int) -> float:
    task = app_at(url).tasks["noop"]
    began = time.perf_counter()
    results = [task.delay() for _ in range(count)]
    for result in results:
        while not result.ready():
            time.sleep(_POLL)
    return time.perf_counter() - began


def main(what: str, url: str, branches: int, leaves: int) -> None:
    if what == "work":
        run_worker(url)
    else:
        seconds = run_flow(url, branches, leaves) if what == "flow" else run_plain(url, 2 + branches * (leaves + 2))
        print(seconds, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
