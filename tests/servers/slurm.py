"""A real Slurm cluster of one node for tests, from Debian's packages without installing them.

with SlurmServer() as slurm:
    slurm.bin  # a folder with sbatch, squeue, scancel, sinfo and scontrol for this cluster
"""

import getpass
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from servers import debian
from servers.debian import Unavailable
from servers.life import Server
from servers.places import free_port
from servers.reaper import reaper
from servers.unprivileged import RunAs, start

__all__ = ["SlurmServer", "Unavailable", "installation"]

_CLIENTS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
_DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15", "libjson-c5")
_CONFIG = """
ClusterName=drumbeat
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
EnforcePartLimits=ANY
MinJobAge={min_job_age}
MessageTimeout=5
SchedulerParameters={scheduling}
NodeName=node1 NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
NodeName=absent NodeAddr=127.0.0.1 Port=1 CPUs=16 State=DOWN
PartitionName=main Nodes=node1 Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8 State=UP
PartitionName=short Nodes=node1 MaxTime=1 OverSubscribe=FORCE:8 State=UP
PartitionName=down Nodes=absent State=UP
"""


def _lay_out(tree: Path, flat: Path) -> None:
    for name in _CLIENTS:
        for found in tree.glob(f"usr/bin/{name}"):
            shutil.copy(found, flat / name)
    for name in (*_DAEMONS, "munged", "mungekey"):
        for found in tree.glob(f"usr/sbin/{name}*"):
            shutil.copy(found, flat / found.name.removesuffix("-wlm"))
    for plugins in tree.glob("usr/lib/*/slurm-wlm"):
        shutil.copytree(plugins, flat / "plugins", dirs_exist_ok=True, ignore=shutil.ignore_patterns("mpi_pmix*"))
        shutil.copy(plugins / "libslurmfull.so", flat / "libslurmfull.so")


_PROGRAM = debian.Program(name="slurmd", folder="slurm", packages=_PACKAGES, depending="slurmd", lay_out=_lay_out)


@cache
def installation() -> Path:
    """A folder with the programs of Slurm and MUNGE, the plugins, and the libraries that they need."""
    return _PROGRAM.unpacked()


class SlurmServer(Server):
    """A cluster with one node, which has a partition that works, one with a time limit of a minute, and one that is down.

    ``stop``, ``kill`` and ``pause`` mean the controller of the cluster (slurmctld); jobs and their node go on meanwhile.
    """

    PRODUCT, PREFIX = "Slurm", "drumbeat-slurm-"

    def __init__(self, parent: Path | None = None, *, min_job_age: int = 300, scheduling: str = "batch_sched_delay=0") -> None:
        super().__init__(parent)
        self._min_job_age, self._scheduling = min_job_age, scheduling
        self._node_port = 0
        self._others: list[subprocess.Popen[bytes]] = []

    @property
    def bin(self) -> Path:
        """A folder with the commands for users, which find this cluster without any variable."""
        return self.folder / "bin"

    def run(self, program: str, *arguments: str) -> str:
        """Run a command for users to its end, and return what it wrote."""
        done = subprocess.run([self.bin / program, *arguments], check=False, capture_output=True, text=True)
        assert done.returncode == 0, (program, arguments, done.stderr)
        return done.stdout

    def close(self) -> None:
        for process in reversed(self._others):
            process.kill()
            process.wait()
            reaper().forget(process.pid)
        self._others = []
        self._kill_jobs()
        super().close()

    def _kill_jobs(self) -> None:
        """Kill what jobs have left: their processes outlive the daemons, and have this cluster in their environment."""
        if self._folder is None:
            return
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self._config) and process.pid != os.getpid():
                    process.kill()

    # Life

    def _furnish(self) -> None:
        installed = installation()
        for name in ("state", "spool", "bin"):
            (self.folder / name).mkdir(mode=0o755)
        for name in _CLIENTS:
            script = f'#!/bin/sh\nLD_LIBRARY_PATH={installed} SLURM_CONF={self._config} exec {installed / name} "$@"\n'
            (self.bin / name).write_text(script)
            (self.bin / name).chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._node_port = free_port()
        self._start_other("munged", *self._munge_arguments())

    def _munge_arguments(self) -> list[str]:
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return ["--foreground", "--force", *(f"--{name}={self.folder}/munge.{end}" for name, end in files.items())]

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        text = _CONFIG.format(
            port=port,
            node_port=self._node_port,
            user=getpass.getuser(),
            folder=self.folder,
            plugins=installation() / "plugins",
            min_job_age=self._min_job_age,
            scheduling=self._scheduling,
        )
        self._config.write_text(text)
        self._config.chmod(0o644)
        return self._start("slurmctld", "-D")

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        if subprocess.run([self.bin / "scontrol", "ping"], check=False, capture_output=True).returncode != 0:
            return False
        if len(self._others) == 1:
            self._start_other("slurmd", "-D", "-N", "node1", "-d", str(installation() / "slurmstepd"))
        states = self.run("sinfo", "--noheader", "--partition=main", "--format=%T").split()
        return states in (["idle"], ["mixed"], ["allocated"])

    def _start_other(self, program: str, *arguments: str) -> None:
        self._others.append(process := self._start(program, *arguments))
        reaper().watch(process.pid)

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        installed = installation()
        variables = {"LD_LIBRARY_PATH": str(installed), "SLURM_CONF": str(self._config)}
        return start([str(installed / program), *arguments], RunAs.ITSELF, self.log, variables)

    @property
    def _config(self) -> Path:
        return self.folder / "slurm.conf"

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        super()._end(number)
