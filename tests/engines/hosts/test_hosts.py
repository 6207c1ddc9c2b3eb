"""Many machines, on one: the store on one host, workers over SSH on the others; slow links, cut links, a wrong clock."""

import json
from pathlib import Path

import pytest

from cli.given import drumbeat, eventually
from engines.hosts.conftest import SiteFactory
from servers.clock import wrong_clock
from servers.hosts import Link

PERFECT, SLOW = Link(), Link(delay=0.025, loss=0.01)
POOLS = ("jobs", "jobs-b", "jobs-c")  #: their workers have the same ids
JOBS = 12
ENGINE, HEARTBEAT = ("--engine", "cluster"), ("--heartbeat", "1s")
TEMPLATE = """
name: quick
target: {{url: "{url}"}}
workload: {{standard: tpcb, scale: 0.01}}
timing: {{warmup_seconds: 1, duration_seconds: 4}}
concurrent_connections: 8
scaling: {{mode: FIXED, min_workers: {workers}, min_connections: 1}}
slo: {{overall: {{p95_ms: {p95}}}}}
"""


@pytest.mark.parametrize("count", [1, 4], ids=["two hosts", "five hosts"])
def test_bursts_of_three_pools_are_done_on_all_hosts(build: SiteFactory, count: int) -> None:
    site = build(*[PERFECT] * count)
    for pool in POOLS:
        site.run("pool", "create", pool, "--handler", "command:sh -c 'sleep 0.2; cat'", "--max-workers", "4", *ENGINE)
        site.push(pool, JOBS)

    for pool in POOLS:
        site.check_until_done(pool, JOBS)

    eventually(lambda: site.running == [], "the workers leave by themselves")
    assert len({place for pool in POOLS for place in site.places(pool)}) == count


def test_a_slow_link_that_loses_packets_loses_no_job(build: SiteFactory) -> None:
    site = build(SLOW, PERFECT)
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "6", *ENGINE)
    site.push("jobs", 60)

    site.check_until_done("jobs", 60)

    eventually(lambda: site.running == [], "the workers leave by themselves")
    assert site.places("jobs") == {"node1", "node2"}


def test_a_host_that_is_cut_off_in_a_burst_costs_no_job_and_leaves_no_orphan(build: SiteFactory) -> None:
    site = build(PERFECT, PERFECT)
    site.run(
        "pool",
        "create",
        "jobs",
        "--handler",
        "command:sh -c 'sleep 0.5; cat'",
        "--max-workers",
        "6",
        "--engine",
        "cluster",
        "--heartbeat",
        "1s",
    )
    site.push("jobs", 40)
    site.run("pool", "check", "jobs")
    eventually(lambda: site.done("jobs") > 0, "the burst has begun")

    with site.hosts[0].unreachable():
        site.check_until_done("jobs", 40)

    eventually(lambda: site.running == [], "the workers that were cut off leave")
    status = site.json("pool", "status", "jobs")["jobs"]
    assert (status["done"], status["poisoned"]) == (40, 0)


@pytest.mark.parametrize("offset", ["+30s", "-30s"])
def test_a_clock_that_is_wrong_by_half_a_minute_changes_nothing(build: SiteFactory, offset: str) -> None:
    site = build(PERFECT, PERFECT, settings=[wrong_clock(offset)])
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=4", "--engine", "cluster")
    with site.started("fleet", "run", "f", "--every", "1s"):
        eventually(lambda: [each["status"] for each in site.json("workers", "list", "f")] == ["active"] * 4, "all are active")
        beats = len(site.json("beats", "list", "f"))
        eventually(lambda: len(site.json("beats", "list", "f")) > beats + 5, "some beats later")

        assert [each["status"] for each in site.json("workers", "list", "f")] == ["active"] * 4
        assert site.places("f") == {"node1", "node2"}


@pytest.mark.parametrize(("p95", "verdict"), [(100, "MISSED"), (60_000, "PASSED")])
def test_a_benchmark_over_a_slow_host_and_a_wrong_clock_has_the_right_verdict(
    build: SiteFactory, tmp_path: Path, p95: int, verdict: str
) -> None:
    """Five round trips of 50 ms make every operation of the slow host slower than 100 ms."""
    site = build(SLOW, PERFECT, settings=["", wrong_clock("+30s")], patience="30s")
    (tmp_path / "run.yml").write_text(TEMPLATE.format(url=site.store, workers=2, p95=p95))
    site.run("bench", "prepare", site.store, "--workload", "tpcb", "--scale", "0.01")

    done = drumbeat("bench", "run", "run.yml", "--engine", "cluster", "--json", cwd=tmp_path, DRUMBEAT_STORE=site.store)

    assert done.output, done.errors
    shown = json.loads(done.output)
    assert (shown["run"]["status"], shown["verdict"]) == ("COMPLETED", verdict)
    measured = next(phase for phase in shown["phases"] if phase["name"] == "MEASUREMENT")
    assert 3 < measured["seconds"] < 12
    assert site.running == []
