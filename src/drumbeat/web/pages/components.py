"""Building blocks of pages: tables that turn into cards on a phone, tiles, charts, and values as text."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from drumbeat.web.pages.actions import may_change, operators_only
from drumbeat.web.pages.element_names import set_label
from drumbeat.web.pages.sorting import sort_key

Actions = Mapping[str, Callable[[str], Awaitable[object]]]

_HREF, _COLOUR, _RANK = "__href", "__colour", "__rank"
_VALUE = """
<a v-if="props.row[NAME + '__href']" :href="props.row[NAME + '__href']">{{ VALUE }}</a>
<q-badge v-else-if="props.row[NAME + '__colour']" :color="props.row[NAME + '__colour']" text-color="white">{{ VALUE }}</q-badge>
<span v-else>{{ VALUE }}</span>"""
_CELL = f"<q-td :props='props'>{_VALUE.replace('NAME', 'props.col.name').replace('VALUE', 'props.value')}</q-td>"
_SORT = """(a, b, one, other) => {
  const [x, y] = [one, other].map(row => row[NAME] ?? null);
  if (x === null || y === null) return (x === null) - (y === null);
  return typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
}"""  #: browser function that compares two rows; rows without a value come last
_CARD = f"""<div class="col-12 q-pa-xs"><q-card flat bordered><q-card-section class="q-pa-sm">
<div v-for="col in props.cols.filter(c => c.name != 'actions')" :key="col.name" class="row no-wrap q-py-xs">
<div class="col-4 faint text-caption">{{{{ col.label }}}}</div>
<div class="col-8">{_VALUE.replace("NAME", "col.name").replace("VALUE", "col.value")}</div>
</div><!-- actions --></q-card-section></q-card></div>"""
_BUTTONS = """<q-btn v-for="action in ACTIONS" :key="action.name" dense flat no-caps color="primary" :label="action.label"
:aria-label="action.label + ' ' + props.row.row_label" @click="$parent.$emit(action.name, props.row.key)" />"""
_ACTIONS = {"name": "actions", "label": "", "field": "key", "align": "right"}
_BAD = frozenset({"poisoned", "error", "lost"})
_CHANGING = frozenset({"draining", "terminating", "in progress", "stale", "spawning", "starting", "delayed"})
_GOOD = frozenset({"active", "done", "healthy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A table column: how to read its value from a row, and whether to show it as a link or a coloured badge."""

    name: str
    read: Callable[[Any], object]
    label: str | None = None
    href: Callable[[Any], str | None] | None = None
    is_status: bool = False
    colour: Callable[[Any], str] | None = None  #: returns the badge colour of a row; by default it follows from the status
    number: bool = False
    loose: bool = False  #: whether long words may break anywhere


