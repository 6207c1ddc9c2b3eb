"""CPU cores and memory of this machine or container."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from drumbeat.runtime.cgroup import MEMBERSHIP, ROOT, find_hierarchy


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CPU cores and the memory (bytes) that this process is allowed to use."""

    cores: float
    memory: int


def this_host(cgroup_root: Path = ROOT, cgroup_membership: Path = MEMBERSHIP) -> Host:
    """Return the host's cores and memory, or the limits of this process's control groups if these limits are lower."""
    cores, memory = float(len(os.sched_getaffinity(0))), psutil.virtual_memory().total
    hierarchy = find_hierarchy(memory, cgroup_root, cgroup_membership)
    for level in hierarchy.levels() if hierarchy else ():
        cores = min(cores, level.cores or cores)
        memory = min(memory, level.memory_limit or memory)
    return Host(cores=cores, memory=memory)
