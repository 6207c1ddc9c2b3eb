"""What a language model is given: figures, and no word that a person wrote."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.explain.given import MARK, marked_run
from drumbeat.bench.control.modes.stability import LevelOutcome
from drumbeat.bench.explain.figures import EndReason, StepOutcome, model_figures, numbers_in
from drumbeat.bench.explain.prompt import messages
from drumbeat.bench.model import LoadMode
from drumbeat.bench.results.record import read_short_record
from drumbeat.bench.results.summaries import read_previous
from drumbeat.core.clock import ManualClock
from drumbeat.core.run import RunStatus
from drumbeat.store.memory import MemoryStore


async def figures_of(mode: LoadMode, ends: RunStatus = RunStatus.COMPLETED) -> dict[str, Any]:
    clock = ManualClock()
    store = MemoryStore(clock)
    await marked_run(store, "before", mode)
    clock.jump(timedelta(minutes=1))
    run = await marked_run(store, "after", mode, ends=ends, milliseconds=6.0)
    return model_figures(await read_short_record(store, run), await read_previous(store, run))


@pytest.mark.parametrize("ends", [RunStatus.COMPLETED, RunStatus.FAILED])
@pytest.mark.parametrize("mode", LoadMode)
async def test_no_name_is_among_the_figures(mode: LoadMode, ends: RunStatus) -> None:
    figures = await figures_of(mode, ends)

    sent = json.dumps(messages(figures, 1500))

    assert MARK not in sent.lower()
    assert figures["operations"] == 60_000


async def test_the_figures_are_those_of_the_run() -> None:
    figures = await figures_of(LoadMode.CONCURRENCY)

    assert figures["database"] == "PostgreSQL"
    assert (figures["verdict"], figures["workers"], figures["connections"]) == ("MISSED", 1, 8)
    assert (figures["operations_per_second"], figures["errors"], figures["errors_by_class"]) == (
        1234.5,
        15,
        {"QUERY_TIMEOUT": 12},
    )
    assert {each["kind"] for each in figures["by_kind"]} == {"custom operation 1", "POINT_LOOKUP"}
    assert {each["kind"] for each in figures["objectives"]} == {"custom operation 1", "all kinds"}
    assert [each["limit"] for each in figures["limits"]][:2] == ["BACKED_OFF", "WORKERS_LOST"]
    assert figures["cost"] == {"total": 0.25}
    assert "ended_because" not in figures


async def test_the_run_before_is_given_as_figures() -> None:
    before = (await figures_of(LoadMode.CONCURRENCY))["run_before"]

    assert before["figures"]["operations/s"] == 1234.5
    assert before["change_percent"]["operations/s"] == 0
    assert before["change_percent"]["p95"] == pytest.approx(20, abs=2)
    assert before["settings_that_differ"] == 0


async def test_a_search_is_given_by_its_levels() -> None:
    search = (await figures_of(LoadMode.FIND_MAX_CONCURRENCY))["search"]

    assert (search["best_connections"], search["best_qps"], search["scalability_law_peak_connections"]) == (40, 900, 44.5)
    assert [(each["connections"], each.get("outcome")) for each in search["steps"]] == [
        (20, "STABLE"),
        (40, "STABLE"),
        (60, None),
    ]
    assert "maximum" not in search


def test_numbers_are_found_wherever_they_stand() -> None:
    assert sorted(numbers_in({"a": 1, "b": [2.5, {"c": 3}], "d": True, "e": "4", "f": None})) == [1, 2.5, 3]


def test_every_reason_and_outcome_of_ours_may_be_given() -> None:
    source = Path(__file__).parents[3] / "src" / "drumbeat" / "bench"
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    reasons = {reason for text in texts for reason in re.findall(r'completion_reason="([A-Z_]+)"', text)}

    assert set(EndReason) == reasons
    assert set(LevelOutcome) | {"TRUE_MAX", "BOUNDED_MAX"} == set(StepOutcome)
