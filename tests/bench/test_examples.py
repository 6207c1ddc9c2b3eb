"""The examples are templates that can be run as they stand, on a target prepared as they say."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.workloads.standard.given import empty_file
from drumbeat.bench.control.create import prepare_run
from drumbeat.bench.model import LoadMode, Prices, ScalingMode
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.vault import Vault
from drumbeat.bench.templates import TemplateDocument, parse, plan_of, with_settings
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import standard
from drumbeat.store.memory import MemoryStore

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
HOST = HostCapacity(cpu_cores=4, memory_gb=16)

examples = pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)


def document(name: str) -> TemplateDocument:
    return parse((ROOT / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_file("sqlite", tmp_path) as target:
        await prepare(target, standard("mixed", 0.01))
        yield target


@examples
async def test_it_can_be_run(file: Path, target: Target) -> None:
    settings = [f"target.url={target.location}", "workload.scale=0.01"]

    made = await prepare_run(
        with_settings(parse(file.read_bytes()), settings), HOST, ConnectionService(MemoryStore(), Vault()), Prices()
    )

    assert made.preflight.can_proceed
    assert load_of(made.config["workload"]).used


@examples
def test_it_is_named_as_its_file(file: Path) -> None:
    assert parse(file.read_bytes()).name == file.stem


@examples
def test_it_says_how_to_run_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    assert f"#   drumbeat bench run examples/{file.name}" in text
    assert "#   drumbeat bench prepare sqlite:///target.db --workload mixed" in text
    assert parse(text).target.url == "sqlite:///target.db"


@examples
def test_it_is_on_the_page(file: Path) -> None:
    assert f"(../examples/{file.name})" in (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")


def test_there_is_one_for_each_load_mode_and_most_scaling_modes() -> None:
    plans = [plan_of(parse(file.read_bytes()), HOST) for file in EXAMPLES]

    assert {plan.load_mode for plan in plans} == set(LoadMode)
    assert {plan.scaling.mode for plan in plans} >= {ScalingMode.FIXED, ScalingMode.BOUNDED}


def test_the_gate_measures_long_enough_to_be_compared_later() -> None:
    gate = document("ci-gate")

    assert gate.timing.duration_seconds >= 30
    assert gate.slo


def test_the_levels_of_the_gate_are_those_its_comment_speaks_of() -> None:
    comment = (ROOT / "examples" / "ci-gate.yaml").read_text(encoding="utf-8")

    assert re.findall(r"# Exit codes: (\d) .*, (\d) .*, (\d) ", comment) == [("0", "3", "4")]
