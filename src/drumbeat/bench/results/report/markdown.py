"""A run's report as Markdown, for a pull request or a wiki."""

from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.report import content
from drumbeat.bench.results.report.escape import markdown as plain
from drumbeat.bench.results.report.table import ReportTable


def markdown(record: RunRecord) -> str:
    parts = [
        f"# {plain(content.title(record))}",
        f"**{plain(content.verdict(record))}**",
        plain(" ".join(content.summary(record))),
        "\n".join(f"- {name}: {plain(text)}" for name, text in content.header(record).items()),
        "\n".join(f"> {plain(warning)}" for warning in content.warnings(record)),
        _figures(record).as_markdown(),
        *_sections(record),
        _explanation(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _explanation(record: RunRecord) -> str:
    found = content.explanation(record)
    if found is None:
        return ""
    text = "\n\n".join(f"> {plain(line)}" for line in found.text.splitlines())
    return "\n\n".join(
        part
        for part in ("## Explanation by a language model (AI)", f"*{plain(found.label)}*", text, plain(found.warning))
        if part
    )


def _figures(record: RunRecord) -> ReportTable:
    return ReportTable(
        head=("figure", "value", ""), rows=[(tile.label, tile.value, tile.note) for tile in content.tiles(record)]
    )


def _sections(record: RunRecord) -> list[str]:
    tables = {
        "Objectives": content.objectives(record),
        "By kind": content.kinds(record),
        "Steps": content.steps(record),
        "By worker": content.workers(record),
        "Errors": content.errors(record),
        "Decisions": content.decisions(record),
        "Cost": content.cost(record),
    }
    return [f"## {heading}\n\n{table.as_markdown()}" for heading, table in tables.items() if table]
