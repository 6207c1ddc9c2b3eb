"""A benchmark names the code that it ran: a change of code changes the name, a change of words does not."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAIN = "def f(a):\n    return a + 1\n"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (PLAIN, True),
        ('"""Adds."""\n\n\ndef f(a):\n    """Return one more."""\n    # one more\n    return (a + 1)\n', True),
        (PLAIN.replace("+ 1", "+ 2"), False),
        (PLAIN.replace("(a)", "(a=1)"), False),
    ],
)
def test_only_a_change_of_code_changes_the_fingerprint(
    text: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    from kit import fingerprint

    monkeypatch.setattr(fingerprint, "ROOT", tmp_path)
    file = tmp_path / "a.py"
    file.write_text(PLAIN)
    before = fingerprint.fingerprint([file])
    file.write_text(text)

    assert (fingerprint.fingerprint([file]) == before) is same
    assert Path(fingerprint.__file__) not in fingerprint.loaded_files()


def test_the_files_that_a_process_has_loaded_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import drumbeat.core.clock
    from kit import fingerprint

    assert {Path(drumbeat.core.clock.__file__), Path(fingerprint.__file__)} <= {*fingerprint.loaded_files()}
