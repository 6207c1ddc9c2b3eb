"""A check of the engine and a pool of jobs on a simulated Kubernetes cluster, by the ordinary commands only."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, eventually, ran
from spawn.kubernetes.cluster import Cluster
from spawn.kubernetes.server import ApiServer, served, write_kubeconfig

ENGINES = """
[engines.k8s]
kind = "kubernetes"
image = "drumbeat/worker:1"
kubeconfig = "{kubeconfig}"
command = ["{python}", "-m", "drumbeat", "worker"]
price_per_hour = 0.2
timeout = "2m"
"""


class Site:
    """A folder with engines.toml, the store that its commands use, and the cluster."""

    def __init__(self, folder: Path, store: str, server: ApiServer) -> None:
        self.folder, self.store, self.server = folder, store, server

    def run(self, *words: str, code: int = 0) -> Said:
        done = ran(*words, cwd=self.folder, DRUMBEAT_STORE=self.store)
        assert done.code == code, (words, done.output, done.errors)
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).output)


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    with served(Cluster(tmp_path)) as (server, url):
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        (tmp_path / "engines.toml").write_text(ENGINES.format(kubeconfig=kubeconfig, python=sys.executable))
        yield Site(tmp_path, postgres_url, server)
    assert server.violations == []


def test_a_kubernetes_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "k8s", "--timeout", "3m")

    assert found["ok"], found
    assert site.server.cluster.objects["jobs"] == {}


def test_a_check_says_that_the_image_is_missing(site: Site) -> None:
    site.server.cluster.broken_images["drumbeat/worker:1"] = "ImagePullBackOff: manifest unknown"

    found = site.run("engine", "check", "k8s", "--timeout", "1s", code=1)

    assert "its image cannot be pulled: ImagePullBackOff: manifest unknown" in found.output + found.errors
    assert site.server.cluster.objects["jobs"] == {}


def test_a_burst_of_jobs_is_done_on_kubernetes(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "k8s")
    for n in range(3):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 3, "all jobs are done")
    eventually(lambda: site.json("engine", "workers", "k8s")["workers"] == [], "the workers leave by themselves")
    assert {each["provider"] for each in site.json("workers", "list", "jobs")} == {"k8s"}
