"""A run as Markdown, for a pull request or a wiki."""

from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.report import facts
from drumbeat.bench.results.report.escape import markdown as plain
from drumbeat.bench.results.report.table import ReportTable


def markdown(record: RunRecord) -> str:
    parts = [
        f"# {plain(facts.title(record))}",
        f"**{plain(facts.verdict(record))}**",
        "\n".join(f"- {name}: {plain(text)}" for name, text in facts.header(record).items()),
        "\n".join(f"> {plain(warning)}" for warning in facts.warnings(record)),
        _figures(record).as_markdown(),
        *_sections(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _figures(record: RunRecord) -> ReportTable:
    return ReportTable(head=("figure", "value", ""), rows=[(tile.label, tile.value, tile.note) for tile in facts.tiles(record)])


def _sections(record: RunRecord) -> list[str]:
    tables = {
        "Objectives": facts.objectives(record),
        "By kind": facts.kinds(record),
        "Steps": facts.steps(record),
        "By worker": facts.workers(record),
        "Errors": facts.errors(record),
        "Decisions": facts.decisions(record),
        "Cost": facts.cost(record),
    }
    return [f"## {heading}\n\n{table.as_markdown()}" for heading, table in tables.items() if table]
