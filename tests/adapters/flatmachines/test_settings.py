"""What a machine's settings say."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.adapters.flatmachines.settings import MachineSettings, read_settings, thresholds_for
from drumbeat.core.errors import InvalidSettings

HERE = Path("/machines")
PG = "postgresql://me@host/db"


@pytest.mark.parametrize(
    ("what", "settings", "default", "expected"),
    [
        ("nothing", {}, PG, MachineSettings()),
        ("the seed's heartbeat", {"heartbeat_interval": 30}, PG, MachineSettings(heartbeat_interval=timedelta(seconds=30))),
        ("the seed's pool", {"worker_pool": "my_pool"}, PG, MachineSettings(worker_pool="my_pool")),
        (
            "the seed's backends, relative to the machine's folder",
            {
                "backends": {
                    "registration": "sqlite",
                    "work": "sqlite",
                    "registration_path": "./data/workers.sqlite",
                    "work_path": "./data/workers.sqlite",
                }
            },
            PG,
            MachineSettings(
                registration="sqlite:////machines/data/workers.sqlite", work="sqlite:////machines/data/workers.sqlite"
            ),
        ),
        ("memory", {"backends": {"work": "memory"}}, PG, MachineSettings(work="memory:")),
        ("the kind of store we were given", {"backends": {"work": "postgresql"}}, PG, MachineSettings()),
        ("its URL", {"backends": {"work": "postgres", "work_path": PG}}, "memory:", MachineSettings(work=PG)),
        (
            "one path for both",
            {"backends": {"work": "sqlite", "sqlite_path": "/a.db"}},
            PG,
            MachineSettings(work="sqlite:////a.db"),
        ),
        (
            "the package's default file",
            {"backends": {"work": "sqlite"}},
            PG,
            MachineSettings(work="sqlite:////machines/workers.sqlite"),
        ),
        ("the package's own", {"backends": {"persistence": "local"}}, PG, MachineSettings()),
    ],
)
def test_settings_are_read(what: str, settings: dict[str, Any], default: str, expected: MachineSettings) -> None:
    assert read_settings(settings, HERE, default) == expected, what


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"heartbeat_interval": 0}, "heartbeat_interval"),
        ({"heartbeat_interval": "30"}, "heartbeat_interval"),
        ({"heartbeat_interval": True}, "heartbeat_interval"),
        ({"backends": ["sqlite"]}, "backends"),
        ({"backends": {"works": "sqlite"}}, "'works'"),
        ({"backends": {"work": "dynamodb"}}, "backends.work to be one of .*, got 'dynamodb'"),
        ({"backends": {"registration": "redis"}}, "registration_path"),
        ({"backends": {"work": "redis", "work_path": "sqlite:///a"}}, "another kind"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSettings, match=field):
        read_settings(settings, HERE, "sqlite:///a.db")


@pytest.mark.parametrize("seconds", [0.01, 1, 30, 3600])
def test_a_worker_is_stale_at_twice_its_interval(seconds: float) -> None:
    every = timedelta(seconds=seconds)
    assert thresholds_for(every).stale_after == 2 * every
