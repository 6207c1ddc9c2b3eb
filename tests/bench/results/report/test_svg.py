"""Every text that goes into a chart comes back out of it, whatever it holds."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from drumbeat.bench.results.report.svg import Axis, Band, Chart, ChartSeries, Mark, SeriesShape, figure, svg

HOSTILE = "<&\">'"
SVG = "{http://www.w3.org/2000/svg}"


def text(field: str) -> str:
    return f"{field} {HOSTILE}"


def chart(shape: SeriesShape, axis: Axis) -> Chart:
    points = [(1.0, 1.0), (2.0, 3.0), (60.0, 2.0)]
    return Chart(
        title=text("title"),
        unit=text("unit"),
        across=text("across"),
        axis=axis,
        series=[ChartSeries(name=text("series"), points=points, colour=1, shape=shape)],
        marks=[
            Mark(label=text("upright"), x=2.0, drawn=text("drawn")),
            Mark(label=text("level"), y=2.0),
            Mark(label=text("below"), y=2.5, below=True),
        ],
        bands=[Band(label=text("band"), begin=1.0, end=60.0)],
    )


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup.replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter() if each.tag.removeprefix(SVG) in ("text", "title", "figcaption")]


@pytest.mark.parametrize("axis", list(Axis))
@pytest.mark.parametrize("shape", list(SeriesShape))
def test_every_label_comes_back_as_it_was_given(shape: SeriesShape, axis: Axis) -> None:
    root = parsed(svg(chart(shape, axis)))

    found = texts(root)
    assert root.get("aria-label") == text("title")
    assert {text(each) for each in ("unit", "across", "upright", "drawn", "level", "below", "band")} <= set(found)
    assert all(HOSTILE in each for each in found if "<" in each)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        "svg", "text", "title", "line", "rect", "circle", "polyline", "polygon",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        (SeriesShape.POINTS, Axis.EVEN),
        (SeriesShape.LINE, Axis.TIME),
        (SeriesShape.AREA, Axis.TIME),
        (SeriesShape.POINTS, Axis.LOG),
    ],
)
def test_a_series_name_comes_back_under_the_pointer(shape: SeriesShape, axis: Axis) -> None:
    found = texts(parsed(svg(chart(shape, axis))))

    assert sum(text("series") in each for each in found) == 3


@pytest.mark.parametrize("mark", [{"x": 2.0, "drawn": text("drawn")}, {"y": 2.0}, {"y": 2.0, "below": True}])
def test_a_label_of_each_mark_is_told_under_the_pointer(mark: dict[str, object]) -> None:
    drawn = replace(chart(SeriesShape.LINE, Axis.EVEN), marks=[Mark(label=text("mark"), **mark)])  # type: ignore[arg-type]

    titles = [each.text for each in parsed(svg(drawn)).iter(f"{SVG}title")]

    assert text("mark") in titles


def test_the_figure_around_a_chart_holds_its_title_and_legend() -> None:
    root = ElementTree.fromstring(figure(chart(SeriesShape.LINE, Axis.TIME)))

    assert root.findtext("figcaption") == text("title")
    assert ["".join(each.itertext()) for each in root.iter("li")] == [text("series")]
