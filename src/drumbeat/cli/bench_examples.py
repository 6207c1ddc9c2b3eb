"""drumbeat bench examples: writes example templates into a folder."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.render import say
from drumbeat.core.errors import InvalidInput

app = typer.Typer()

PREPARE = "drumbeat bench prepare sqlite:///target.db --workload mixed"


def example_templates() -> dict[str, str]:
    """Return the text of the example templates shipped with Drumbeat, by file name."""
    found = [each for each in files("drumbeat.bench").joinpath("examples").iterdir() if each.name.endswith(".yaml")]
    return {each.name: each.read_text(encoding="utf-8") for each in sorted(found, key=lambda each: each.name)}


@app.command("examples")
def examples(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder to write the templates into.")] = Path("examples"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files that differ.")] = False,
) -> None:
    """Write example templates into a folder, and print the commands to run them."""
    templates = example_templates()
    _refuse_changed(folder, templates, force=force)
    for name, text in templates.items():
        _write(folder / name, text)
        say(f"{folder / name}: {text.splitlines()[0].removeprefix('# ')}")
    say("\nThe examples use a table in the file target.db. Create it once, in the folder you run them from:", style="bold")
    say(f"  {PREPARE}")
    say("Then run an example and open it in the dashboard:", style="bold")
    say(f"  drumbeat bench run {folder / 'find-max.yaml'} --report knee.html")
    say("  drumbeat serve")


def _refuse_changed(folder: Path, templates: dict[str, str], *, force: bool) -> None:
    """Raise InvalidInput if a file that the user has edited would be overwritten."""
    changed = [] if force else [name for name, text in templates.items() if _differs(folder / name, text)]
    if changed:
        raise InvalidInput(
            f"folder {str(folder)!r} has files that differ from the examples: {', '.join(changed)}; "
            "choose another folder, or overwrite them with --force"
        )


def _differs(file: Path, text: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _write(file: Path, text: str) -> None:
    """Write a file unless it already has this text. Raises InvalidInput if it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if _differs(file, text) or not file.exists():
            file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"cannot write the example {str(file)!r}: {exc.strerror}; choose another folder") from exc
