"""The bench for the CLI, the API and the web pages: templates, runs, records, comparisons, reports. All through the store."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from drumbeat.bench.control.create import Prepared, look_ahead, prepared, statements
from drumbeat.bench.control.orchestrator import LEASE, UNDER_WAY, Orchestrator, RunReport
from drumbeat.bench.control.preflight import Preflight
from drumbeat.bench.control.prices import read_usual, set_usual
from drumbeat.bench.model import (
    Curves,
    Decided,
    ExitStatus,
    Operation,
    Prices,
    RunErrors,
    RunJudgement,
    RunRecord,
    Second,
    ServerProbe,
)
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.results import report
from drumbeat.bench.results.availability import availability_of, corrected
from drumbeat.bench.results.compare import Comparison, compare, compared, last_good, regress, same_what
from drumbeat.bench.results.curves import curves_of
from drumbeat.bench.results.enrichment import enrich
from drumbeat.bench.results.execution_pages import ExecutionQuery, read_executions
from drumbeat.bench.results.executions import Loaded, load_executions
from drumbeat.bench.results.judgement import read_judgement
from drumbeat.bench.results.partial_reads import read_errors, read_seconds
from drumbeat.bench.results.record import read_candidates, read_decisions, read_record
from drumbeat.bench.results.removal import Removed, remove_run
from drumbeat.bench.results.report import comparison_html, comparison_json, comparison_markdown
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.top_errors import TopError, most_frequent
from drumbeat.bench.results.trend import MOST_RUNS, Trend, read_trend
from drumbeat.bench.results.verdicts import SloVerdict, judged_at, verdicts_of
from drumbeat.bench.results.watch import RunWatch, read_worker_curves
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.server_watch import watching
from drumbeat.bench.targets.vault import Vault
from drumbeat.bench.templates import TemplateDocument, parse, with_settings
from drumbeat.bench.templates.revisions import revision, row_of, save_if, whole
from drumbeat.bench.workloads.config import load_of
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidInput, StoreUnavailable
from drumbeat.core.run import RUN_ENDED, Execution, Result, Run, RunId, RunStatus, Template
from drumbeat.core.worker import WorkerId
from drumbeat.runtime.beat import BeatReport
from drumbeat.runtime.timeouts import pause
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

LAST_GOOD = "last-good"
_ORPHANS_POLLED_EVERY = timedelta(seconds=2)

log = logging.getLogger(__name__)


class BenchService:
    """The bench as the command line, the API and the web pages use it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: str,
        host: HostCapacity,
        open_spawner: Callable[[], AbstractAsyncContextManager[Spawner]],
        connections: ConnectionService | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._host = host
        self._open_spawner = open_spawner
        self._connections = connections or ConnectionService(store, Vault())

    async def add_template(self, text: str | bytes, name: str | None = None) -> Template:
        """Store a document as a template, under ``name`` or the document's own name. Raises InvalidInput, AlreadyExists."""
        document = parse(text)
        template_name = name or document.name
        if not template_name:
            raise InvalidInput("name: expected a template name, got none; set name in the document or pass --name")
        return await self._store.templates.create(row_of(f"tpl-{uuid4().hex[:8]}", template_name, document))

    async def change_template(
        self, id_or_name: str, text: str | bytes | None, settings: Sequence[str] = (), *, seen: str | None = None
    ) -> Template:
        """Replace a template's document, or single settings of it. Raises Refused when a run has used the template.

        ``seen``: the revision that the caller edited. Raises StaleWrite when the template has changed since then.
        """
        stored = await self._store.templates.get(id_or_name)
        document = with_settings(parse(text if text is not None else whole(stored)), settings)
        changed = row_of(stored.template_id, document.name or stored.name, document)
        if seen is None:
            return await self._store.templates.save(changed)
        return await save_if(self._store, self._owner, changed, seen)

    revision = staticmethod(revision)

    async def copy_template(self, id_or_name: str, name: str, settings: Sequence[str] = ()) -> Template:
        """Copy a template under a new name. The copy counts as unused, so it can be changed."""
        stored = await self._store.templates.get(id_or_name)
        document = with_settings(parse({**whole(stored), "name": name}), settings)
        return await self._store.templates.create(row_of(f"tpl-{uuid4().hex[:8]}", name, document))

    async def remove_template(self, id_or_name: str) -> None:
        await self._store.templates.delete((await self._store.templates.get(id_or_name)).template_id)

    async def plan(self, document: TemplateDocument) -> Preflight:
        """What a run would start, with warnings. Nothing is started."""
        return await look_ahead(document, self._host, self._connections, await self.prices())

    async def preview(self, document: TemplateDocument) -> tuple[Operation, ...]:
        """The operations that a run's workers would send, with the SQL for its table. Nothing is executed."""
        return (await statements(document, self._connections)).used

    async def document(self, source: str | bytes, settings: Sequence[str] = (), *, is_text: bool = False) -> TemplateDocument:
        """The document of a template (by name or id) or of a text, with settings applied."""
        if is_text:
            return with_settings(parse(source), settings)
        stored = await self._store.templates.get(str(source))
        return with_settings(parse({"name": stored.name, **stored.config}), settings)

    async def create(self, document: TemplateDocument, template: str | None = None) -> tuple[Run, Preflight]:
        """Create a PREPARED run. Raises InvalidInput before anything is stored."""
        made: Prepared = await prepared(document, self._host, self._connections, await self.prices())
        template_id = (await self._store.templates.get(template)).template_id if template else None
        run_id = await self._orchestrator().create_run(template_id, made.config, name=document.name or "")
        if template_id is not None:
            await self._store.templates.note_use(template_id)
        return await self._store.runs.get(run_id), made.preflight

    async def prices(self) -> Prices:
        """The default prices per hour, for templates that set none."""
        return await read_usual(self._store.notes)

    async def set_prices(self, prices: Prices) -> Prices:
        """Set the default prices per hour, for runs created from now on. Raises InvalidInput."""
        return await set_usual(self._store.notes, prices)

    async def recreate(self, run_id: RunId, settings: Sequence[str] = ()) -> tuple[Run, Preflight]:
        """Create a PREPARED run from the document of an earlier run."""
        before = await self._store.runs.get(run_id)
        stored = before.config.get("document")
        if stored is None:
            raise InvalidInput(f"run {run_id} cannot be repeated: it has no stored document (it was not created by bench run)")
        return await self.create(with_settings(parse({**stored, "name": before.name}), settings), before.template_id)

    async def start(self, run_id: RunId) -> None:
        """Start a PREPARED run. It begins as soon as an orchestrator picks it up."""
        await self._orchestrator().start_run(run_id)

    async def conduct(
        self, run_id: RunId, leave: asyncio.Event, on_beat: Callable[[BeatReport], None] | None = None
    ) -> RunStatus:
        """Orchestrate a run from this process until it has ended or ``leave`` is set (another process may then take over)."""
        async with self._open_spawner() as spawner:
            status = await self._orchestrator(spawner).conduct(run_id, leave, on_beat)
        run = await self._store.runs.get(run_id)
        if status in RUN_ENDED and (run.config.get("recording") or {}).get("load_into_store"):
            await self.load_executions(run_id)
        return status

    async def load_executions(self, run_id: RunId) -> Loaded:
        """Copy a run's recorded operations into the store, from the files that are on this host."""
        return await load_executions(self._store, run_id)

    async def executions(self, run_id: RunId, **query: Any) -> Sequence[Execution]:
        """A page of a run's single operations, from the store or this host's files; ``query``: see ExecutionQuery."""
        return await read_executions(self._store, run_id, ExecutionQuery(**query))

    def watch(self, run_id: RunId) -> RunWatch:
        """A live view of a run, for a page that refreshes it."""
        return RunWatch(self._store, run_id)

    @staticmethod
    def curves(record: RunRecord) -> Curves:
        """A run's time series, thinned for charts."""
        return curves_of(record.timeline)

    async def worker_curves(self, run_id: RunId, worker_id: str) -> Curves:
        """One worker's time series, thinned for charts."""
        return await read_worker_curves(self._store, run_id, WorkerId(worker_id))

    async def enrich(self, run_id: RunId) -> Result:
        """Try again to add the database's own totals to a run's result."""
        run = await self._store.runs.get(run_id)
        return await enrich(self._store, run_id, lambda: self._connections.open(_target(run)))

    async def stop(self, run_id: RunId) -> RunStatus:
        """Cancel a run."""
        return await self._orchestrator().stop_run(run_id)

    async def remove(self, run_id: RunId) -> Removed:
        """Delete a run, all its measurements, and its files on this host. Raises NotFound, Refused."""
        return await remove_run(self._store, run_id)

    async def status(self, run_id: RunId) -> RunReport:
        return await self._orchestrator().get_run_status(run_id)

    async def judgement(self, run: Run) -> RunJudgement:
        """A run's verdict and its reason; while it is under way, whether an orchestrator leads it."""
        return await read_judgement(self._store, run)

    async def orphans(self) -> list[Run]:
        """Runs under way that have no orchestrator."""
        return await self._orchestrator().orphans()

    async def record(self, run_id: RunId) -> RunRecord:
        """Everything the store has about a run. Reading yields often, so that it does not block the event loop."""
        return await read_record(self._store, run_id)

    async def seconds(
        self, run_id: RunId, since: int = 0, until: int | None = None
    ) -> tuple[datetime | None, tuple[Second, ...]]:
        """When a run began, and its seconds from offset ``since`` up to, but without, ``until``."""
        return await read_seconds(self._store, run_id, since, until)

    async def decisions(self, run_id: RunId) -> tuple[Decided, ...]:
        """The decisions and events of a run, in order."""
        return (await read_decisions(self._store, await self._store.runs.get(run_id)))[0]

    async def errors(self, run_id: RunId) -> RunErrors:
        """The errors of a run."""
        return await read_errors(self._store, run_id)

    async def report(self, run_id: RunId, form: str) -> str:
        """A run's report in one of ``report.FORMATS``. Raises InvalidInput for an unknown format."""
        if form not in report.FORMATS:
            raise InvalidInput(f"expected a report format out of {', '.join(report.FORMATS)}, got {form!r}")
        return await asyncio.to_thread(report.FORMATS[form], await self.record(run_id))

    @staticmethod
    def verdicts(record: RunRecord) -> tuple[SloVerdict, ...]:
        """The verdict on each of a run's objectives."""
        return verdicts_of(record)

    availability = staticmethod(availability_of)
    corrected = staticmethod(corrected)

    @staticmethod
    def judged_at(record: RunRecord) -> str | None:
        """The level at which a search was checked against its objectives; None: the whole measurement was."""
        return judged_at(record)

    @staticmethod
    def judge(record: RunRecord) -> RunJudgement:
        """The verdict on a whole run, with its reason and the exit code of ``bench run`` and ``--exit-status``."""
        return judge_run(record)

    async def judgements(self, runs: Sequence[Run]) -> dict[RunId, RunJudgement]:
        """The verdicts on several runs, for a list of runs; read from their rows or, failing that, from their results."""
        return {run.run_id: await read_judgement(self._store, run) for run in runs}

    @staticmethod
    def most_frequent_error(record: RunRecord) -> TopError | None:
        """The most frequent error of a run's measurement."""
        return most_frequent(record)

    @staticmethod
    def warnings(record: RunRecord) -> list[str]:
        """The caveats to read before trusting a run's figures."""
        return report.warnings(record)

    @staticmethod
    def regressed(comparison: Comparison | None) -> ExitStatus:
        """The exit code of ``bench regress``."""
        return regress(comparison)

    @staticmethod
    def same_what(run: Run) -> str:
        """What the baseline ``last-good`` has in common with a run, for messages."""
        return same_what(run)

    async def compare(self, run_ids: Sequence[RunId]) -> tuple[Comparison, ...]:
        """Compare every later run with the first."""
        return await asyncio.to_thread(compare, [await self.record(run_id) for run_id in run_ids])

    async def trend(self, run_id: RunId, most: int = MOST_RUNS) -> Trend:
        """The figures of a run and of the earlier comparable runs, over time."""
        return await read_trend(self._store, run_id, most)

    @staticmethod
    def compared(comparisons: Sequence[Comparison], form: str) -> str:
        """Comparisons as a document: html, json or markdown."""
        forms = {"html": comparison_html, "json": comparison_json, "markdown": comparison_markdown}
        return forms[form](comparisons)

    async def orchestrate(
        self, leave: asyncio.Event, *, once: bool = False, on_run: Callable[[Run], None] | None = None
    ) -> None:
        """Orchestrate every run under way that has no orchestrator, until ``leave`` is set.

        ``once``: return when no such run is left. It waits one lease first: an orchestrator that just died still holds its own.
        """
        mine: set[RunId] = set()
        began = self._clock.elapsed()
        async with self._open_spawner() as spawner, asyncio.TaskGroup() as group:
            while not leave.is_set():
                found, under_way = await self._find_orphans()
                for run in found:
                    if run.run_id in mine:
                        continue
                    mine.add(run.run_id)
                    (on_run or (lambda run: None))(run)
                    group.create_task(self._orchestrate_one(spawner, run.run_id, leave, mine))
                if once and not mine and (not under_way or self._clock.elapsed() - began > LEASE + _ORPHANS_POLLED_EVERY):
                    return
                await pause(self._clock, _ORPHANS_POLLED_EVERY, leave)

    async def _find_orphans(self) -> tuple[Sequence[Run], bool]:
        """The runs without an orchestrator, and whether any run is under way at all (assumed when the store is unavailable)."""
        try:
            return await self.orphans(), bool(await self._store.runs.list(statuses=UNDER_WAY, limit=1))
        except StoreUnavailable as exc:
            log.warning("could not list runs without an orchestrator: %s; retrying", exc)
            return (), True

    async def _orchestrate_one(self, spawner: Spawner, run_id: RunId, leave: asyncio.Event, mine: set[RunId]) -> None:
        try:
            await self._orchestrator(spawner).conduct(run_id, leave)
        except DrumbeatError as exc:
            log.warning("stopped orchestrating run %s: %s", run_id, exc)
        finally:
            mine.discard(run_id)

    async def regress(self, run_id: RunId, against: str = LAST_GOOD) -> Comparison | None:
        """Compare a run with a given one, or with the newest good comparable run; None: there is no such run."""
        after = await self.record(run_id)
        if against != LAST_GOOD:
            return await asyncio.to_thread(compared, await self.record(RunId(against)), after)
        found = last_good(await read_candidates(self._store, after.run), after.run)
        return None if found is None else await asyncio.to_thread(compared, await self.record(found.run_id), after)

    def _orchestrator(self, spawner: Spawner | None = None) -> Orchestrator:
        return Orchestrator(self._store, spawner, self._clock, self._owner, self._watch)

    def _watch(self, run: Run) -> AbstractAsyncContextManager[Callable[[], ServerProbe | None]]:
        return watching(lambda: self._connections.open(_target(run)), self._clock, _statements(run))


def _statements(run: Run) -> Mapping[str, Sequence[str]]:
    """The SQL of each kind of operation of a run; empty when the workload is invalid (its workers report that)."""
    try:
        used = load_of(run.config.get("workload") or {}).used
    except DrumbeatError:
        return {}
    return {str(each.kind): [statement.sql for statement in each.statements] for each in used}


def _target(run: Run) -> Mapping[str, Any]:
    return run.config.get("target") or {}
