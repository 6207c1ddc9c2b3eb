"""The examples of docs/workflows.md run as they stand."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from docs.pages import page
from drumbeat.settings import STORE_VARIABLE
from drumbeat.testing import immediate


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, f"sqlite:///{tmp_path}/jobs.db")
    blocks = re.findall(r"```python\n(.*?)```", page("workflows"), re.DOTALL)
    names: dict[str, object] = {"__name__": "workflows_page"}
    said = io.StringIO()

    with immediate(), contextlib.redirect_stdout(said):
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"workflows, block {number}", "exec"), names)

    lines = said.getvalue().splitlines()
    fetched = "workflows_page.fetch: done "
    assert lines[:3] == ["4", "16", str([fetched])]
    assert lines[3].startswith("1.0 ")
    assert lines[4] == str([fetched, fetched])
    assert lines[5].startswith("0 2 ")
