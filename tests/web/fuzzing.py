"""The whole API under schemathesis: a real server in a process of its own, furnished, with its every route tried."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.given import environment
from drumbeat.web.app import make_api
from web.given import KEY, TOKEN, furnish, web

TRIGGERS = "triggers:\n  - name: nightly\n    type: cron\n    schedule: '0 3 * * *'\n    machine: stale_worker_reaper\n"
#: what is asked of every answer. Of ``positive_data_acceptance`` nothing: a document may be well formed and its database away.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """What came of it."""

    cases: int
    code: int
    said: str


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A furnished server's address; nobody conducts its runs."""
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_furnished(folder))
    (folder / "triggers.yml").write_text(TRIGGERS)
    variables = environment(DRUMBEAT_TOKEN=TOKEN, DRUMBEAT_KEY=KEY, DRUMBEAT_STATE_DIR=str(folder / "state"))
    command = (sys.executable, "-m", "drumbeat", "serve", "--port", "0", "--no-conduct")
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(30)


async def _furnished(folder: Path) -> None:
    async with web(folder) as made:
        await furnish(made)


def fuzz(
    address: str, folder: Path, examples: int, phases: str = "examples,coverage,fuzzing,stateful", seed: int = 1
) -> Fuzzed:
    """Try every operation that many times in each phase. Chance is seeded: the same again is the same again."""
    report = folder / f"report-{seed}.json"
    described = folder / "openapi.json"
    described.write_text(json.dumps(make_api().openapi()))
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(described), "--url", address]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--checks", ",".join(CHECKS), "--phases", phases]
    command += ["--max-examples", str(examples), "--seed", str(seed), "--generation-deterministic", "--workers", "2"]
    command += ["--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "60", "--continue-on-failure"]
    command += ["--report", "json", "--report-json-path", str(report)]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONWARNINGS": "ignore"}, capture_output=True, text=True)
    return Fuzzed(cases=_cases(done.stdout), code=done.returncode, said=done.stdout + done.stderr)


def _cases(said: str) -> int:
    found = re.findall(r"([\d,]+) generated", said)
    return int(found[-1].replace(",", "")) if found else 0


def main() -> None:
    """By hand: python -m web.fuzzing FOLDER EXAMPLES"""
    folder = Path(sys.argv[1])
    with serving(folder) as address:
        found = fuzz(address, folder, int(sys.argv[2]))
    print(found.said[-6000:])
    print(json.dumps({"cases": found.cases, "code": found.code}))


if __name__ == "__main__":
    main()
