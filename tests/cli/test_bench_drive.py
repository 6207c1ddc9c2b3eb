"""bench drive: what is asked for is checked before anything is opened."""

from pathlib import Path

import pytest

from cli.given import ran


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--seed -1", "--seed"),
        ("--timeout 1e300", "--timeout"),
        ("--timeout nan", "--timeout"),
        ("--rate inf", "--rate"),
        ("--rate nan", "--rate"),
        ("--duration 1e300", "--duration"),
        ("--duration nan", "--duration"),
        ("--warmup 1e300", "--warmup"),
        ("--scale inf", "--scale"),
        ("--scale nan", "--scale"),
    ],
)
def test_an_option_that_cannot_be_is_named(tmp_path: Path, words: str, named: str) -> None:
    said = ran("bench", "drive", f"sqlite:///{tmp_path}/t.db", *words.split(), cwd=tmp_path)

    assert said.code == 1
    assert named in said.errors
    assert "Traceback" not in said.errors
    assert said.errors.startswith("drumbeat: ")


def test_a_port_that_cannot_be_is_said(tmp_path: Path) -> None:
    said = ran("bench", "drive", "postgresql://localhost:99999/x", cwd=tmp_path)

    assert (said.code, said.output) == (1, "")
    assert "expected a port from 1 to 65535" in said.errors
