"""Writes the part of docs/cli.md that lists every command: python tests/docs/cli_page.py"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from drumbeat.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
MARK = "<!-- From here on written by: python tests/docs/cli_page.py -->\n"
COMPLETION = ("--install-completion", "--show-completion")  #: Typer's own, in words of its own


def commands(command: Any = None, name: str = "drumbeat") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word in sorted(inner):
        yield from commands(inner[word], f"{name} {word}")


def options(command: Any) -> list[Any]:
    """What a command takes, in the order of its help; what all of Typer's commands take is left out."""
    return [each for each in command.params if not set(each.opts) & {"--help", *COMPLETION}]


def reference() -> str:
    """One section a command."""
    return "\n".join(_section(name, command) for name, command in commands())


def _section(name: str, command: Any) -> str:
    arguments = [each.metavar for each in options(command) if not _is_option(each)]
    heading = " ".join([f"### `{name}", *arguments]) + "`"
    rows = [_row(each) for each in options(command)]
    return "\n".join([heading, "", command.help, "", "| option | meaning | default |", "|---|---|---|", *rows, ""])


def _row(option: Any) -> str:
    spelt = "`, `".join(option.opts) if _is_option(option) else option.metavar
    return f"| `{spelt}` | {option.help} | {_default(option)} |"


def _is_option(parameter: Any) -> bool:
    return bool(parameter.opts[0].startswith("-"))


def _default(option: Any) -> str:
    if option.required:
        return "required"
    return "–" if option.default is None or option.default is False else f"`{option.default}`"


def main() -> None:
    """Write the page anew; what stands above the mark is left as it is."""
    by_hand, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"expected the line {MARK.strip()!r} in {PAGE}; put it where the commands should begin")
    PAGE.write_text(by_hand + mark + "\n" + reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
