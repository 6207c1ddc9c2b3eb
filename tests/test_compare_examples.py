"""The same app in several queues: ours needs no more lines than Huey's, and no shell command but the start of its worker."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.given import PATIENCE, environment, started

EXAMPLES = Path(__file__).parents[1] / "examples" / "compare"
NEEDS = {"huey": ("huey",), "celery": ("celery",), "dramatiq": ("dramatiq", "periodiq")}
INSTALLED = [name for name, modules in NEEDS.items() if all(find_spec(each) for each in modules)]


def lines(name: str) -> int:
    """How many lines of code an app has, without empty ones."""
    return sum(bool(line.strip()) for file in (EXAMPLES / name).glob("*.py") for line in file.read_text().splitlines())


def test_ours_needs_no_more_lines_than_hueys() -> None:
    written = {name: int(count) for name, count in re.findall(r"^\| (\w+) \| (\d+) \|", readme(), re.MULTILINE)}

    assert written == {"ours": lines("ours"), "Huey": lines("huey"), "Celery": lines("celery"), "Dramatiq": lines("dramatiq")}
    assert written["ours"] <= written["Huey"]


def readme() -> str:
    return (EXAMPLES / "README.md").read_text()


def test_our_app_runs_with_one_worker_and_nothing_else(tmp_path: Path) -> None:
    variables = {"DRUMBEAT_STORE": f"sqlite:///{tmp_path}/jobs.db", "DRUMBEAT_STATE_DIR": str(tmp_path)}
    with started("pool", "work", "app", cwd=EXAMPLES / "ours", **variables) as worker:
        done = subprocess.run(
            [sys.executable, "use.py"],
            cwd=EXAMPLES / "ours",
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        worker.terminate()
        _, errors = worker.communicate(timeout=PATIENCE)

    assert (done.stdout, done.stderr, worker.returncode) == ("4\n", "", 0), errors


@pytest.mark.parametrize("name", ["ours", *INSTALLED])
def test_the_apps_test_passes(name: str, tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(EXAMPLES / name)!r}); import test_app; test_app.test_words_are_counted()"

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
