"""The examples of the page on telemetry work as they are printed."""

import re
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from docs.pages import page
from drumbeat import testing
from drumbeat.pool.middleware import HOOKS

EXAMPLES = re.findall(r"```python\n(.*?)```", page("telemetry"), re.DOTALL)


def example(name: str) -> Any:
    """The class of this name, as the page defines it."""
    defined: dict[str, Any] = {}
    exec(next(code for code in EXAMPLES if f"class {name}" in code), defined)
    return defined[name]


async def test_the_middleware_of_the_page_adds_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    async with testing.pool(middleware=[example("Tenant")()]) as pool:
        job_id = await pool.push(1)
        await pool.run_until_empty(lambda payload: payload)

    assert capsys.readouterr().out == f"tenant acme job {job_id}\n"


async def test_the_lines_for_sentry_report_what_a_handler_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[BaseException, dict[str, str]]] = []
    stand_in = ModuleType("sentry_sdk")
    vars(stand_in).update(vars(SimpleNamespace(capture_exception=lambda error, tags: reported.append((error, tags)))))
    monkeypatch.setitem(__import__("sys").modules, "sentry_sdk", stand_in)

    def fail() -> None:
        raise ValueError("no luck")

    async with testing.pool("papers", middleware=[example("Sentry")()]) as pool:
        job_id = await pool.push(1, max_attempts=1)
        await pool.run_until_empty(fail)

    ((error, tags),) = reported
    assert repr(error) == "ValueError('no luck')"
    assert tags == {"job_id": job_id, "pool": "papers"}


def test_the_page_names_every_hook() -> None:
    assert all(f"| `{name}` |" in page("telemetry") for name in HOOKS)
