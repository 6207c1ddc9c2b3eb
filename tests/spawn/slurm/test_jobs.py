"""Jobs are read from all shapes in which squeue shows them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from drumbeat.core.errors import Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract.starts import NEARLY_EQUAL, ODD_NAMES
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.slurm.jobs import JobLabel, SlurmJob, read_down_partitions, read_json, read_text

PENDING, RUNNING, EXITED = InstanceState.PENDING, InstanceState.RUNNING, InstanceState.EXITED
LABEL = JobLabel(scope="s", run="r1", pool_id=PoolId("p"), worker_id=WorkerId("w"))
BEGAN = 1_794_913_473
ME = 1000
NOTHING = {"set": False, "infinite": False, "number": 0}


def old(**changed: Any) -> dict[str, Any]:
    """A job as Slurm 22.05 shows it."""
    job = {
        "job_id": 7,
        "user_id": ME,
        "comment": LABEL.comment,
        "job_state": "RUNNING",
        "state_reason": "None",
        "nodes": "node1",
        "partition": "main",
        "start_time": BEGAN,
        "exit_code": 0,
        "time_limit": None,
    }
    return {**job, **changed}


def new(**changed: Any) -> dict[str, Any]:
    """A job as Slurm 23.11 shows it."""
    job = {
        "job_id": 7,
        "user_id": ME,
        "comment": LABEL.comment,
        "job_state": ["RUNNING"],
        "state_reason": "None",
        "nodes": "node1",
        "partition": "main",
        "start_time": number(BEGAN),
        "exit_code": exit_code(0),
        "time_limit": {"set": False, "infinite": True, "number": 0},
    }
    return {**job, **changed}


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def exit_code(code: int = 0, signal: int | None = None) -> dict[str, Any]:
    killed = {"id": NOTHING if signal is None else number(signal), "name": ""}
    return {"status": ["ANY"], "return_code": number(code), "signal": killed}


def only(*rows: dict[str, Any]) -> SlurmJob:
    jobs = read_json(json.dumps({"meta": {}, "errors": [], "jobs": rows}), ME)
    assert jobs is not None
    [job] = jobs
    return job


@pytest.mark.parametrize("shape", [old, new])
def test_a_running_job(shape: Any) -> None:
    job = only(shape())

    assert (job.job_id, job.label, job.state) == (7, LABEL, RUNNING)
    assert job.started_at == datetime.fromtimestamp(BEGAN, UTC)
    assert job.exit_code is None
    assert job.meta == {"state": "RUNNING", "host": "node1", "partition": "main"}


@pytest.mark.parametrize("shape", [old, new])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        *((state, PENDING) for state in ("PENDING", "CONFIGURING", "REQUEUED")),
        *((state, RUNNING) for state in ("RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT")),
        *((state, EXITED) for state in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")),
        *((state, EXITED) for state in ("OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")),
    ],
)
def test_every_state_is_known(shape: Any, state: str, expected: InstanceState) -> None:
    given = state if shape is old else [state]

    assert only(shape(job_state=given)).state is expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["RUNNING", "CONFIGURING"], PENDING),
        (["CANCELLED", "COMPLETING"], RUNNING),
        (["COMPLETED", "COMPLETING"], RUNNING),
        (["CANCELLED"], EXITED),
    ],
)
def test_several_states_at_once(states: list[str], expected: InstanceState) -> None:
    assert only(new(job_state=states)).state is expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (old(job_state="COMPLETED", exit_code=0), 0),
        (old(job_state="FAILED", exit_code=3 << 8), 3),
        (old(job_state="FAILED", exit_code=9), -9),
        (old(job_state="CANCELLED", exit_code=0), None),
        (old(job_state="RUNNING", exit_code=0), None),
        (new(job_state=["COMPLETED"], exit_code=exit_code(0)), 0),
        (new(job_state=["FAILED"], exit_code=exit_code(3)), 3),
        (new(job_state=["FAILED"], exit_code=exit_code(0, signal=9)), -9),
        (new(job_state=["NODE_FAIL"], exit_code=exit_code(0)), None),
        (new(job_state=["FAILED"], exit_code={"return_code": 4, "signal": {"signal_id": 0, "name": "NONE"}}), 4),
        (new(job_state=["FAILED"], exit_code={"return_code": NOTHING, "signal": {"signal_id": 15}}), -15),
    ],
)
def test_the_exit_code_of_a_job_whose_script_recorded_none(row: dict[str, Any], expected: int | None) -> None:
    assert only(row).exit_code == expected


@pytest.mark.parametrize("shape", [old, new])
def test_a_pending_job_tells_its_reason_and_no_planned_start(shape: Any) -> None:
    job = only(shape(job_state="PENDING", state_reason="QOSMaxCpuPerUserLimit", nodes=""))

    assert job.meta["reason"] == "QOSMaxCpuPerUserLimit"
    assert job.started_at is None


def test_jobs_of_others_are_left_out() -> None:
    strangers = [old(comment=""), old(comment=None), old(comment="drumbeat:s"), old(user_id=1), new(user_id=number(1))]

    assert only(*strangers, new(comment={"job": LABEL.comment})).job_id == 7


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"jobs": [{"comment": "drumbeat:s:r:p:w"}]}'])
def test_an_answer_that_cannot_be_read_is_no_answer(text: str) -> None:
    with pytest.raises(Unanswered, match="squeue"):
        read_json(text, ME)


def test_an_answer_with_errors_is_no_empty_queue() -> None:
    error = {"description": "Failed while looking for jobs", "error_number": -1, "source": "slurm_load_jobs"}

    assert read_json(json.dumps({"errors": [error], "jobs": []}), ME) is None
    assert read_json(json.dumps({"errors": [], "jobs": []}), ME) == []


def test_text_is_read_where_there_is_no_json() -> None:
    lines = [
        f"7|RUNNING|None|node1|main|2026-11-17T11:04:33|{ME}|{LABEL.comment}",
        f"8|PENDING|Resources||main|N/A|{ME}|{LABEL.comment}",
        f"9|CANCELLED|None||main|N/A|1|{LABEL.comment}",
        f"10|RUNNING|None|node1|main|N/A|{ME}|(null)",
    ]

    running, pending = read_text("\n".join([*lines, ""]), ME)

    assert (running.job_id, running.state, running.label) == (7, RUNNING, LABEL)
    assert running.started_at is not None
    assert running.started_at.tzinfo is not None
    assert (pending.job_id, pending.state, pending.reason) == (8, PENDING, "Resources")
    with pytest.raises(Unanswered, match="8 fields"):
        read_text("nonsense\n", ME)


@pytest.mark.parametrize("name", [*ODD_NAMES, *NEARLY_EQUAL, "a:b", "a/b", "\ud800"])
def test_a_comment_carries_every_name(name: str) -> None:
    label = JobLabel(scope="s", run="r", pool_id=PoolId(name), worker_id=WorkerId(name[::-1]))

    assert JobLabel.read(label.comment) == label
    assert all(character.isalnum() or character in ":%-_.~" for character in label.comment)
    assert label.comment.isascii()


@pytest.mark.parametrize(
    ("text", "down"),
    [
        ("main|idle\nmain|down\nold|down*\nold|drained\n", {"old"}),
        ("main|mixed\nslow|unknown*\nslow|draining\n", {"slow"}),
        ("main|allocated\nmain|idle*\nsilent|idle*\n", {"silent"}),
        ("", set()),
    ],
)
def test_partitions_without_a_node_that_could_run_jobs(text: str, down: set[str]) -> None:
    assert read_down_partitions(text) == down
