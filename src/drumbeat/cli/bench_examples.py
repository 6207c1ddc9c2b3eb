"""drumbeat bench examples: templates to begin with, written into a folder."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.render import say
from drumbeat.core.errors import InvalidInput

app = typer.Typer()

PREPARE = "drumbeat bench prepare sqlite:///target.db --workload mixed"


def example_templates() -> dict[str, str]:
    """The templates that come with Drumbeat, by the name of their file."""
    found = [each for each in files("drumbeat.bench").joinpath("examples").iterdir() if each.name.endswith(".yaml")]
    return {each.name: each.read_text(encoding="utf-8") for each in sorted(found, key=lambda each: each.name)}


@app.command("examples")
def examples(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to write them.")] = Path("examples"),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there and differ.")] = False,
) -> None:
    """Write example templates into a folder, and say what to prepare before one is run."""
    templates = example_templates()
    _refuse_changed(folder, templates, force=force)
    for name, text in templates.items():
        _write(folder / name, text)
        say(f"{folder / name}: {text.splitlines()[0].removeprefix('# ')}")
    say("\nThey load a table in the file target.db. Create it once, in the folder you run them from:", style="bold")
    say(f"  {PREPARE}")
    say("Then run one, and open it in the dashboard:", style="bold")
    say(f"  drumbeat bench run {folder / 'find-max.yaml'} --report knee.html")
    say("  drumbeat serve")


def _refuse_changed(folder: Path, templates: dict[str, str], *, force: bool) -> None:
    """Raises InvalidInput where a file would be lost."""
    changed = [] if force else [name for name, text in templates.items() if _differs(folder / name, text)]
    if changed:
        raise InvalidInput(
            f"expected no other files in {str(folder)!r}, got {', '.join(changed)} with other content; "
            "name another folder, or replace them with --force"
        )


def _differs(file: Path, text: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _write(file: Path, text: str) -> None:
    """Leave a file that is there already as it is. Raises InvalidInput."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if _differs(file, text) or not file.exists():
            file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"expected to write the example {str(file)!r}, got: {exc.strerror}; name another folder") from exc
