"""The shell scripts of a worker's job, and the file with its environment.

Slurm gets a short script without secrets, which runs the worker's own script in the shared folder. That script makes sure that
only one job runs the worker (a second job of the same start ends at once), ends the processes that the worker leaves running,
and writes its exit code to a file. A job whose run folder was deleted meanwhile runs nothing.

To drain the worker, and shortly before the job's time limit, SIGUSR1 is sent to the script, which then sends SIGTERM to the
worker. To end a job, Slurm sends SIGTERM to all its processes, the script and the worker. The script does not pass this SIGTERM
on, because a worker exits at once on a second SIGTERM.
A newly forked shell loses signals until it has reset its traps, so the script waits for that (for the file ``claim/begun``).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from string import Template
from typing import Final

from drumbeat.core.errors import SpawnCause, SpawnError

DRAIN_SIGNAL: Final = "USR1"  #: asks the script to let the worker finish its work
TAG: Final = "DRUMBEAT_SLURM_RUN"  #: environment variable by which all processes of a worker are found on their node

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUBMITTED: Final = """#!/bin/sh
if [ ! -d {parent} ]; then
  echo "drumbeat: $(hostname) does not see the folder" {parent} "which must be on a file system that the nodes share" >&2
  exit 1
fi
for try in 1 2 3; do
  [ -r {script} ] && break
  sleep 1
done
[ -r {script} ] || exit 0
exec /bin/sh {script}
"""
_SCRIPT: Final = Template("""# Runs one worker of Drumbeat in a job of Slurm.
run=$run
tag=$tag
cd "$$run" && mkdir claim 2>/dev/null || exit 0
echo "$$SLURM_JOB_ID" > claim/.job && mv claim/.job claim/job

record() {
  rm -f "$$run/env"
  echo "$$1" > "$$run/.exit" && mv "$$run/.exit" "$$run/exit"
  exit "$$1"
}
sweep() {
  rounds=0
  [ -z "$$child" ] || kill -KILL "$$child" 2>/dev/null
  while [ "$$rounds" -lt 200 ]; do
    found=$$(grep -lzxF -e "$$tag" /proc/[0-9]*/environ 2>/dev/null | sed 's|[^0-9]||g')
    [ -n "$$found" ] || return 0
    kill -KILL $$found 2>/dev/null
    rounds=$$((rounds + 1))
    sleep 0.02
  done
}
finish() {
  interrupted=1
  [ -n "$$ready" ] || return 0
  told=1
  kill -TERM "$$child" 2>/dev/null
}
end() {
  interrupted=1
  [ ! -e "$$run/terminate" ] || sweep
}
child= interrupted= ready= told=
trap finish USR1
trap end TERM
if [ -e drain ] || [ -e terminate ]; then record 0; fi
(
  : > "$$run/claim/begun"
  exec >> "$$run/log" 2>&1
  cd $workdir || exit 1
$setup
  . "$$run/env" && rm -f "$$run/env" || exit 1
  exec $command
) &
child=$$!
rounds=0
while [ ! -e claim/begun ] && [ "$$rounds" -lt 500 ]; do
  rounds=$$((rounds + 1))
  sleep 0.01
done
ready=1
if [ -n "$$interrupted" ] || [ -e drain ]; then
  [ -n "$$told" ] || finish
fi
end
code= again=
while :; do
  interrupted=
  wait "$$child"
  ended=$$?
  [ -n "$$again" ] && [ "$$ended" = 127 ] || code=$$ended
  [ -n "$$interrupted" ] || break
  again=1
done
child=
sweep
record "$$code"
""")


def submitted_script(script: Path) -> str:
    """Return the script to submit to Slurm: it runs the file ``script``, which only this user can read. It contains no secrets,
    because other users of the cluster might read it."""
    return _SUBMITTED.format(parent=quote(str(script.parent.parent)), script=quote(str(script)))


def worker_script(run: Path, tag: str, command: Sequence[str], workdir: str, setup: Sequence[str]) -> str:
    """Return the script in the worker's run folder. ``tag`` marks the worker's processes, as the value of ``TAG``."""
    return _SCRIPT.substitute(
        run=quote(str(run)),
        tag=quote(f"{TAG}={tag}"),
        workdir=_in_home(workdir) if workdir else '"${HOME:-/}"',
        setup="\n".join(f"  {line}" for line in setup),
        command=" ".join([_in_home(command[0]), *map(quote, command[1:])]),
    )


def _in_home(path: str) -> str:
    """Quote a path for the shell; a leading ``~`` stands for the home folder on the node."""
    if path != "~" and not path.startswith("~/"):
        return quote(path)
    return '"${HOME:-/}"' + (quote(path[1:]) if path != "~" else "")


def environment_file(environment: Mapping[str, str]) -> bytes:
    """Return shell lines that set the environment. Raises SpawnError for a name or value that no shell can set."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise SpawnError(
                f"expected environment variables without NUL characters, with names of letters, digits and _, got {name!r}",
                cause=SpawnCause.BAD_REQUEST,
            )
    lines = [f"export {name}={quote(value)}\n" for name, value in environment.items()]
    return "".join(lines).encode("utf-8", "surrogateescape")
