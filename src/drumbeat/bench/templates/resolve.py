"""Generates a workload's SQL for the tables of its database, once before the run, so that all workers run the same SQL."""

from dataclasses import replace
from datetime import timedelta

from drumbeat.bench.model import LARGEST, Load, NewKey, Operation
from drumbeat.bench.targets.interface import TableDescription, Target
from drumbeat.bench.templates.custom import custom_load, with_table
from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.templates.workload_block import fits_workload_block, workload_block
from drumbeat.bench.workloads.columns import dialect_of
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.new_keys import with_keys_above_existing
from drumbeat.bench.workloads.sql_generation import PRESETS, Subject, generate
from drumbeat.bench.workloads.standard import standard
from drumbeat.bench.workloads.value_pools import sample_pools
from drumbeat.core.errors import InvalidInput

_SAMPLED_FOR = 100  #: connections to sample values for; few, because the samples are stored in the run's row
_DENSE = 0.9  #: if this share of the key range exists, random keys are used instead of sampled ones


async def resolved(document: TemplateDocument, target: Target) -> TemplateDocument:
    """Return the template with its final SQL: statements are generated, and new keys start above the highest existing key.

    A template that names a standard workload is returned unchanged if these steps do not change its load, or if a ``workload``
    block cannot express the load (as for TPC-C). Workers then build the load from the workload's name and scale."""
    load = await _load(document, target)
    final = replace(await with_keys_above_existing(target, load), think=timedelta(milliseconds=document.workload.think_time_ms))
    if document.workload.standard and (final == load or not fits_workload_block(final)):
        return document
    return document.model_copy(update={"workload": workload_block(final)})


async def _load(document: TemplateDocument, target: Target) -> Load:
    workload = document.workload
    if workload.standard:
        return await _standard(workload.standard, workload.scale, target)
    if workload.operations:
        return await _operations(document, target)
    if workload.custom_sql:
        return custom_load(workload, await _subject(document, target))
    if workload.preset:
        subject = await _subject(document, target)
        return generate(workload.name or workload.preset, subject, PRESETS[workload.preset]).load
    raise InvalidInput("workload: expected standard, operations, preset or custom_*_query, got none of them")


async def _standard(name: str, scale: float, target: Target) -> Load:
    chosen = standard(name, scale)
    for table in chosen.tables:
        await target.describe(table.name)
    return chosen.load


async def _operations(document: TemplateDocument, target: Target) -> Load:
    """Build the load of the template's own operations, with {table} replaced by the table's name."""
    load = load_of(document.workload.model_dump(mode="json", exclude_none=True))
    for table in sorted(_tables_of_new_keys(load)):
        await target.describe(table)
    if not any("{table}" in statement.sql for each in load.operations for statement in each.statements):
        return load
    subject = Subject(table=await target.describe(_table(document)), dialect=dialect_of(target.traits.name))
    return replace(load, operations=tuple(_named(each, subject) for each in load.operations))


def _tables_of_new_keys(load: Load) -> set[str]:
    values = [value for each in load.operations for statement in each.statements for value in statement.values]
    return {value.table for value in values if isinstance(value, NewKey) and value.table}


def _named(operation: Operation, subject: Subject) -> Operation:
    statements = tuple(replace(each, sql=with_table(each.sql, subject)) for each in operation.statements)
    return replace(operation, statements=statements)


async def _subject(document: TemplateDocument, target: Target) -> Subject:
    described = await target.describe(_table(document))
    pools = await sample_pools(target, described, _SAMPLED_FOR, document.seed or 0)
    if _is_dense(described):
        pools = replace(pools, keys=(), rows={name: values for name, values in pools.rows.items() if name != described.key})
    return Subject(table=described, pools=pools, dialect=dialect_of(target.traits.name))


def _is_dense(table: TableDescription) -> bool:
    """Whether nearly every key between the lowest and the highest exists, so that random keys are almost always found."""
    key = next((column for column in table.columns if column.name == table.key), None)
    if key is None or key.type not in LARGEST or table.key_low is None or table.key_high is None:
        return False
    return (table.rows or 0) >= _DENSE * (table.key_high - table.key_low + 1)


def _table(document: TemplateDocument) -> str:
    if not document.table:
        raise InvalidInput("workload.table: expected the name of the table for the SQL, got none; set it, or set target.table")
    return document.table
