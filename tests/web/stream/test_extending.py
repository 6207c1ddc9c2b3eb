"""What a chart sends while a run goes on: what is new, and no more."""

import json
from typing import Any

import pytest

from bench.recorded import seconds
from drumbeat.bench.model import RunPlan
from drumbeat.bench.results.curves import curves_of
from drumbeat.web.pages.incremental_charts import extension
from drumbeat.web.pages.run_live.charts import CHARTS


def drawn(*values: float, first: int = 0, **more: Any) -> dict[str, Any]:
    data = tuple((first + n, value) for n, value in enumerate(values))
    return {"legend": {}, "series": [{"name": "operations", "data": data, **more}]}


def grown(before: dict[str, Any], told: list[dict[str, Any]]) -> list[Any]:
    """The lines as the browser puts them together."""
    parts = zip(before["series"], told, strict=True)
    return [[*line["data"][each["drop"] : each["drop"] + each["keep"]], *each["add"]] for line, each in parts]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(drawn(1, 2, 3), drawn(1, 2, 3, 4), {"drop": 0, "keep": 3, "add": ((3, 4),)}, id="one more"),
        pytest.param(drawn(1, 2, 3), drawn(1, 2, 9, 4), {"drop": 0, "keep": 2, "add": ((2, 9), (3, 4))}, id="the last changes"),
        pytest.param(drawn(1, 2, 3), drawn(2, 3, 4, first=1), {"drop": 1, "keep": 2, "add": ((3, 4),)}, id="the first goes"),
        pytest.param(
            drawn(1, 2, markArea=1), drawn(1, 2, markArea=2), {"drop": 0, "keep": 2, "add": (), "area": 2}, id="a phase lasts"
        ),
    ],
)
def test_only_what_is_new_is_sent(before: dict[str, Any], after: dict[str, Any], told: dict[str, Any]) -> None:
    found = extension(before, after)

    assert found == [told]
    assert grown(before, found) == [list(line["data"]) for line in after["series"]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, drawn(1), id="the first time"),
        pytest.param(drawn(1, 2), {**drawn(1, 2, 3), "legend": {"top": 1}}, id="another frame"),
        pytest.param(drawn(1, 2), {"legend": {}, "series": drawn(1, 2)["series"] * 2}, id="another line"),
        pytest.param(drawn(1, 2, 3), drawn(7, 8, 9), id="all is new"),
        pytest.param(drawn(1), {"legend": {}, "series": []}, id="no line"),
    ],
)
def test_what_is_mostly_new_is_sent_whole(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    assert extension(before, after) is None


@pytest.mark.parametrize("since", [60, 2000])
def test_an_update_of_a_long_run_is_small_and_draws_the_same(since: int) -> None:
    """Over half a minute of updates, all charts together; sent whole they are as many times more."""
    whole, told = 0, 0
    course = seconds(1, length=since + 30)
    curves = curves_of(course[:since])
    before = {name: chart(curves, RunPlan()) for name, chart in CHARTS.items()}
    for n in range(since + 1, since + 31):
        curves = curves_of(course[:n])
        for name, chart in CHARTS.items():
            after = chart(curves, RunPlan())
            found = extension(before[name], after)
            assert found is not None
            assert grown(before[name], found) == [list(line["data"]) for line in after["series"]]
            whole, told, before[name] = whole + len(json.dumps(after)), told + len(json.dumps(found)), after

    assert told / 30 < 2_500
    assert whole > 5 * told
