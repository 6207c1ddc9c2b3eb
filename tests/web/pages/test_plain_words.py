"""Every value that a page shows has a plain text, and every setting of a policy a label with its unit."""

import inspect
import re
from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast, get_args

import pytest
from nicegui import Client
from nicegui.page import page

import drumbeat.fleet
from drumbeat.bench.control.modes.stability import LevelOutcome
from drumbeat.bench.explain.figures import EndReason, StepOutcome
from drumbeat.bench.model import FindMaxStatus, LoadMode, ScalingMode
from drumbeat.bench.model.view import Action as RunAction
from drumbeat.bench.results.compare.changes import BEST_LEVEL, BEST_QPS, KNEE, FigureChange
from drumbeat.bench.results.conclusion import COMPLETED, FAILED, PENDING, SKIPPED
from drumbeat.client import Pool
from drumbeat.core.clock import ManualClock
from drumbeat.core.event import EventType
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobStatus
from drumbeat.core.job_step import StepKind
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, RunStatus
from drumbeat.fleet.explain import inputs
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.model.action import Action as FleetAction
from drumbeat.fleet.simulate.values import SimulationResult
from drumbeat.pool.schedules.model import MissedTicks
from drumbeat.triggers.model import BeatKind, TriggerType
from drumbeat.web.pages import actions, plain_words
from drumbeat.web.pages.fleet_policy import PolicyForm
from drumbeat.web.pages.plain_words import Words, job_status, plain, plain_action
from drumbeat.web.pages.policy_labels import IF_EMPTY, LABELS, LIMITS
from drumbeat.web.pages.pools_operations import _ChangeForm
from drumbeat.web.roles import AuthMethod, Caller, Role

FLEET = Path(drumbeat.fleet.__file__).parent
SIMULATED = tuple(each.name for each in fields(SimulationResult) if each.name != "series")
MODES = {"ON_TARGET", "OVER_TARGET", "UNDER_TARGET"}


def recorded(action: type) -> str:
    """The type of an action as beats record it."""
    return str(getattr(action, "TYPE", action.__name__))


def in_fleet(pattern: str) -> set[str]:
    """What a pattern finds in the sources of the fleet."""
    return {found for file in FLEET.rglob("*.py") for found in re.findall(pattern, file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (plain_words.JOB_STATUSES, JobStatus),
        (plain_words.ATTEMPT_OUTCOMES, AttemptOutcome),
        (plain_words.STEP_KINDS, StepKind),
        (plain_words.MISSED_TICKS, MissedTicks),
        (plain_words.TRIGGER_TYPES, TriggerType),
        (plain_words.TRIGGER_ACTIONS, BeatKind),
        (plain_words.RUN_STATUSES, RunStatus),
        (plain_words.PHASES, Phase),
        (plain_words.LOAD_MODES, LoadMode),
        (plain_words.SCALING_MODES, ScalingMode),
        (plain_words.END_REASONS, EndReason),
        (plain_words.STEP_OUTCOMES, {*LevelOutcome, *StepOutcome, *MODES} - {"TRUE_MAX", "BOUNDED_MAX"}),
        (plain_words.MAXIMUM_TYPES, {"TRUE_MAX", "BOUNDED_MAX"}),
        (plain_words.SEARCH_STAGES, FindMaxStatus),
        (plain_words.STATISTICS_STATUSES, {COMPLETED, FAILED, PENDING, SKIPPED}),
        (plain_words.CHANGES, FigureChange),
        (plain_words.COMPARED_FIGURES, {each.name for each in (BEST_LEVEL, BEST_QPS, KNEE)}),
        (plain_words.RUN_ACTIONS, {*map(recorded, get_args(RunAction)), *EventType}),
        (plain_words.FLEET_ACTIONS, {*map(recorded, get_args(FleetAction))}),
        (plain_words.POLICIES, PolicyName),
        (plain_words.RULES, in_fleet(r'rule="(\w+)",\s*workers')),
        (plain_words.SIMULATED, SIMULATED),
    ],
)
def test_every_value_has_a_plain_text_and_no_text_is_left_over(words: Words, values: Collection[str]) -> None:
    assert set(words) == {str(each) for each in values}
    assert [text for text in words.values() if re.search(r"_(?!\w+\))", text.partition(":")[2] or text)] == []


