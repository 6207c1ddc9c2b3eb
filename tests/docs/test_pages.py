"""What the pages point to is there: files, headings, commands, make targets, extras, the version."""

import re
import tomllib
from pathlib import Path

import pytest

from docs.cli_page import commands
from docs.pages import PAGES, ROOT
from drumbeat import __version__

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^\$ |`|run: |^)drumbeat ((?:[a-z]+ ?)+)", re.MULTILINE)
MAKE = re.compile(r"(?:^|`)make ([a-z]+)", re.MULTILINE)

pages = pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)


def anchors(file: Path) -> set[str]:
    """The headings of a page, as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pages
def test_every_link_leads_somewhere(file: Path) -> None:
    for link in LINK.findall(file.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        aim = (file.parent / target).resolve() if target else file
        assert aim.exists(), link
        assert not anchor or anchor in anchors(aim), link


@pages
def test_every_command_of_a_page_exists(file: Path) -> None:
    names = {name.removeprefix("drumbeat ") for name, _ in commands()}
    groups = {name.split()[0] for name in names}

    for found in COMMAND.findall(file.read_text(encoding="utf-8")):
        words = found.split()
        assert words[0] in groups, found
        assert any(" ".join(words[:length]) in names for length in (1, 2, 3)), found


@pages
def test_every_make_target_of_a_page_exists(file: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert set(MAKE.findall(file.read_text(encoding="utf-8"))) <= targets


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    assert {path.name for path in PAGES if path.parent.name == "docs"} - {"index.md"} <= set(LINK.findall(index))


def test_every_extra_is_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert set(re.findall(r"pip install -e '\.\[(\w+)\]'", readme)) == set(project["optional-dependencies"]) - {"dev"}


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
