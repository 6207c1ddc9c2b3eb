"""drumbeat bench explain: explains the results of a run in words."""

from dataclasses import dataclass
from typing import Any

import typer

from drumbeat.bench.model import RunExplanation, explanation_document, stored_explanation
from drumbeat.cli.bench_outcome import print_explanation
from drumbeat.cli.bench_runs import RunArgument
from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import errors, say, show_json
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidSettings, LanguageModelFailed, MissingExtra
from drumbeat.core.run import RunId

app = typer.Typer()

_NOT_SET_UP = "no language model is set up; to get its explanation too, add the table [language_model] to drumbeat.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    summary: tuple[str, ...]
    explanation: RunExplanation | None  #: the new explanation; if there is none, the one stored with the run
    error: str | None  #: why there is no new explanation, if one was asked for


@app.command("explain")
def explain(run_id: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Explain an ended run in words: its summary, and what the language model writes about it, if one is set up.

    The language model gets figures only, and its text is stored with the run. Exit code 1 if the language model fails; the
    summary is printed even then.
    """
    found = with_control_plane(store, lambda plane: _words(plane, RunId(run_id)))
    if as_json:
        show_json(_document(run_id, found))
    else:
        _print(found)
    if found.error is not None:
        errors.print(found.error, style="red", soft_wrap=True)
        raise typer.Exit(1)


async def _words(plane: ControlPlane, run_id: RunId) -> _Words:
    bench, run = plane.bench(), await plane.store.runs.get(run_id)
    summary, earlier = await bench.summary(run), stored_explanation(run)
    if not plane.settings.language_model:
        return _Words(summary=summary, explanation=earlier, error=None)
    try:
        return _Words(summary=summary, explanation=await bench.explain(run_id), error=None)
    except (LanguageModelFailed, InvalidSettings, MissingExtra) as exc:
        return _Words(summary=summary, explanation=earlier, error=str(exc))


def _document(run_id: str, found: _Words) -> dict[str, Any]:
    written = explanation_document(found.explanation) if found.explanation else None
    return {"run_id": run_id, "summary": list(found.summary), "explanation": written, "error": found.error}


def _print(found: _Words) -> None:
    for sentence in found.summary:
        say(sentence)
    if not found.summary:
        say("the run has not ended, so it has no summary yet")
    if found.explanation is not None:
        print_explanation(found.explanation)
    elif found.error is None and found.summary:
        say(_NOT_SET_UP, style="yellow")