def test_every_input_of_a_decision_has_a_plain_text() -> None:
    named = set(re.findall(r'"(\w+)": ', inspect.getsource(inputs)))

    assert set(plain_words.INPUTS) == {*named, "burn_per_hour", "spent_this_hour", "spent_this_day", "spent_this_month"}


def test_every_setting_of_a_policy_has_a_label_with_its_unit_and_says_what_holds_while_it_is_empty() -> None:
    settings = fields(FleetPolicy)

    assert set(LABELS) == {each.name for each in settings}
    assert len(set(LABELS.values())) == len(LABELS)
    assert [each.name for each in settings if ("timedelta" in str(each.type)) is not LABELS[each.name].endswith("(s)")] == []
    assert set(IF_EMPTY) == {each.name for each in settings if "None" in str(each.type)}


@pytest.fixture
def on_a_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Elements may be made for an operator, though no browser looks at them."""
    monkeypatch.setattr(actions, "caller", lambda: Caller(role=Role.OPERATOR, means=AuthMethod.SESSION, is_valid=lambda: True))
    client = Client(page("/nowhere"))
    with client:
        yield
    client.delete()


@pytest.mark.usefixtures("on_a_page")
def test_the_form_of_a_policy_shows_these_labels_and_what_holds_while_a_field_is_empty() -> None:
    shown = {name: field.props for name, field in PolicyForm(FleetPolicy())._fields.items()}

    assert set(shown) == set(LABELS) - {"policy", "schedules"}
    assert {name: props["label"] for name, props in shown.items()} == {name: LABELS[name] for name in shown}
    assert {name: props.get("placeholder") for name, props in shown.items()} == {name: IF_EMPTY.get(name) for name in shown}


@pytest.mark.usefixtures("on_a_page")
def test_the_form_that_changes_many_jobs_says_which_jobs_are_meant_if_no_status_is_chosen() -> None:
    form = _ChangeForm(cast(Pool, None), ManualClock())
    offered = []
    for action in ("requeue", "cancel"):
        form._operation.value = action
        offered.append(list(form._fields["statuses"].options.values()))

    assert offered == [
        ["poisoned jobs", "poisoned", "cancelled"],
        ["unfinished jobs", "waiting for other jobs", "ready or delayed", "in progress"],
    ]


def test_every_limit_of_a_decision_has_a_label() -> None:
    found = in_fleet(r'wish\.at_(?:most|least)\(\s*f?"([^"]+)"')
    named = {
        each.format(whose=whose, name=name) for each in found for whose in ("policy", "schedule") for name in ("hour", "day")
    }

    assert len(found) > 10
    assert named <= set(LIMITS)


@pytest.mark.parametrize(
    ("words", "line", "said"),
    [
        (plain_words.FLEET_ACTIONS, "Spawn w1: slot 0 is free", "start worker w1: slot 0 is free"),
        (plain_words.FLEET_ACTIONS, "ExpireJobs: it is over", "release jobs with an expired lease: it is over"),
        (plain_words.RUN_ACTIONS, "EnterPhase MEASUREMENT", "enter phase measurement"),
        (plain_words.RUN_ACTIONS, "WORKER_MOVED w1 → active", "status of worker w1 → active"),
        (plain_words.RUN_ACTIONS, "OfALaterVersion w1", "OfALaterVersion w1"),
    ],
)
def test_an_action_is_shown_in_plain_words(words: Words, line: str, said: str) -> None:
    assert plain_action(words, line) == said


def test_what_is_not_known_is_shown_as_it_is() -> None:
    assert (plain(plain_words.END_REASONS, "LATER"), plain(plain_words.END_REASONS, None)) == ("LATER", None)


def test_a_job_has_the_status_that_the_tiles_count() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    job = Job(pool_id=PoolId("p"), job_id=JobId("j"), payload={}, created_at=now)
    later, sooner = (replace(job, not_before=now + timedelta(seconds=by)) for by in (1, -1))

    assert [job_status(each, now) for each in (job, later, sooner)] == ["ready", "delayed", "ready"]
    assert job_status(replace(later, status=JobStatus.CLAIMED), now) == "in progress"
