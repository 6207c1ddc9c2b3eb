"""The program that runs on an SSH host and starts, lists and ends workers there. Standard library only, Python 3.8 or newer.

It is sent through the SSH session and never written to a file: the command line has only ``BOOT``, which reads the program from
stdin. Then a line of JSON tells the program its role. An agent ("serve") answers each request, a line of JSON, with a line of
JSON, until its stdin is closed. A supervisor ("supervise") starts one worker, waits for its end and records the exit code; it
outlives the agent.

Every store has a folder of its own (0700). A worker's run directory, ``workers/KEY``, holds:

``record``: pool, worker, run id and time, written before anything is started
``process``: pid, start time and boot of worker and supervisor, written before the worker's command is executed
``exit``: the exit code, written by the supervisor
``log``: what the worker writes (0600)

If one of these files is damaged, only this worker is concerned (see agent_records).

A worker is the process with this pid *and* start time, so a later process with the same pid is never mistaken for it. A lock
per worker (flock) is held by the agent that starts or ends it, and by the supervisor until the process is recorded. So a start
that was interrupted at any moment leaves either a recorded worker, or a directory without ``process``, whose command was never
executed. The environment is sent through pipes: it is on no command line and in no file.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from drumbeat.spawn.ssh.agent_host import (
    POLL_SECONDS,
    TAG,
    Lock,
    Output,
    Trouble,
    find_python,
    make_private,
    names_in,
    open_private,
    send,
    version,
    write_json,
)
from drumbeat.spawn.ssh.agent_records import (
    Damaged,
    delete,
    family_of,
    occupies_slot,
    process_of,
    read_if_whole,
    rescued,
    state_of,
    sweep_drafts,
    sweep_locks,
)
from drumbeat.spawn.ssh.agent_supervisor import converse, supervise

if TYPE_CHECKING:
    from drumbeat.spawn.ssh.agent_host import Answer

    Lane = queue.SimpleQueue["Answer | None"]

BOOT = """\
import json, sys, types
requests = sys.stdin.buffer
program = requests.read(int(requests.readline()))
for name, source in json.loads(program).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.PROGRAM = program
module.main(requests)
"""  #: starts the agent on a host: reads the sources of its modules from stdin, the last of which is this one
PROGRAM = b""  #: the sources of this program, set by BOOT; needed to start supervisors
_LOCK_SECONDS = 10.0  #: how long a start or an end waits for another one of the same worker
_GONE_SECONDS = 10.0  #: how long processes may take to end after SIGKILL
_KEPT_SECONDS = 86400.0  #: after this time the record of an ended worker is deleted
_LANES = 16  #: threads; requests for one worker always go to the same thread, so that they are served in order
_TAIL_BYTES = 4_000_000  #: the most that is read from the end of a log


def main(requests: BinaryIO) -> None:
    """Read from stdin whether this process is an agent or a supervisor, and run it."""
    task = json.loads(requests.readline())
    if task["be"] == "supervise":
        try:
            supervise(task)
        except OSError as exc:
            sys.stdout.write(json.dumps({"error": f"the supervisor failed: {exc}"}))
    else:
        serve(Agent(task), requests)


def serve(agent: Agent, requests: BinaryIO) -> None:
    """Answer requests until stdin is closed, and then finish the requests that were already read."""
    output = Output()
    try:
        output.write(agent.hello())
    except (Trouble, OSError) as exc:
        output.write(failure(exc))
        return
    lanes: list[Lane] = [queue.SimpleQueue() for _ in range(_LANES)]
    threads = [threading.Thread(target=serve_lane, args=(agent, lane, output)) for lane in lanes]
    for thread in threads:
        thread.start()
    for line in iter(requests.readline, b""):
        request = json.loads(line)
        if "key" in request:
            lanes[sum(request["key"].encode()) % _LANES].put(request)
        else:
            threading.Thread(target=answer, args=(agent, request, output), daemon=True).start()
    for lane in lanes:
        lane.put(None)


def serve_lane(agent: Agent, lane: Lane, output: Output) -> None:
    for request in iter(lane.get, None):
        answer(agent, request, output)


def answer(agent: Agent, request: Answer, output: Output) -> None:
    try:
        result = getattr(agent, "do_" + request["do"])(request)
    except Exception as exc:
        result = failure(exc)
    output.write(dict(result, id=request["id"]))


def failure(exc: Exception) -> Answer:
    return {"trouble": exc.kind if isinstance(exc, Trouble) else "failed", "message": str(exc) or type(exc).__name__}


def not_started(exc: Exception) -> Trouble:
    """Return the error of a start that certainly started nothing; its kind says so."""
    kind = exc.kind if isinstance(exc, Trouble) and exc.kind in ("full", "start") else "unstarted"
    return Trouble(kind, str(exc) or type(exc).__name__)


class Agent:
    """Starts, lists and ends the workers of one store on this host."""

    def __init__(self, task: Answer) -> None:
        self._root = os.path.abspath(os.path.expanduser(task["folder"]))
        self._scope = task["scope"]
        self._folder = os.path.join(self._root, self._scope)
        self._slots_lock = os.path.join(self._root, "slots.lock")

    # Requests

    def hello(self) -> Answer:
        """Create the folders, and return this host's Python version and time. Raises Trouble."""
        if not os.path.exists("/proc/self/stat"):
            raise Trouble("host", "expected Linux, but there is no /proc")
        try:
            for folder in (self._root, self._folder, self._path("workers"), self._path("locks")):
                make_private(folder)
            with open_private(self._slots_lock):
                pass
            if os.stat(self._folder).st_uid != os.geteuid():
                raise Trouble("folder", f"the folder {self._folder} belongs to another user")
            os.chmod(self._folder, 0o700)
        except OSError as exc:
            at = "" if exc.filename in (None, self._root) else f" ({exc.filename})"
            raise Trouble("folder", f"cannot write to the folder {self._root}: {exc.strerror}{at}") from exc
        sweep_drafts(self._path("workers"), _KEPT_SECONDS)
        sweep_locks(self._path("locks"), self._path("workers"), _KEPT_SECONDS)
        return {"hello": version(), "time": time.time()}

    def do_list(self, request: Answer) -> Answer:
        """Return all workers of this store on this host, and how many workers of any store occupy its slots.

        ``damaged`` says of each damaged run directory what is wrong, and what became of its worker."""
        found, damaged = [], []
        for key in names_in(self._path("workers")):
            try:
                state = state_of(self._run(key))
            except Damaged:
                state, problem = self._state_in_damaged(key)
                damaged.append(problem)
            if state is not None and not self._swept(key, state):
                found.append(state)
        return {"instances": found, "taken": self._taken(), "damaged": [*filter(None, damaged)], "time": time.time()}

    def do_spawn(self, request: Answer) -> Answer:
        """Start a worker, or return it if it runs already. Raises Trouble."""
        key = request["key"]
        with self._locked(key) as lock:
            state = self._state(key)
            if state is not None and state["state"] != "exited":
                return {"instance": state}
            try:
                if os.path.lexists(self._run(key)):
                    self._end(key, "")  # processes that an ended run has left behind
                self._reserve(request)
            except Exception as exc:
                self._remove_lock(key)
                raise not_started(exc) from exc
            try:
                self._start(request, lock)
            except Exception as exc:
                self._end(key, request["run"])
                self._remove(key)
                raise not_started(exc) from exc
            return {"instance": self._state(key)}

    def do_drain(self, request: Answer) -> Answer:
        """Send SIGTERM to the worker's process. Returns whether the worker is known here."""
        key = request["key"]
        with self._locked(key):
            was_started = os.path.lexists(os.path.join(self._run(key), "process"))
            process = process_of(self._run(key))
            if process is not None:
                send(signal.SIGTERM, process["pid"], process["start"])
            self._remove_lock(key)
        return {"found": was_started or process is not None}

    def do_terminate(self, request: Answer) -> Answer:
        """End the worker and its children, and delete its run directory and lock.

        If the request names a ``run`` that is not the worker's current run, does nothing. Returns whether the worker, with this
        run, was known here. Raises Trouble.
        """
        key = request["key"]
        with self._locked(key):
            run = self._run(key)
            is_known = os.path.lexists(run)
            if request.get("run"):
                record = read_if_whole(run, "record") or rescued(run)
                if record is None or record["run"] != request["run"]:
                    return {"found": False}
            self._end(key, request.get("run") or "")
            self._remove(key)
            self._remove_lock(key)
        return {"found": is_known}

    def do_logs(self, request: Answer) -> Answer:
        """Return the last lines of the worker's log. Raises Trouble."""
        try:
            with open(os.path.join(self._run(request["key"]), "log"), "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
                lines = file.read().split(b"\n")
        except FileNotFoundError as exc:
            raise Trouble("missing", "no log") from exc
        count = request["lines"] + (lines[-1] == b"")
        return {"text": b"\n".join(lines[-count:]).decode(errors="replace")}

    def do_check(self, request: Answer) -> Answer:
        """Return the version of the worker's Python and of Drumbeat, or why it cannot import Drumbeat."""
        return find_python(request["python"], request["environment"])

    # Files

    def _path(self, *names: str) -> str:
        return os.path.join(self._folder, *names)

    def _run(self, key: str) -> str:
        if os.sep in key or key.startswith("."):
            raise Trouble("failed", f"expected a key without slashes, got {key!r}")
        return self._path("workers", key)

    def _remove(self, key: str) -> None:
        """Delete a worker's run directory. It is renamed first, so that no other process sees it half deleted."""
        gone = self._path("workers", f".{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            os.rename(self._run(key), gone)
        delete(gone)

    def _remove_lock(self, key: str) -> None:
        """Delete a worker's lock file if the worker has no run directory. A process that waits for the lock opens a new file.

        Call it with the lock held, but not after an attempt to start: a supervisor might have inherited the lock.
        """
        if not os.path.lexists(self._run(key)):
            with suppress(FileNotFoundError):
                os.unlink(self._path("locks", key))

    def _locked(self, key: str) -> Lock:
        return Lock(self._path("locks", key), _LOCK_SECONDS)

    def _state(self, key: str) -> Answer | None:
        """Return a worker's state, pid and exit code; None if its command was never executed. The caller holds its lock."""
        try:
            return state_of(self._run(key), lock_is_ours=True)
        except Damaged:
            return rescued(self._run(key))

    def _state_in_damaged(self, key: str) -> tuple[Answer | None, str | None]:
        """Return the state of a worker with a damaged run directory, and what is wrong there; None for what is not known.

        If no process of the worker runs and its record is lost, its run directory is deleted. The lock is held meanwhile: only
        so it is certain that the files are not just being replaced by a new start.
        """
        run = self._run(key)
        try:
            with Lock(self._path("locks", key), 0):
                try:
                    return state_of(run, lock_is_ours=True), None
                except Damaged as exc:
                    return self._rescued_or_deleted(key, str(exc))
        except (Trouble, OSError):  # the worker is being started or ended, or its lock cannot be opened
            return self._state_of_changing(run), None

    def _state_of_changing(self, run: str) -> Answer | None:
        """Return the state of a worker whose run directory another process may just have replaced: it is read once more."""
        try:
            return state_of(run)
        except Damaged:
            return rescued(run)

    def _rescued_or_deleted(self, key: str, problem: str) -> tuple[Answer | None, str]:
        run = self._run(key)
        state = rescued(run)
        if state is not None:
            found = f"runs as process {state['pid']}" if state["state"] == "running" else "has ended"
            return state, f"{problem}; worker {state['worker']} of pool {state['pool']} {found}"
        if family := family_of(run):
            pids = " ".join(map(str, sorted(family)))
            return None, f"{problem}; its worker is unknown, but these of its processes run: {pids}; end them with kill"
        try:
            self._remove(key)
            self._remove_lock(key)
        except OSError as exc:
            return None, f"{problem}; no process of its worker runs; delete {run}, which Drumbeat cannot do: {exc.strerror}"
        return None, f"{problem}; no process of its worker runs, so {run} was deleted"

    def _swept(self, key: str, state: Answer) -> bool:
        """Delete the run directory of a worker that ended more than a day ago. Returns whether it ended that long ago."""
        last = state.get("ended") or state["time"]
        if state["state"] != "exited" or time.time() - last < _KEPT_SECONDS:
            return False
        with suppress(Trouble):
            self.do_terminate({"key": key, "run": state["run"]})
        return True

    def _taken(self) -> int:
        """Count the pending and running workers of all stores on this host."""
        count = 0
        for scope in names_in(self._root):
            workers = os.path.join(self._root, scope, "workers")
            with suppress(NotADirectoryError, PermissionError):
                count += sum(occupies_slot(os.path.join(workers, key)) for key in names_in(workers))
        return count

    # Starting

    def _reserve(self, request: Answer) -> None:
        """Create the run directory, if a slot is free. Raises Trouble."""
        key = request["key"]
        with Lock(self._slots_lock, _LOCK_SECONDS):
            self._remove(key)
            taken = self._taken()
            if taken >= request["slots"]:
                raise Trouble("full", f"{taken} of {request['slots']} slots are taken")
            draft = self._path("workers", "." + request["run"])
            os.mkdir(draft, 0o700)
            record = {name: request[name] for name in ("pool", "worker", "run")}
            write_json(os.path.join(draft, "record"), dict(record, time=time.time()))
            os.rename(draft, self._run(key))

    def _start(self, request: Answer, lock: int) -> None:
        """Start a supervisor and wait until it has executed the worker's command. Raises Trouble."""
        key, run = request["key"], request["run"]
        tag = {TAG: f"{self._run(key)}/{run}"}
        task = {"be": "supervise", "folder": self._run(key), "lock": lock, "command": request["command"]}
        task["environment"] = dict(request["environment"], **tag)
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,
            cwd="/",
        )
        threading.Thread(target=supervisor.wait, daemon=True).start()  # so that it is no zombie when it has ended
        report = converse(supervisor, f"{len(PROGRAM)}\n".encode() + PROGRAM + json.dumps(task).encode() + b"\n")
        if "error" in report:
            raise Trouble("start", report["error"])
        if not report and not os.path.exists(os.path.join(self._run(key), "process")):
            raise Trouble("start", "the supervisor ended before it had started the worker")

    # Ending

    def _end(self, key: str, run: str) -> None:
        """Kill the worker, its descendants, its session, and all processes with its tag, until none is left. Raises Trouble.

        An empty ``run`` stands for all runs of the worker."""
        deadline = time.monotonic() + _GONE_SECONDS
        while True:
            family = family_of(self._run(key), run)
            if not family:
                break
            if time.monotonic() > deadline:
                raise Trouble("failed", f"processes still run {_GONE_SECONDS:.0f} s after SIGKILL: {sorted(family)}")
            for pid, start in family.items():
                send(signal.SIGKILL, pid, start)
            time.sleep(POLL_SECONDS)
