"""Log lines on standard error: while the block runs, and nothing is left of it afterwards."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drumbeat.runtime.log_output import logging_to_stderr

OWN = logging.getLogger("drumbeat.test_log_output")


@contextmanager
def bare_root(*handlers: logging.Handler) -> Iterator[logging.Logger]:
    """Logging with these handlers, or as nobody has set it up: pytest's own are away inside the block."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, list(handlers)
    try:
        yield root
    finally:
        root.handlers = before


def test_log_lines_go_to_standard_error_from_a_level_up(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root(), logging_to_stderr(logging.INFO):
        OWN.debug("too little")
        OWN.info("enough")

    said = capsys.readouterr().err
    assert said.endswith("INFO drumbeat.test_log_output: enough\n")
    assert "too little" not in said


def test_after_the_block_logging_is_as_it_was() -> None:
    with bare_root() as root:
        before = root.level
        with logging_to_stderr(logging.DEBUG):
            inside = (len(root.handlers), root.level)
        after = (len(root.handlers), root.level)

    assert (inside, after) == ((1, logging.DEBUG), (0, before))


def test_a_program_that_has_set_up_its_logging_keeps_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with bare_root(caplog.handler) as root:
        before = root.level
        with logging_to_stderr(logging.DEBUG):
            OWN.error("for the program")
            inside = (root.handlers, root.level)

    assert inside == ([caplog.handler], before)
    assert caplog.messages == ["for the program"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("library", ["asyncssh", "httpx"])
def test_what_a_library_says_of_each_request_is_left_out_but_its_warnings_are_not(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger(library)
    with bare_root(), logging_to_stderr(logging.INFO):
        log.info("Request: GET")
        log.warning("slow")

    said = capsys.readouterr().err
    assert said.endswith(f"WARNING {library}: slow\n")
    assert "Request" not in said
