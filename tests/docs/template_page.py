"""Writes the part of docs/templates.md that lists every field: python tests/docs/template_page.py"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from drumbeat.bench.templates import TemplateDocument
from drumbeat.bench.workloads.value_sources import documented

PAGE = Path(__file__).parents[2] / "docs" / "templates.md"
MARK = "<!-- From here on written by: python tests/docs/template_page.py -->\n"


def fields(block: type[BaseModel] = TemplateDocument, path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field that holds a value, by its path; a name of the user's own is KIND, a place in a list is N."""
    for name, info in block.model_fields.items():
        inner, step = _block_within(info.annotation)
        if inner is None:
            yield f"{path}{name}", info
        else:
            yield from fields(inner, f"{path}{name}{step}.")


def _block_within(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    name = getattr(annotation, "__name__", "")
    for each in get_args(annotation):
        inner, step = _block_within(each)
        if inner is not None:
            return inner, {"dict": ".KIND", "list": ".N"}.get(name, "") + step
    return None, ""


def reference() -> str:
    """One table of fields, one of the sources of values."""
    return "\n".join([_fields_table(), "## Value sources", "", _sources_table()])


def _sources_table() -> str:
    rows = [
        f"| {f'`{name}`' if not field else ''} | {f'`{field}`' if field else ''} | {_plain(field, default)} | {meaning} |"
        for name, field, default, meaning in documented()
    ]
    return "\n".join(["| source | field | default | meaning |", "|---|---|---|---|", *rows, ""])


def _plain(field: str, default: str) -> str:
    if not field:
        return ""
    return {"": "required", "None": "–"}.get(default, f"`{default}`")


def _fields_table() -> str:
    rows = [f"| `{path}` | {_default(info)} | {info.description or '–'} |" for path, info in fields()]
    return "\n".join(["| field | default | meaning |", "|---|---|---|", *rows, ""])


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=True)
    if default is None or default in ({}, []):
        return "–"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def main() -> None:
    """Write the page anew; what stands above the mark is left as it is."""
    by_hand, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"expected the line {MARK.strip()!r} in {PAGE}; put it where the fields should begin")
    PAGE.write_text(by_hand + mark + "\n" + reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
