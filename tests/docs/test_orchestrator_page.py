"""The page on the orchestrator knows every status, phase, reason, mode, outcome, exit code and limit."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

from docs.pages import page, quoted, rows, section
from drumbeat.bench.control.modes.stability import LevelOutcome
from drumbeat.bench.control.orchestrator import BRISKLY, EVERY, LEASE
from drumbeat.bench.explain.settings import KEY_VARIABLE, LanguageModelSettings
from drumbeat.bench.model import Action, GuardrailMode, LoadMode, ScalingMode
from drumbeat.bench.model.verdict import ExitStatus, RunVerdict
from drumbeat.bench.results.compare import changes
from drumbeat.bench.results.compare.changes import Bounds
from drumbeat.bench.results.report import FORMATS
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.cli.bench_outcome import form_of
from drumbeat.core.pool import PRESETS, PoolKind
from drumbeat.core.run import RUN_ENDED, Phase, RunStatus
from drumbeat.settings import LANGUAGE_MODEL_VARIABLES

TOLD = page("orchestrator")
REASON = re.compile(r'completion_reason="([A-Z_]+)"')
SOURCE = Path(__file__).parents[2] / "src" / "drumbeat" / "bench"


def test_every_action_is_there() -> None:
    table = TOLD.partition("## Statuses and phases")[0]
    told = {name for row in rows(table) for name in quoted(row[0])}

    assert told == {getattr(action, "TYPE", action.__name__) for action in get_args(Action)}


def test_every_status_and_phase_is_there() -> None:
    told = section(TOLD, "## Statuses and phases")

    assert all(status in told for status in RunStatus)
    assert all(phase in told for phase in Phase)


def test_every_reason_a_run_may_end_for_is_there() -> None:
    told = {row[0].strip("`"): row[1] for row in rows(section(TOLD, "## Statuses and phases"))}
    used = {reason for file in SOURCE.rglob("*.py") for reason in REASON.findall(file.read_text(encoding="utf-8"))}

    assert set(told) == used
    assert set(told.values()) <= RUN_ENDED


def test_every_mode_is_there() -> None:
    assert all(f"### {mode}\n" in TOLD for mode in LoadMode)
    assert {row[0].strip("`") for row in rows(section(TOLD, "## Scaling modes"))} == set(ScalingMode)
    assert all(f"| {mode} |" in section(TOLD, "## Guardrails") for mode in GuardrailMode if mode is not GuardrailMode.SOFT)


def test_every_outcome_of_a_step_is_there() -> None:
    told = section(TOLD, "### FIND_MAX_CONCURRENCY")

    assert {row[1].strip("`") for row in rows(told)} | {"HELD", "STABLE"} == set(LevelOutcome)
    assert "HELD" in quoted(told)


def test_every_exit_code_is_there() -> None:
    told = [row for row in rows(section(TOLD, "### Service levels and exit codes")) if row[0].isdigit()]

    assert {int(row[0]) for row in told} == set(ExitStatus)


def test_every_verdict_of_a_run_is_there_with_its_exit_codes() -> None:
    told = [row for row in rows(section(TOLD, "### Service levels and exit codes")) if not row[0].isdigit()]

    assert {row[0].strip("`") for row in told} == set(RunVerdict)
    assert {int(row[2]) for row in told} <= set(ExitStatus)


def test_every_form_of_a_report_is_there() -> None:
    endings = {word for word in quoted(section(TOLD, "### Reports")) if re.fullmatch(r"\.[a-z]+", word)}

    assert {form_of(f"report{ending}") for ending in endings} == set(FORMATS)


def test_the_bounds_of_a_comparison_are_as_they_are() -> None:
    told = {
        row[0]: [float(n) for n in re.findall(r"([\d.]+) %", f"{row[1]} {row[2]}")]
        for row in rows(section(TOLD, "## Comparing runs"))
    }
    names = {"best level of a search": "best level", "operations/s at that level": "operations/s at the best level"}
    bounds = {each.label: each for each in vars(changes).values() if isinstance(each, Bounds)}

    assert told.pop("error rate") == [
        100 * changes.ERRORS.warning,
        100 * changes.ERRORS.better,
        100 * changes.ERRORS.regression,
    ]
    for label, (warning, regression) in told.items():
        each = bounds[names.get(label, label)]
        assert (warning, warning, regression) == (100 * each.better, 100 * each.warning, 100 * each.regression)


def test_the_times_it_says_are_the_times_there_are() -> None:
    limits = PRESETS[PoolKind.BENCH]

    assert (EVERY.total_seconds(), BRISKLY.total_seconds(), LEASE.total_seconds()) == (1, 0.4, 10)
    assert (limits.drain_within.total_seconds(), limits.controller_gone_after.total_seconds()) == (120, 120)
    assert limits.give_up_after.total_seconds() == 45
    assert f"At most {VIRTUAL_SLOTS} workers" in section(TOLD, "## Limits")


def test_every_setting_of_a_language_model_is_there() -> None:
    told = section(page("orchestrator"), "### A run in words")

    assert [row[0] for row in rows(told)] == [f"`{each.name}`" for each in fields(LanguageModelSettings)]
    defaults = {row[0].strip("`"): row[1].strip("`") for row in rows(told)}
    known = LanguageModelSettings(url="https://h", model="m")
    assert defaults["key_variable"] == KEY_VARIABLE == known.key_variable
    assert (int(defaults["max_characters"]), int(defaults["max_tokens"])) == (known.max_characters, known.max_tokens)
    assert f"{defaults['timeout']}" == f"{known.timeout.total_seconds():g}s"
    assert set(LANGUAGE_MODEL_VARIABLES.values()) <= quoted(told)
