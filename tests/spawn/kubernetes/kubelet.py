"""The node of the simulated cluster: runs the containers of pods as processes of this machine, as a kubelet would."""

import base64
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spawn.marked import end_marked

MARK = "KUBERNETES_SIMULATOR_CONTAINER"  #: an environment variable by which all processes of a container are found


class PodRun:
    """One pod on the node. ``changed`` is called with each new state of its container, and at last with ``ended=True``."""

    def __init__(self, pod: Mapping[str, Any], log: Path, second: float, changed: Callable[..., None]) -> None:
        self._uid = pod["metadata"]["uid"]
        self._spec = pod["spec"]
        self._log = log
        self._second = second
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._guard = threading.Lock()

    def start(self, secret: Callable[[str], Mapping[str, str] | None], broken: Mapping[str, str]) -> None:
        threading.Thread(target=self._run, args=(secret, broken), daemon=True).start()

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after so many of the cluster's seconds."""
        with self._guard:
            self._stopped.set()
            process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        timer = threading.Timer(grace * self._second, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        with self._guard:
            if self._process is not None and self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGKILL)

    def _run(self, secret: Callable[[str], Mapping[str, str] | None], broken: Mapping[str, str]) -> None:
        [container] = self._spec["containers"]
        environment = self._ready(container, secret, broken)
        if environment is None:
            self._changed(None, ended=True)
            return
        command = [expanded(word, environment) for word in container["command"]]
        whole = {"PATH": os.environ["PATH"], "HOME": str(self._log.parent), **environment, MARK: self._uid}
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with self._guard:
                if not self._stopped.is_set():
                    self._process = subprocess.Popen(
                        command,
                        env=whole,
                        stdin=subprocess.DEVNULL,
                        stdout=descriptor,
                        stderr=descriptor,
                        start_new_session=True,
                    )
        except OSError as exc:
            message = f'exec: "{command[0]}": {exc.strerror}'
            self._changed({"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}, ended=True)
            return
        finally:
            os.close(descriptor)
        if self._process is None:
            self._changed(None, ended=True)
            return
        began = moment()
        self._changed({"running": {"startedAt": began}})
        code = self._process.wait()
        end_marked(MARK, self._uid)
        shown = code if code >= 0 else 128 - code
        reason = "Completed" if code == 0 else "Error"
        ended = {"exitCode": shown, "reason": reason, "startedAt": began, "finishedAt": moment()}
        self._changed({"terminated": ended}, ended=True)

    def _ready(
        self, container: Mapping[str, Any], secret: Callable[[str], Mapping[str, str] | None], broken: Mapping[str, str]
    ) -> Mapping[str, str] | None:
        """The environment, once image and Secret are there; None if the pod was stopped before."""
        shown = None
        while not self._stopped.is_set():
            found = secret(container["envFrom"][0]["secretRef"]["name"])
            waiting = {"reason": "CreateContainerConfigError", "message": "secret not found"} if found is None else None
            if container["image"] in broken:
                reason, _, message = broken[container["image"]].partition(": ")
                waiting = {"reason": reason, "message": message}
            if found is not None and waiting is None:
                return {name: base64.b64decode(value).decode() for name, value in found.items()}
            if waiting != shown:
                self._changed({"waiting": waiting})
                shown = waiting
            self._stopped.wait(self._second / 5)
        return None


def expanded(word: str, environment: Mapping[str, str]) -> str:
    """A word of a command as Kubernetes changes it: $(NAME) becomes the variable's value, and $$ becomes $."""
    result, at = [], 0
    while at < len(word):
        two = word[at : at + 2]
        end = word.find(")", at)
        if two == "$$":
            result.append("$")
            at += 2
        elif two == "$(" and end >= 0:
            name = word[at + 2 : end]
            result.append(environment.get(name, f"$({name})"))
            at = end + 1
        else:
            result.append(word[at])
            at += 1
    return "".join(result)


def moment() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
