"""Nothing that comes from data reaches a place where the browser would run it."""

import ast
from collections.abc import Iterator

import pytest

from web.test_look import nodes

PARSED = ("props", "classes", "style")  #: of an element; what stands in their text may be evaluated by the browser
RUN = ("run_javascript", "add_head_html", "add_body_html", "html", "markdown", "add_slot")
KNOWN = {  #: made of our own constants alone, as their functions show
    "f'rail {colour}'",
    "f'worker {state}'",
    "f'bubble {self._state(position, run, missed=missed)}'",
    "size",
    "page_head()",
    "f\"<q-td :props='props'>{buttons}</q-td>\"",
    "_CARD.replace('<!-- actions -->', buttons)",
    "f'() => getElement({upload.id}).$refs.qRef.pickFiles()'",
}


def given(call: ast.Call) -> Iterator[ast.expr]:
    """What is given to a place that is parsed or run."""
    if not isinstance(call.func, ast.Attribute):
        return
    if call.func.attr in (*PARSED, *RUN):
        yield from call.args
        yield from (each.value for each in call.keywords if each.arg in (None, "add", "remove", "replace"))
    yield from (each.value for each in call.keywords if each.arg == "js_handler")


def is_ours(text: ast.expr) -> bool:
    """Whether it is made of constants alone."""
    match text:
        case ast.Constant():
            return True
        case ast.IfExp():
            return is_ours(text.body) and is_ours(text.orelse)
        case ast.BinOp():
            return is_ours(text.left) and is_ours(text.right)
        case ast.Name():
            return text.id.isupper() or text.id in KNOWN
        case _:
            return ast.unparse(text) in KNOWN


def unsafe(found: Iterator[tuple[str, ast.AST]]) -> list[str]:
    calls = ((file, node) for file, node in found if isinstance(node, ast.Call))
    return [f"{file}: {ast.unparse(each)}" for file, call in calls for each in given(call) if not is_ours(each)]


def test_no_text_that_the_browser_may_run_is_made_of_data() -> None:
    looked_at = [each for _, node in nodes() if isinstance(node, ast.Call) for each in given(node)]

    assert len(looked_at) > 50
    assert unsafe(nodes()) == []


def test_no_template_of_ours_has_its_values_read_as_html() -> None:
    told = [str(node.value) for _, node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)]

    assert any("<q-" in each for each in told)
    assert [each for each in told if "v-html" in each or "innerHTML" in each or "options-html" in each] == []


@pytest.mark.parametrize(
    "line",
    [
        "element.props(f'aria-label=\"{name}\"')",
        "element.props('aria-label=' + name)",
        "element.classes(replace=name)",
        "element.style(f'height: {height}px')",
        "ui.run_javascript('go(%s)' % name)",
        "ui.html(name)",
        "button.on('click', js_handler=f'() => go({name})')",
    ],
)
def test_data_in_such_a_text_is_found(line: str) -> None:
    assert unsafe(("a page", node) for node in ast.walk(ast.parse(line)))