class PageTable:
    """A table whose rows can be replaced without rebuilding the page."""

    def __init__(
        self,
        name: str,
        columns: Sequence[TableColumn],
        key: Callable[[Any], str],
        *,
        actions: Actions | None = None,
        page: int = 0,
    ) -> None:
        """``actions``: buttons of each row, by label; a click calls the function with the row's key. For operators only."""
        actions = actions if may_change() else None
        self._columns, self._key = columns, key
        shown = [*(_column(each) for each in columns), *([_ACTIONS] if actions else [])]
        self.element = ui.table(columns=shown, rows=[], row_key="key", pagination=page or None)
        self.element.props('flat bordered dense wrap-cells :grid="Quasar.Screen.lt.sm"').classes("w-full")
        set_label(self.element, name)
        if not page:
            self.element.props("hide-pagination").props(':rows-per-page-options="[0]"')
        self.element.add_slot("body-cell", _CELL)
        self.element.add_slot("item", _CARD)
        for label, action in (actions or {}).items():
            self._add_action(label, action)
        if actions:
            listed = [{"name": _event(label), "label": label} for label in actions]
            buttons = _BUTTONS.replace("ACTIONS", escape(json.dumps(listed)))
            self.element.add_slot("body-cell-actions", f"<q-td :props='props'>{buttons}</q-td>")
            self.element.add_slot("item", _CARD.replace("<!-- actions -->", buttons))

    def _add_action(self, label: str, action: Callable[[str], Awaitable[object]]) -> None:
        async def clicked(event: GenericEventArguments) -> None:
            await operators_only(lambda: action(str(event.args)))()

        self.element.on(_event(label), clicked)

    def show(self, rows: Sequence[Any]) -> None:
        """Show these rows. Equal rows are not sent again: the browser would rebuild them and lose the keyboard focus."""
        shown = [self._row_data(row) for row in rows]
        if shown != self.element.rows:
            self.element.rows = shown

    def _row_data(self, row: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {"key": self._key(row), "row_label": as_text(self._columns[0].read(row))}
        for each in self._columns:
            shown[each.name] = as_text(value := each.read(row))
            shown[each.name + _RANK] = sort_key(value, number=each.number)
            if each.href is not None:
                shown[each.name + _HREF] = each.href(row)
            if each.is_status and value is not None:
                shown[each.name + _COLOUR] = each.colour(row) if each.colour else colour(str(value))
        return shown


class TableOrPlaceholder:
    """Shows a table, or a placeholder while the table has no rows."""

    def __init__(self, table: PageTable, placeholder: ui.element) -> None:
        self._table, self._placeholder = table, placeholder

    def show(self, rows: Sequence[Any]) -> None:
        self._placeholder.set_visibility(not rows)
        self._table.element.set_visibility(bool(rows))
        self._table.show(rows)


def _event(label: str) -> str:
    return "action_" + label.lower().replace(" ", "_")


def _column(column: TableColumn) -> dict[str, Any]:
    label = column.label or column.name.replace("_", " ")
    return {
        "name": column.name,
        "label": label,
        "field": column.name,
        "align": "right" if column.number else "left",
        "sortable": True,
        ":sort": _SORT.replace("NAME", json.dumps(column.name + _RANK)),
        "classes": "number" if column.number else "loose" if column.loose else "",
    }


def colour(status: str) -> str:
    """Return the badge colour of a status."""
    if status in _BAD:
        return "negative"
    if status in _CHANGING:
        return "warning"
    return "positive" if status in _GOOD else "grey-8"


def badge(status: str) -> ui.badge:
    return ui.badge(status, color=colour(status), text_color="white").classes("q-px-sm q-py-xs")


class FigureTile:
    """A tile that shows one value with its name, and a tooltip if the name needs one."""

    def __init__(self, name: str, hint: str = "") -> None:
        with ui.card().props("flat bordered").classes("tile q-pa-sm gap-0"):
            ui.label(name).classes("text-caption faint")
            self.value = set_label(ui.label(as_text(None)).classes("text-h6 number"), name)
            if hint:
                ui.tooltip(hint)

    def show(self, value: object) -> None:
        self.value.text = as_text(value)


def tiles() -> ui.row:
    return ui.row().classes("w-full gap-2")


def as_text(value: object) -> str:
    """Return a value as text for people: None is –, bool is yes or no, numbers are rounded, dates and durations formatted."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return duration_text(value)
        case float():
            return f"{value:,.2f}".rstrip("0").rstrip(".")
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def duration_text(span: timedelta) -> str:
    """Return a duration in its largest fitting unit, such as ``5 min``."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def text_block(text: str, name: str) -> None:
    """Show preformatted text in a box."""
    box = ui.element("pre").classes("w-full q-pa-sm q-my-none rounded border text-body2").props("tabindex=0")
    with set_label(box, name):
        ui.label(text).classes("font-mono").style("white-space: pre-wrap; overflow-wrap: anywhere")


def short(value: object, most: int = 60) -> str:
    """Return the first line of a value as text, cut to ``most`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= most else line[: most - 1] + "…"


Series = Mapping[str, Sequence[tuple[datetime, float | None]]]
_INK, _LINE = "#7d8590", "rgba(125,133,144,.25)"
COLOURS = ("#3b82c4", "#c2700a", "#2f9e63", "#c4453b", "#8a63c9", "#5f7f8c")


def chart(title: str, series: Series, *, name: str | None = None) -> ui.echart:
    """Add a titled line chart over time, readable on light and dark backgrounds. ``name``: accessible name, else the title."""
    ui.label(title).classes("text-subtitle2").props("role=heading aria-level=3")
    made = ui.echart(chart_options(series)).classes("w-full").style("height: 240px")
    return set_label(made.props("role=img"), name or title)


def _millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def chart_options(series: Series) -> dict[str, Any]:
    """Return the ECharts options of lines over time (UTC) that change in steps."""
    axis = {"axisLabel": {"color": _INK}, "splitLine": {"lineStyle": {"color": _LINE}}}
    lines = [
        {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "step": "end",
            "data": tuple((_millis(at), value) for at, value in points),
        }
        for name, points in series.items()
    ]
    return {
        "animation": False,
        "color": list(COLOURS),
        "useUTC": True,
        "grid": {"left": 52, "right": 16, "top": 36, "bottom": 28},
        "legend": {"textStyle": {"color": _INK}, "top": 0, "type": "scroll"},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time", **axis},
        "yAxis": {"type": "value", "min": 0, **axis},
        "series": lines,
    }
