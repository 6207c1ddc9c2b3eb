"""Writes the part of docs/api.md that lists every route: python tests/docs/api_page.py"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drumbeat.web.app import make_api

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
MARK = "<!-- From here on written by: python tests/docs/api_page.py -->\n"
_COMMON = {"400", "401", "403", "413", "415", "421", "422", "429", "503"}


def schema() -> dict[str, Any]:
    """The API's own description."""
    return make_api().openapi()


def operations(told: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every method, path and operation, by the first of its tags."""
    found = [
        (method.upper(), path, operation) for path, methods in told["paths"].items() for method, operation in methods.items()
    ]
    yield from sorted(found, key=lambda each: (each[2]["tags"][0], each[1], each[0]))


def reference() -> str:
    """A section for each noun, a heading for each route, then the shapes."""
    told = schema()
    lines: list[str] = []
    tag = None
    for method, path, operation in operations(told):
        if operation["tags"][0] != tag:
            tag = operation["tags"][0]
            lines += [f"## {tag.capitalize()}", ""]
        lines += [*_route(method, path, operation), ""]
    lines += ["## Shapes", "", "A field with a star must be there.", ""]
    for name, shape in sorted(told["components"]["schemas"].items()):
        lines += [*_shape(name, shape), ""]
    return "\n".join(lines)


def _route(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method} {path}`"
    yield ""
    yield " ".join((operation.get("description") or operation["summary"]).split())
    parameters = [each for each in operation.get("parameters", ()) if each["name"] != "Idempotency-Key"]
    if parameters or "requestBody" in operation:
        yield ""
        yield "| given | where | type | meaning |"
        yield "|---|---|---|---|"
        yield from (_parameter(each) for each in parameters)
    if "requestBody" in operation:
        yield f"| | body | {_type(_json(operation['requestBody']))} | |"
    yield ""
    answers = sorted(each for each in operation["responses"].items() if each[0] not in _COMMON)
    yield "Answers: " + ", ".join(_answer(status, each) for status, each in answers)


def _answer(status: str, answer: dict[str, Any]) -> str:
    content = answer.get("content", {})
    if status >= "300":
        return f"{status} {answer['description'][0].lower()}{answer['description'][1:]}"
    if list(content) == ["application/json"]:
        return f"{status} {_type(_json(answer))}"
    return f"{status} " + (", ".join(f"`{each}`" for each in content) or "nothing")


def _json(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = part.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _parameter(parameter: dict[str, Any]) -> str:
    shape = parameter["schema"]
    star = "*" if parameter.get("required") else ""
    default = f" Default: `{shape['default']}`." if shape.get("default") is not None else ""
    meaning = (parameter.get("description") or shape.get("description") or "") + default
    return f"| `{parameter['name']}`{star} | {parameter['in']} | {_type(shape)} | {meaning.strip()} |"


def _shape(name: str, shape: dict[str, Any]) -> Iterator[str]:
    yield f"### `{name}`"
    yield ""
    if "enum" in shape:
        yield "One of " + ", ".join(f"`{each}`" for each in shape["enum"]) + "."
        return
    yield " ".join(shape.get("description", "").split())
    fields = shape.get("properties", {})
    if fields:
        yield ""
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        for field, kind in fields.items():
            star = "*" if field in shape.get("required", ()) else ""
            yield f"| `{field}`{star} | {_type(kind)} | {kind.get('description', '')} |"


def _type(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        return f"`{shape['$ref'].rpartition('/')[2]}`"
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_type(each) for each in shape["anyOf"]))
    if "enum" in shape:
        return " or ".join(f"`{each}`" for each in shape["enum"])
    if "const" in shape:
        return f"`{shape['const']}`"
    if shape.get("type") == "array":
        return f"list of {_type(shape.get('items', {}))}"
    return str(shape.get("format") or shape.get("type") or "any JSON")


def main() -> None:
    """Write the page anew; what stands above the mark is left as it is."""
    by_hand, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"expected the line {MARK.strip()!r} in {PAGE}; put it where the routes should begin")
    PAGE.write_text(by_hand + mark + "\n" + reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
