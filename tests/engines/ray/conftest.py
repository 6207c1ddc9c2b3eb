"""A real Ray head for the tests of this folder, started once a session, and settings for spawners that use it."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.spawn.ray import RaySettings
from e2e.engine_sites import RAY_TOKEN
from servers.ray_head import RayHead


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A Ray head: where it is, its token, and the folder in which it writes."""

    address: str
    token: str
    session: Path

    @property
    def variables(self) -> dict[str, str]:
        return {RAY_TOKEN: self.token}


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    """A new head; or one that runs already, as DRUMBEAT_TEST_RAY="ADDRESS TOKEN FOLDER"."""
    if given := os.environ.get("DRUMBEAT_TEST_RAY"):
        address, token, folder = given.split()
        yield Head(address=address, token=token, session=Path(folder))
        return
    with RayHead() as server:
        yield Head(address=server.url, token=server.token, session=server.session)


def settings_at(head: Head, **changed: Any) -> RaySettings:
    given: dict[str, Any] = {
        "address": head.address,
        "token_variable": RAY_TOKEN,
        "command": (sys.executable, "-m", "drumbeat", "worker"),
        "timeout": timedelta(minutes=2),
        "usual_start": timedelta(minutes=1),
        **changed,
    }
    return RaySettings(**given)
