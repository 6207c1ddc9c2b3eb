"""A container's own limits are what its use is compared with, in both versions of control groups."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from drumbeat.runtime.cgroup import CgroupProbe, CgroupV1, CgroupV2, find_hierarchy
from runtime.given import seconds

HOST = 64 * 2**30
GIB = 2**30
V1_UNLIMITED = "9223372036854771712"


def tree(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def probe(tmp_path: Path, membership: str) -> CgroupProbe:
    (tmp_path / "self").write_text(membership)
    return CgroupProbe(find_hierarchy(HOST, tmp_path / "cgroup", tmp_path / "self"))


def v2(group: str, *, cpu: str, usage: int, memory: str, current: int, inactive: int = 0) -> dict[str, str]:
    return {
        "cgroup/cgroup.controllers": "cpu memory",
        f"cgroup{group}/cpu.max": cpu,
        f"cgroup{group}/cpu.stat": f"usage_usec {usage}\nuser_usec 1",
        f"cgroup{group}/memory.max": memory,
        f"cgroup{group}/memory.current": str(current),
        f"cgroup{group}/memory.stat": f"anon 5\ninactive_file {inactive}\nfile 9",
    }


def v1(
    group: str, *, quota: int, usage_ns: int, limit: str, current: int, inactive: int = 0, cpu: str = "cpu"
) -> dict[str, str]:
    accounts = "cpuacct" if cpu == "cpu" else cpu
    return {
        f"cgroup/{cpu}{group}/cpu.cfs_quota_us": str(quota),
        f"cgroup/{cpu}{group}/cpu.cfs_period_us": "100000",
        f"cgroup/{accounts}{group}/cpuacct.usage": str(usage_ns),
        f"cgroup/memory{group}/memory.limit_in_bytes": limit,
        f"cgroup/memory{group}/memory.usage_in_bytes": str(current),
        f"cgroup/memory{group}/memory.stat": f"cache 1\ntotal_inactive_file {inactive}",
    }


V1_GROUPS = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"


def test_v2_compares_with_the_group_s_limits(tmp_path: Path) -> None:
    tree(tmp_path, v2("/app", cpu="200000 100000", usage=0, memory=str(4 * GIB), current=3 * GIB, inactive=GIB))
    reader = probe(tmp_path, "0::/app\n")
    assert reader.read(seconds(0)) == (None, 50.0)
    tree(tmp_path, v2("/app", cpu="200000 100000", usage=10_000_000, memory=str(4 * GIB), current=GIB))
    assert reader.read(seconds(10)) == (50.0, 25.0)


def test_v2_without_limits_has_nothing_to_say(tmp_path: Path) -> None:
    tree(tmp_path, v2("/app", cpu="max 100000", usage=0, memory="max", current=3 * GIB))
    reader = probe(tmp_path, "0::/app\n")
    reader.read(seconds(0))
    assert reader.read(seconds(10)) == (None, None)


def test_v2_minds_the_limit_of_a_group_above(tmp_path: Path) -> None:
    tree(tmp_path, v2("/pod", cpu="100000 100000", usage=0, memory=str(2 * GIB), current=2 * GIB))
    tree(tmp_path, v2("/pod/app", cpu="max", usage=0, memory=str(8 * GIB), current=GIB))
    reader = probe(tmp_path, "0::/pod/app\n")
    reader.read(seconds(0))
    tree(tmp_path, v2("/pod", cpu="100000 100000", usage=9_000_000, memory=str(2 * GIB), current=2 * GIB))
    assert reader.read(seconds(10)) == (90.0, 100.0)


def test_of_several_limits_the_fullest_counts(tmp_path: Path) -> None:
    def use(microseconds: int) -> None:
        tree(tmp_path, v2("/pod", cpu="100000 100000", usage=microseconds, memory=str(2 * GIB), current=GIB))
        tree(tmp_path, v2("/pod/app", cpu="400000 100000", usage=microseconds, memory=str(8 * GIB), current=GIB))

    use(0)
    reader = probe(tmp_path, "0::/pod/app\n")
    reader.read(seconds(0))
    use(5_000_000)
    assert reader.read(seconds(10)) == (50.0, 50.0)


def test_v2_in_a_container_that_sees_the_host_s_path_uses_its_own_root(tmp_path: Path) -> None:
    tree(tmp_path, v2("", cpu="50000 100000", usage=0, memory=str(GIB), current=GIB // 4))
    reader = probe(tmp_path, "0::/kubepods/burstable/pod1/abc\n")
    assert reader.read(seconds(0)) == (None, 25.0)


@pytest.mark.parametrize("cpu", ["cpu", "cpu,cpuacct"])
def test_v1_compares_with_the_group_s_limits(tmp_path: Path, cpu: str) -> None:
    usual = {"quota": 400_000, "limit": str(4 * GIB), "current": 3 * GIB, "inactive": 2 * GIB, "cpu": cpu}
    tree(tmp_path, v1("/docker/abc", usage_ns=0, **usual))  # type: ignore[arg-type]
    reader = probe(tmp_path, V1_GROUPS)
    assert reader.read(seconds(0)) == (None, 25.0)
    tree(tmp_path, v1("/docker/abc", usage_ns=30_000_000_000, **usual))  # type: ignore[arg-type]
    assert reader.read(seconds(10)) == (75.0, 25.0)


def test_v1_without_limits_has_nothing_to_say(tmp_path: Path) -> None:
    tree(tmp_path, v1("/docker/abc", quota=-1, usage_ns=0, limit=V1_UNLIMITED, current=GIB))
    reader = probe(tmp_path, V1_GROUPS)
    reader.read(seconds(0))
    assert reader.read(seconds(10)) == (None, None)


def test_a_limit_beyond_the_host_s_memory_is_none(tmp_path: Path) -> None:
    tree(tmp_path, v2("/app", cpu="max", usage=0, memory=str(HOST + 1), current=GIB))
    assert probe(tmp_path, "0::/app\n").read(seconds(0)) == (None, None)


def test_a_limit_above_all_groups_counts_too(tmp_path: Path) -> None:
    tree(tmp_path, v1("/docker/abc", quota=-1, usage_ns=0, limit=V1_UNLIMITED, current=GIB))
    tree(tmp_path, v1("", quota=-1, usage_ns=0, limit=str(2 * GIB), current=GIB))
    assert probe(tmp_path, V1_GROUPS).read(seconds(0)) == (None, 50.0)


def test_without_control_groups_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert find_hierarchy(HOST, tmp_path / "nowhere", tmp_path / "nothing") is None
    assert CgroupProbe(None).read(seconds(1)) == (None, None)


def test_files_that_are_missing_or_odd_are_passed_over(tmp_path: Path) -> None:
    tree(tmp_path, {"cgroup/cgroup.controllers": "", "cgroup/app/cpu.max": "garbage", "cgroup/app/memory.max": "lots"})
    reader = probe(tmp_path, "0::/app\n")
    reader.read(seconds(0))
    assert reader.read(seconds(1)) == (None, None)


def test_the_version_is_told_by_the_tree(tmp_path: Path) -> None:
    tree(tmp_path, v2("/app", cpu="max", usage=0, memory="max", current=0))
    (tmp_path / "self").write_text("0::/app\n")
    assert isinstance(find_hierarchy(HOST, tmp_path / "cgroup", tmp_path / "self"), CgroupV2)
    tree(tmp_path / "old", v1("/docker/abc", quota=-1, usage_ns=0, limit="0", current=0))
    (tmp_path / "old/self").write_text(V1_GROUPS)
    assert isinstance(find_hierarchy(HOST, tmp_path / "old/cgroup", tmp_path / "old/self"), CgroupV1)
