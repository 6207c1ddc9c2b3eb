"""The C core keeps to its memory, and does as the Python core does, whatever is fed, answered and cut off."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.driver.sanitize import CannotSanitize, Sanitized, build
from thorough import THOROUGH

MESSAGES = 3_000_000 if THOROUGH else 200_000  #: make sanitize does ten million


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    try:
        return build(tmp_path_factory.mktemp("sanitized"))
    except CannotSanitize as exc:
        pytest.skip(str(exc))


def test_both_cores_send_and_record_the_same_and_the_c_core_touches_no_memory_but_its_own(sanitized: Sanitized) -> None:
    command = sanitized.fuzz("--messages", str(MESSAGES))

    ended = subprocess.run(command, env=sanitized.environment, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, f"{ended.stdout[-200:]}\n{ended.stderr[-6000:]}"
    assert ended.stdout.splitlines()[-1].startswith("clean: ")


def test_a_read_of_memory_that_was_given_back_is_noticed(sanitized: Sanitized) -> None:
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from random import Random
from bench.driver.core_fuzz import Fuzzed, Half, block
from drumbeat.bench.driver.core_c import CCore
fuzzed = Fuzzed(Path({str(sanitized.library)!r}))
half = Half(CCore(1), None)
half.connect(0, 0)
half.core.accept(True)
half.core.feed(block(Random(1), fuzzed.pool))
half.core._fed.clear()
half.core.run(1_000_000)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], env=sanitized.environment, capture_output=True, text=True, check=False
    )

    assert "heap-use-after-free" in ended.stderr
