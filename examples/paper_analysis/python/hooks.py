"""The actions of the analyzer machine, for one paper."""

import os
import sys
from pathlib import Path
from typing import Any

from flatmachines import MachineHooks

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from analysis import summarize  # noqa: E402 - imported from this folder, wherever the worker was started
from paper_queue import PaperQueue  # noqa: E402

DATA = Path(os.environ.get("EXAMPLE_DATA", HERE.parent / "data"))


class PaperHooks(MachineHooks):
    """``analyze_paper`` and ``write_summary``; errors are written to ``paper_queue.error``."""

    def __init__(self) -> None:
        self._queue = PaperQueue(DATA / "papers.sqlite")

    def on_action(self, state_name: str, action_name: str, context: dict[str, Any]) -> dict[str, Any]:
        if action_name == "analyze_paper":
            text = Path(context["job"]["text_path"]).read_text(encoding="utf-8")
            return context | {"summary": summarize(text)}
        if action_name == "write_summary":
            return context | {"summary_path": str(self._write(context["job"]["paper_id"], context["summary"]))}
        return context

    def on_error(self, state_name: str, error: Exception, context: dict[str, Any]) -> str | None:
        self._queue.failed(context["job"]["paper_id"], f"{type(error).__name__}: {error}")
        return None

    def _write(self, paper_id: int, summary: dict[str, Any]) -> Path:
        """Write the file completely, then rename it, then record its path in the table."""
        file = DATA / "summaries" / f"{paper_id}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        sentences = "\n".join(f"- {sentence}" for sentence in summary["summary"])
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(
            f"# {summary['title']}\n\nKeywords: {', '.join(summary['keywords'])}\n\n{sentences}\n", encoding="utf-8"
        )
        unfinished.replace(file)
        self._queue.summarized(paper_id, file)
        return file


class JsonValidationHooks(MachineHooks):
    """``validate_summary``: a summary has a title, keywords and sentences."""

    def on_action(self, state_name: str, action_name: str, context: dict[str, Any]) -> dict[str, Any]:
        if action_name == "validate_summary":
            missing = [key for key in ("title", "keywords", "summary") if not context["summary"].get(key)]
            if missing:
                raise ValueError(f"the summary has no {', '.join(missing)}")
        return context
