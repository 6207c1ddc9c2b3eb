"""What this machine, or the container we are in, has to give."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from drumbeat.runtime.cgroup import MEMBERSHIP, ROOT, find_hierarchy


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """CPU cores we may use, and bytes of memory."""

    cores: float
    memory: int


def this_host(cgroup_root: Path = ROOT, cgroup_membership: Path = MEMBERSHIP) -> Host:
    """The host's own figures, lowered by every limit of the groups we are in."""
    cores, memory = float(len(os.sched_getaffinity(0))), psutil.virtual_memory().total
    hierarchy = find_hierarchy(memory, cgroup_root, cgroup_membership)
    for level in hierarchy.levels() if hierarchy else ():
        cores = min(cores, level.cores or cores)
        memory = min(memory, level.memory_limit or memory)
    return Host(cores=cores, memory=memory)
