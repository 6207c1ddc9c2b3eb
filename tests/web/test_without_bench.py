"""A server installed without the extra for benchmarks serves everything else."""

import logging
import os
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

import drumbeat
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import MissingExtra
from drumbeat.web.settings import WebSettings
from web.given import web
from web.pages.served import serving


async def test_a_server_without_the_bench_extra_serves_pools_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(_: ControlPlane) -> NoReturn:
        raise MissingExtra("the bench", "bench")

    monkeypatch.setattr(ControlPlane, "bench", missing)
    with caplog.at_level(logging.WARNING):
        async with web(tmp_path, WebSettings()) as made, made.client() as client:
            await made.plane.pool("mail").push({"n": 1})
            pools, prices = await client.get("/api/v1/pools"), await client.get("/api/v1/prices")

    assert [each["pool_id"] for each in pools.json()] == ["mail"]
    assert (prices.status_code, "pip install 'drumbeat[bench]'" in prices.text) == (501, True)
    assert "this server does not orchestrate benchmark runs: the bench needs an optional dependency" in caplog.text


def test_its_pages_say_what_they_lack(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = sys.modules['pyarrow'] = None\n")
    source = str(Path(drumbeat.__file__).parents[1])
    store = f"sqlite:///{tmp_path}/drumbeat.db"
    with serving(tmp_path, store, "--no-conduct", PYTHONPATH=os.pathsep.join((str(tmp_path), source))) as server:
        shown = {path: httpx.get(server.address + path, timeout=60) for path in ("/", "/settings", "/runs", "/pools")}

    assert {path: page.status_code for path, page in shown.items()} == dict.fromkeys(shown, 200)
    assert shown["/settings"].text.count("pip install 'drumbeat[bench]'") == 2
