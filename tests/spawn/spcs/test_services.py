"""What Snowflake says of a service and its container, and what it means for the worker."""

from datetime import UTC, datetime
from typing import Any

import pytest

from drumbeat.spawn.interface import Instance, InstanceState
from drumbeat.spawn.spcs.services import SpcsContainer, moment, read_container, read_service, worker_instance
from drumbeat.spawn.spcs.statements import comment
from spawn.spcs.conftest import P, W

STARTED = "2026-11-17T10:00:00Z"


def instance(status: str, **container: Any) -> Instance:
    service = read_service({"name": "DRUMBEAT_0", "status": status, "comment": comment((P, W), "t"), "compute_pool": "CP"})
    assert service is not None
    rows = [{"container_name": "worker", **container}] if container else [{"container_name": None}]
    return worker_instance(service, read_container(rows), 1.0)


@pytest.mark.parametrize(
    ("status", "container", "state", "code"),
    [
        ("PENDING", {}, InstanceState.PENDING, None),
        ("RUNNING", {"start_time": STARTED}, InstanceState.RUNNING, None),
        ("SUSPENDED", {}, InstanceState.PENDING, None),
        ("SUSPENDING", {}, InstanceState.RUNNING, None),
        ("DELETING", {"last_exit_code": "0"}, InstanceState.RUNNING, None),
        ("DONE", {"last_exit_code": "0"}, InstanceState.EXITED, 0),
        ("DONE", {}, InstanceState.EXITED, 0),
        ("FAILED", {"last_exit_code": 3}, InstanceState.EXITED, 3),
        ("FAILED", {"last_exit_code": "137"}, InstanceState.EXITED, 137),
        ("FAILED", {}, InstanceState.EXITED, None),
        ("INTERNAL_ERROR", {}, InstanceState.EXITED, None),
        ("SOMETHING_NEW", {}, InstanceState.PENDING, None),
    ],
)
def test_the_state_and_the_exit_code(status: str, container: dict[str, Any], state: InstanceState, code: int | None) -> None:
    shown = instance(status, **container)

    assert (shown.state, shown.exit_code) == (state, code)
    assert (shown.ref, shown.price_per_hour) == ("DRUMBEAT_0:t", 1.0)
    assert shown.meta["compute_pool"] == "CP"


@pytest.mark.parametrize(
    ("status", "container", "problem"),
    [
        ("PENDING", {"message": "Waiting to start."}, None),
        ("PENDING", {"message": "Failed to pull image"}, "it cannot start yet: Failed to pull image"),
        ("RUNNING", {"message": "Running"}, None),
        ("FAILED", {"message": "Failed", "last_exit_code": "3"}, None),
        ("FAILED", {"message": "Out of memory", "last_exit_code": "137"}, "its service ended: Out of memory"),
        ("INTERNAL_ERROR", {"message": ""}, "its service ended with INTERNAL_ERROR"),
        (
            "SUSPENDED",
            {},
            "its service is suspended, perhaps with its compute pool; resume the pool: ALTER COMPUTE POOL … RESUME",
        ),
        ("NEW", {}, "its service has the status NEW, which this version of Drumbeat does not know"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(status: str, container: dict[str, Any], problem: str | None) -> None:
    assert instance(status, **container).meta.get("problem") == problem


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (STARTED, datetime(2026, 11, 17, 10, tzinfo=UTC)),
        (datetime(2026, 11, 17, 10, tzinfo=UTC).replace(tzinfo=None), datetime(2026, 11, 17, 10, tzinfo=UTC)),
        ("", None),
        ("soon", None),
        (None, None),
    ],
)
def test_times_are_read_as_timestamps_or_texts(value: Any, at: datetime | None) -> None:
    assert moment(value) == at


def test_other_containers_and_services_are_not_the_workers() -> None:
    assert read_container([{"container_name": "sidecar", "last_exit_code": "3"}]) == SpcsContainer()
    assert read_service({"name": "X", "status": "RUNNING", "comment": "by hand"}) is None
