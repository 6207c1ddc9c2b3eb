"""The newcomer's guide in CONTRIBUTING.md names files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
JOURNEYS = ("A job, from push to done", "A benchmark run, from template to report", "A fleet's beat, from observe to act")


def stops(journey: str) -> list[str]:
    """The files of one journey, in order."""
    section = GUIDE.split(f"### {journey}\n", 1)[1].split("\n#", 1)[0]
    return [file for line in re.findall(r"^\d+\. (.*)$", section, re.M) for file in re.findall(r"`(src/[^`]+)`", line)]


@pytest.mark.parametrize("journey", JOURNEYS)
def test_every_file_of_a_journey_exists(journey: str) -> None:
    files = stops(journey)

    assert len(files) >= 8
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_a_job_is_followed_from_push_to_done_in_twelve_files() -> None:
    assert len(stops(JOURNEYS[0])) <= 12
