"""The benchmark service for the command line, the API and the web pages: templates, runs, comparisons and reports."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from drumbeat.bench.closing import RunClosing
from drumbeat.bench.control.create import PreparedRun, prepare_run, preview_operations, preview_run
from drumbeat.bench.control.orchestrator import UNDER_WAY, Orchestrator
from drumbeat.bench.control.preflight import Preflight
from drumbeat.bench.control.prices import read_default_prices, set_default_prices
from drumbeat.bench.explain.explaining import LanguageModel, explain_run
from drumbeat.bench.model import (
    DecisionRecord,
    Operation,
    RunExplanation,
    RunJudgement,
    RunRecord,
    ServerProbe,
)
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.model.warehouse import WarehouseSettings
from drumbeat.bench.results import report
from drumbeat.bench.results.availability import availability_of, corrected
from drumbeat.bench.results.compare import Comparison, baseline_criterion, compare, compared, last_good, regress
from drumbeat.bench.results.curves import curves_of
from drumbeat.bench.results.enrichment import HISTORY_LIMIT, enrich
from drumbeat.bench.results.execution_pages import ExecutionQuery, read_executions
from drumbeat.bench.results.executions import folders_elsewhere, load_executions
from drumbeat.bench.results.judgement import read_judgement
from drumbeat.bench.results.partial_reads import read_errors, read_seconds
from drumbeat.bench.results.record import read_candidates, read_decisions, read_record
from drumbeat.bench.results.removal import remove_run
from drumbeat.bench.results.report import comparison_html, comparison_json, comparison_markdown
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.summaries import read_summary
from drumbeat.bench.results.top_errors import most_frequent
from drumbeat.bench.results.trend import read_trend
from drumbeat.bench.results.verdicts import judged_at, verdicts_of
from drumbeat.bench.results.watch import RunWatch, read_worker_curves
from drumbeat.bench.run_state import stored_target
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.interface import HasWarehouse
from drumbeat.bench.targets.server_watch import watch_statistics
from drumbeat.bench.targets.vault import Vault
from drumbeat.bench.templates import TemplateDocument, parse, with_settings
from drumbeat.bench.templates.revisions import as_document, revision, row_of, save_if
from drumbeat.bench.workloads.config import load_of
from drumbeat.core.clock import Clock
from drumbeat.core.engine import DEFAULT_ENGINE, EngineCapacity
from drumbeat.core.errors import DrumbeatError, InvalidInput, NotFound, Refused, StoreUnavailable
from drumbeat.core.run import RUN_ENDED, Execution, Result, Run, RunId, RunStatus, Template
from drumbeat.runtime.beat import BeatReport
from drumbeat.runtime.prompt_spawner import PromptSpawner
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.runtime.timeouts import pause, race
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

LAST_GOOD = "last-good"
_ORPHANS_POLLED_EVERY = timedelta(seconds=2)
_SILENT_FOR = timedelta(seconds=5)  #: how long a run that is being stopped waits for an engine that does not answer

log = logging.getLogger(__name__)


class BenchService:
    """Benchmark actions for the command line, API and web pages. Methods assigned without ``def`` come from other modules."""

    revision = staticmethod(revision)
    curves = staticmethod(curves_of)
    verdicts = staticmethod(verdicts_of)
    judge = staticmethod(judge_run)
    judged_at = staticmethod(judged_at)
    availability = staticmethod(availability_of)
    corrected = staticmethod(corrected)
    warnings = staticmethod(report.warnings)
    most_frequent_error = staticmethod(most_frequent)
    baseline_criterion = staticmethod(baseline_criterion)
    regressed = staticmethod(regress)

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: str,
        host: HostCapacity,
        open_spawner: Callable[[str], AbstractAsyncContextManager[Spawner]],
        connections: ConnectionService | None = None,
        check_engine: Callable[[str], object] | None = None,
        engine_capacity: Callable[[str], EngineCapacity] | None = None,
        language_model: Callable[[], LanguageModel | None] | None = None,
    ) -> None:
        """``open_spawner`` opens a spawner, which starts workers, for the name of an engine or of several (``a,b``).
        ``check_engine`` raises InvalidSettings for an engine that is not known, or whose workers cannot reach the store.
        ``engine_capacity`` returns how many workers the engines can run. ``language_model`` opens the model that explains
        runs, or returns None if none is set up; it raises InvalidSettings, MissingExtra."""
        self._language_model = language_model or (lambda: None)
        self._check_engine = check_engine or (lambda engines: None)
        self._engine_capacity = engine_capacity or (lambda engines: EngineCapacity(engines=engines))
        self._store = store
        self._clock = clock
        self._owner = owner
        self._host = host
        self._open_spawner = open_spawner
        self._connections = connections or ConnectionService(store, Vault())
        self.prices, self.set_prices = partial(read_default_prices, store.notes), partial(set_default_prices, store.notes)
        self.record, self.seconds = partial(read_record, store), partial(read_seconds, store)
        self.errors, self.judgement = partial(read_errors, store), partial(read_judgement, store)
        self.summary = partial(read_summary, store)
        self.trend, self.remove = partial(read_trend, store), partial(remove_run, store)
        self.watch, self.worker_curves = partial(RunWatch, store), partial(read_worker_curves, store)
        self.load_executions = partial(load_executions, store)
        self.folders_elsewhere = partial(folders_elsewhere, store)
        self._closing = RunClosing(
            store=store, clock=clock, owner=owner, language_model=self._language_model, enrich=self.enrich
        )
        runs = self._orchestrator()
        self.start, self.stop, self.status, self.orphans = runs.start_run, runs.stop_run, runs.get_run_status, runs.orphans

    async def add_template(self, text: str | bytes, name: str | None = None) -> Template:
        """Store a document as a template, under ``name`` or the document's own name. Raises InvalidInput, AlreadyExists."""
        document = parse(text)
        if name:
            document = parse({**document.to_json(), "name": name})
        if not document.name:
            raise InvalidInput("name: expected a template name, got none; set name in the document or pass --name")
        return await self._store.templates.create(row_of(f"tpl-{uuid4().hex[:8]}", document.name, document))

    async def change_template(
        self, id_or_name: str, text: str | bytes | None, settings: Sequence[str] = (), *, seen: str | None = None
    ) -> Template:
        """Replace a template's document, or single settings of it. Raises Refused when a run has used the template.

        ``seen`` is the revision that the caller edited. Raises StaleWrite when the template has changed since then.
        """
        stored = await self._store.templates.get(id_or_name)
        document = with_settings(parse(text if text is not None else as_document(stored)), settings)
        changed = row_of(stored.template_id, document.name or stored.name, document)
        if seen is None:
            return await self._store.templates.save(changed)
        return await save_if(self._store, changed, seen)

    async def copy_template(self, id_or_name: str, name: str, settings: Sequence[str] = ()) -> Template:
        """Copy a template under a new name. The copy counts as unused, so it can be changed."""
        stored = await self._store.templates.get(id_or_name)
        document = with_settings(parse({**as_document(stored), "name": name}), settings)
        return await self._store.templates.create(row_of(f"tpl-{uuid4().hex[:8]}", name, document))

    async def remove_template(self, id_or_name: str) -> None:
        await self._store.templates.delete((await self._store.templates.get(id_or_name)).template_id)

    async def template_id(self, id_or_name: str) -> str:
        """Return the id of a template, or of a removed template that runs were created from. Raises NotFound."""
        try:
            return (await self._store.templates.get(id_or_name)).template_id
        except NotFound:
            if not await self._store.runs.list(template_id=id_or_name, limit=1):
                raise
            return id_or_name

    async def plan(self, document: TemplateDocument) -> Preflight:
        """Return what a run of this template document would start, with warnings. Nothing is started."""
        capacity = self._capacity(document)
        return await preview_run(document, self._host, self._connections, await self.prices(), capacity)

    def _capacity(self, document: TemplateDocument) -> EngineCapacity:
        """Return how many workers the template's engine can run. Raises InvalidSettings if the engine is not known, or if its
        workers cannot reach the store."""
        engines = document.scaling.engine or DEFAULT_ENGINE
        self._check_engine(engines)
        return self._engine_capacity(engines)

    async def preview(self, document: TemplateDocument) -> tuple[Operation, ...]:
        """Return the operations that a run's workers would send, with their SQL. Nothing is executed."""
        return (await preview_operations(document, self._connections)).used

    async def document(self, source: str | bytes, settings: Sequence[str] = (), *, is_text: bool = False) -> TemplateDocument:
        """Return a template's document, with ``settings`` applied. ``source``: its name or id, or the text (``is_text``)."""
        if is_text:
            return with_settings(parse(source), settings)
        stored = await self._store.templates.get(str(source))
        return with_settings(parse({"name": stored.name, **stored.config}), settings)

    async def create(self, document: TemplateDocument, template: str | None = None) -> tuple[Run, Preflight]:
        """Create a run from a template document, in the status PREPARED. Raises InvalidInput before anything is stored."""
        template_id = (await self._store.templates.get(template)).template_id if template else None
        return await self._create(document, template_id)

    async def _create(self, document: TemplateDocument, template_id: str | None) -> tuple[Run, Preflight]:
        """Create a run. ``template_id``: the template of its document, which may have been removed."""
        capacity = self._capacity(document)
        made: PreparedRun = await prepare_run(document, self._host, self._connections, await self.prices(), capacity)
        run_id = await self._orchestrator().create_run(template_id, made.config, name=document.name or "")
        if template_id is not None:
            with suppress(NotFound):
                await self._store.templates.note_use(template_id)
        return await self._store.runs.get(run_id), made.preflight

    async def recreate(self, run_id: RunId, settings: Sequence[str] = ()) -> tuple[Run, Preflight]:
        """Create a new run, in the status PREPARED, from the template document that is stored with an earlier run."""
        before = await self._store.runs.get(run_id)
        stored = before.config.get("document")
        if stored is None:
            raise InvalidInput(
                f"cannot repeat run {run_id}: no template document is stored with it, as it was not created by bench run; "
                "create a new run from a template"
            )
        return await self._create(with_settings(parse({**stored, "name": before.name}), settings), before.template_id)

    async def conduct(
        self,
        run_id: RunId,
        leave: asyncio.Event,
        on_beat: Callable[[BeatReport], None] | None = None,
        hurry: asyncio.Event | None = None,
    ) -> RunStatus:
        """Control a run from this process until the run has ended or ``leave`` is set (another process can then take over).

        Once ``hurry`` is set, this process no longer waits for an engine on other machines: if the engine does not answer
        within a few seconds, ``leave`` is set."""
        run = await self._store.runs.get(run_id)
        await self._set_warehouse(run)
        async with self._spawner_of(run) as spawner:
            if hurry is None or engine_of(run) == DEFAULT_ENGINE:
                status = await self._orchestrator(spawner).conduct(run_id, leave, on_beat)
            else:
                prompt = PromptSpawner(spawner, hurry, self._clock)
                conducting = self._orchestrator(prompt).conduct(run_id, leave, on_beat)
                status = await race(self._leave_silent(prompt, hurry, leave), conducting)
        if status in RUN_ENDED:
            await self._closing.close(run_id, hurry or leave)
        return status

    async def _leave_silent(self, spawner: PromptSpawner, hurry: asyncio.Event, leave: asyncio.Event) -> None:
        """Once ``hurry`` is set, check every few seconds whether the engine answers; if it does not, set ``leave``."""
        await hurry.wait()
        while not leave.is_set():
            await self._clock.sleep(_SILENT_FOR)
            if spawner.silence is not None:
                leave.set()
        await asyncio.Event().wait()

    async def explain(self, run_id: RunId) -> RunExplanation:
        """Have the language model explain an ended run, and store what it wrote with the run.

        Raises Refused if no language model is set up or the run has not ended, LanguageModelFailed if the model fails."""
        model = self._language_model()
        if model is None:
            raise Refused("no language model is set up to explain runs; name one as [language_model] in drumbeat.toml")
        return await explain_run(self._store, model, run_id)

    async def executions(self, run_id: RunId, **query: Any) -> Sequence[Execution]:
        """Return a page of a run's recorded operations, from the store or files on this host. ``query``: see ExecutionQuery."""
        return await read_executions(self._store, run_id, ExecutionQuery(**query))

    async def enrich(self, run_id: RunId, limit: timedelta = HISTORY_LIMIT) -> Result:
        """Try again to add the database's own figures (counters or statement history) to a run's result. Raises NotFound."""
        run = await self._store.runs.get(run_id)
        return await enrich(self._store, run_id, lambda: self._connections.open(stored_target(run)), self._clock, limit)

    async def _set_warehouse(self, run: Run) -> None:
        """Change the database's warehouse as the run's template says, once, before the run starts. Raises InvalidInput."""
        wanted = stored_target(run).get("warehouse")
        if run.status not in (RunStatus.PREPARED, RunStatus.STARTING) or not isinstance(wanted, Mapping):
            return
        async with self._connections.open(stored_target(run)) as target:
            if isinstance(target, HasWarehouse):
                await target.set_warehouse(WarehouseSettings(**{name: each for name, each in wanted.items() if name != "name"}))

    async def decisions(self, run_id: RunId) -> tuple[DecisionRecord, ...]:
        """Return the decisions and events of a run, in order."""
        return (await read_decisions(self._store, await self._store.runs.get(run_id)))[0]

    async def report(self, run_id: RunId, form: str) -> str:
        """Return a run's report in one of ``report.FORMATS``. Raises InvalidInput for an unknown format."""
        if form not in report.FORMATS:
            raise InvalidInput(f"report format: expected one of {', '.join(report.FORMATS)}, got {form!r}")
        return await asyncio.to_thread(report.FORMATS[form], await self.summarised(run_id))

    async def summarised(self, run_id: RunId) -> RunRecord:
        """Return everything that is stored about a run, with its summary. Raises NotFound."""
        record = await self.record(run_id)
        return replace(record, summary=await self.summary(record.run))

    async def judgements(self, runs: Sequence[Run]) -> dict[RunId, RunJudgement]:
        """Return the verdict on each of several runs, read from their rows or, if missing there, from their results."""
        return {run.run_id: await read_judgement(self._store, run) for run in runs}

    async def compare(self, run_ids: Sequence[RunId]) -> tuple[Comparison, ...]:
        """Compare each of these runs with the first of them."""
        return await asyncio.to_thread(compare, [await self.record(run_id) for run_id in run_ids])

    @staticmethod
    def compared(comparisons: Sequence[Comparison], form: str) -> str:
        """Return comparisons as a document in the format html, json or markdown."""
        forms = {"html": comparison_html, "json": comparison_json, "markdown": comparison_markdown}
        return forms[form](comparisons)

    async def orchestrate(
        self, leave: asyncio.Event, *, once: bool = False, on_run: Callable[[Run], None] | None = None
    ) -> None:
        """Take over every run under way that has lost its orchestrator, until ``leave`` is set.

        ``once``: return when no such run is left. If any run is under way, first wait as long as a lease lasts, because an
        orchestrator that has just died still holds its lease."""
        mine: set[RunId] = set()
        latest = self._clock.elapsed() + self._orchestrator().lease + _ORPHANS_POLLED_EVERY
        async with plain_task_group() as group:
            while not leave.is_set():
                found, under_way = await self._find_orphans()
                for run in found:
                    if run.run_id in mine:
                        continue
                    mine.add(run.run_id)
                    (on_run or (lambda run: None))(run)
                    group.create_task(self._orchestrate_one(run, leave, mine))
                if once and not mine and (not under_way or self._clock.elapsed() > latest):
                    return
                await pause(self._clock, _ORPHANS_POLLED_EVERY, leave)

    async def _find_orphans(self) -> tuple[Sequence[Run], bool]:
        """Return the runs without an orchestrator, and whether any run is under way. If the store is unavailable, return no
        runs and True, so that the caller looks again."""
        try:
            return await self.orphans(), bool(await self._store.runs.list(statuses=UNDER_WAY, limit=1))
        except StoreUnavailable as exc:
            log.warning("could not look for runs without an orchestrator: %s; retrying", exc)
            return (), True

    async def _orchestrate_one(self, run: Run, leave: asyncio.Event, mine: set[RunId]) -> None:
        try:
            await self.conduct(run.run_id, leave, hurry=leave)
        except DrumbeatError as exc:
            log.warning("stopped controlling run %s: %s; any orchestrator can take it over", run.run_id, exc)
        finally:
            mine.discard(run.run_id)

    def _spawner_of(self, run: Run) -> AbstractAsyncContextManager[Spawner]:
        """Open a spawner for the engine that the run's template names. Raises InvalidSettings, MissingExtra."""
        return self._open_spawner(engine_of(run))

    async def regress(self, run_id: RunId, against: str = LAST_GOOD) -> Comparison | None:
        """Compare a run with the run ``against``, or with the newest comparable run that passed; None if no such run exists."""
        after = await self.record(run_id)
        if against != LAST_GOOD:
            return await asyncio.to_thread(compared, await self.record(RunId(against)), after)
        found = last_good(await read_candidates(self._store, after.run), after.run)
        return None if found is None else await asyncio.to_thread(compared, await self.record(found.run_id), after)

    def _orchestrator(self, spawner: Spawner | None = None) -> Orchestrator:
        return Orchestrator(self._store, spawner, self._clock, self._owner, self._watch)

    def _watch(self, run: Run) -> AbstractAsyncContextManager[Callable[[], ServerProbe | None]]:
        return watch_statistics(lambda: self._connections.open(stored_target(run)), self._clock, _statements(run))


def _statements(run: Run) -> Mapping[str, Sequence[str]]:
    """Return the SQL of each kind of operation of a run; empty when the workload is invalid (its workers report that)."""
    try:
        used = load_of(run.config.get("workload") or {}).used
    except DrumbeatError:
        return {}
    return {str(each.kind): [statement.sql for statement in each.statements] for each in used}


def engine_of(run: Run) -> str:
    """Return the engine that runs a run's workers, or several as ``a,b``."""
    return str((run.config.get("scaling") or {}).get("engine") or DEFAULT_ENGINE)
