"""Has a language model explain an ended run, checks its answer, and stores the answer in the run's row."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from drumbeat.bench.explain.answer import check
from drumbeat.bench.explain.figures import model_figures, numbers_in
from drumbeat.bench.explain.prompt import messages
from drumbeat.bench.explain.settings import LanguageModelSettings
from drumbeat.bench.model.explanation import STORED_UNDER, RunExplanation, explanation_document
from drumbeat.bench.results.record import read_short_record
from drumbeat.bench.results.summaries import read_previous
from drumbeat.core.errors import Refused
from drumbeat.core.run import RUN_ENDED, RunId
from drumbeat.store.interface import RunChange, Store


class LanguageModel(Protocol):
    """The interface of a language model: it answers messages with a text."""

    @property
    def settings(self) -> LanguageModelSettings: ...

    async def answer(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the text that the model answers. Raises LanguageModelFailed."""
        ...


async def explain_run(store: Store, model: LanguageModel, run_id: RunId) -> RunExplanation:
    """Have ``model`` explain an ended run, and store the answer in place of an earlier one.

    Raises Refused if the run has not ended, LanguageModelFailed if the model gives no usable answer: the run is then unchanged.
    """
    run = await store.runs.get(run_id)
    if run.status not in RUN_ENDED:
        raise Refused(f"expected a run that has ended, got {run_id}, which is {run.status}; ask again when it has ended")
    figures = model_figures(await read_short_record(store, run), await read_previous(store, run))
    settings = model.settings
    text = await model.answer(messages(figures, settings.max_characters))
    checked = check(text, numbers_in(figures), settings.max_characters)
    explanation = RunExplanation(
        text=checked.text,
        model=settings.model,
        at=await store.now(),
        unknown_numbers=checked.unknown_numbers,
        shortened=checked.shortened,
    )
    newest = await store.runs.get(run_id)
    metrics = {**newest.custom_metrics, STORED_UNDER: explanation_document(explanation)}
    await store.runs.update(newest, RunChange(custom_metrics=metrics))
    return explanation
