"""How many connections a host is good for."""

import pytest

from drumbeat.bench.model.capacity import HostCapacity, per_worker_cap
from drumbeat.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("cores", "memory_gb", "expected"),
    [
        pytest.param(2, 4, 400, id="processors are the least"),
        pytest.param(8, 0.25, 250, id="memory is the least"),
        pytest.param(16, 64, 1000, id="the limit is the least"),
        pytest.param(0.5, 1, 100, id="half a processor, as a container may have"),
        pytest.param(1.25, 2, 250, id="parts of processors count"),
        pytest.param(0, 0, 1, id="never less than one"),
    ],
)
def test_the_least_of_processors_memory_and_limit_is_the_cap(cores: float, memory_gb: float, expected: int) -> None:
    assert per_worker_cap(HostCapacity(cpu_cores=cores, memory_gb=memory_gb)) == expected


def test_each_part_of_the_formula_can_be_set() -> None:
    host = HostCapacity(cpu_cores=4, memory_gb=8)

    assert per_worker_cap(host, connections_per_core=10) == 40
    assert per_worker_cap(host, memory_per_connection_gb=0.1) == 80
    assert per_worker_cap(host, max_per_worker=7) == 7


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="0 or more"):
        HostCapacity(cpu_cores=-1, memory_gb=1)
    with pytest.raises(InvalidInput, match="above 0"):
        per_worker_cap(HostCapacity(cpu_cores=1, memory_gb=1), memory_per_connection_gb=0)
