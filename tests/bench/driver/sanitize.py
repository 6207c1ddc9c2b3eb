"""The C core under AddressSanitizer and UndefinedBehaviorSanitizer: builds it apart, runs its tests and its fuzzer.

``make sanitize``; ``--seed N --rounds 1 --no-tests`` runs one of the fuzzer's rounds again.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CORE = ROOT / "src/drumbeat/bench/driver/core.c"
HOOKS, FUZZER = HERE / "core_hooks.c", HERE / "core_fuzz.py"
TESTS = (HERE / "test_cores.py", HERE / "test_engine.py")
LIBRARY_VARIABLE = "DRUMBEAT_TEST_CORE"  #: conftest.py has the tests use the library it names
WRAPPED = ("clock_gettime", "timerfd_settime", "epoll_wait", "recv", "calloc", "realloc", "free")
FLAGS = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined,float-cast-overflow,float-divide-by-zero", "-fno-sanitize-recover=all"),
    *(f"-Wl,--wrap={name}" for name in WRAPPED),
)


class CannotSanitize(Exception):
    """There is no compiler here, or no sanitizer; the message says which."""


@dataclass(frozen=True, slots=True)
class Sanitized:
    """The core with its checks, and what must be loaded before it."""

    library: Path
    runtime: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Python gives back no memory at its end, so leaks are not looked for; the fuzzer counts what the core holds."""
        options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
        return {**os.environ, **options, "LD_PRELOAD": str(self.runtime), LIBRARY_VARIABLE: str(self.library)}

    def fuzz(self, *options: str) -> list[str]:
        return [sys.executable, str(FUZZER), str(self.library), *options]

    def tests(self) -> list[str]:
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, TESTS)]


def build(folder: Path) -> Sanitized:
    """Compile the core into this folder. Raises CannotSanitize where nothing could be compiled like that."""
    compiler = next((path for name in (os.environ.get("CC"), "gcc", "cc") if name and (path := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        raise CannotSanitize("there is no C compiler for Linux: neither gcc nor cc was found")
    trial = [compiler, *FLAGS, "-o", str(folder / "trial.so"), "-x", "c", "-"]
    tried = subprocess.run(trial, input="int answer = 42;\n", capture_output=True, text=True, check=False)
    if tried.returncode:
        raise CannotSanitize(f"{compiler} cannot build with sanitizers: {tried.stderr.strip()[-300:]}")
    asked = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    runtime = Path(asked.stdout.strip())
    if not runtime.is_absolute():
        raise CannotSanitize(f"{compiler} has no libasan.so that Python could load first")
    library = folder / "core_sanitized.so"
    subprocess.run([compiler, *FLAGS, "-o", str(library), str(CORE), str(HOOKS)], check=True)
    return Sanitized(library, runtime.resolve())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=10_000_000, help="how many the fuzzer has the core send and read")
    options.add_argument("--seed", type=int, default=1, help="of the fuzzer's first round")
    options.add_argument("--rounds", type=int, help="end the fuzzer after this many rounds")
    options.add_argument("--no-tests", action="store_true", help="only the fuzzer")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            sanitized = build(Path(folder))
        except CannotSanitize as exc:
            print(f"skipped: {exc}")
            return 0
        fuzz = sanitized.fuzz("--messages", str(chosen.messages), "--seed", str(chosen.seed))
        rounds = ["--rounds", str(chosen.rounds)] if chosen.rounds else []
        for command in ([] if chosen.no_tests else [sanitized.tests()]) + [[*fuzz, *rounds]]:
            ended = subprocess.run(command, env=sanitized.environment, cwd=ROOT, check=False)
            if ended.returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
