"""Computes the maximum number of connections of one worker from the CPU and memory of its host."""

from dataclasses import dataclass
from math import floor

from drumbeat.core.errors import InvalidInput

CONNECTIONS_PER_CORE = 200
MEMORY_PER_CONNECTION_GB = 0.001  #: 25 times what a connection was measured to use; the rest is left to the host
MAX_PER_WORKER = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCapacity:
    """The CPU and memory of a worker's host, or the limits of its container."""

    cpu_cores: float
    memory_gb: float

    def __post_init__(self) -> None:
        if self.cpu_cores < 0 or self.memory_gb < 0:
            raise InvalidInput(f"expected cpu_cores and memory_gb of 0 or more, got {self.cpu_cores} and {self.memory_gb}")


def per_worker_cap(
    host: HostCapacity,
    connections_per_core: float = CONNECTIONS_PER_CORE,
    memory_per_connection_gb: float = MEMORY_PER_CONNECTION_GB,
    max_per_worker: int = MAX_PER_WORKER,
) -> int:
    """Return the maximum number of connections of a worker: the lowest of the limits by CPU, memory and ``max_per_worker``."""
    if memory_per_connection_gb <= 0:
        raise InvalidInput(f"expected memory_per_connection_gb above 0, got {memory_per_connection_gb}")
    by_cpu = floor(host.cpu_cores * connections_per_core)
    by_memory = floor(host.memory_gb / memory_per_connection_gb)
    return max(1, min(by_cpu, by_memory, max_per_worker))
