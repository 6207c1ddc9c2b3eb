"""Scripts of named queries for jobs that wait for other jobs: linking new jobs, and passing on the end of a job.

A job is linked to its parents while their rows are locked, and a job that ends is locked before its links are read. So if a
parent ends while a child is pushed, either the push sees that the parent has ended, or the end of the parent sees the child.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from drumbeat.core.job import ENDED, IfFailed, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.store.flow_rules import (
    FAILED,
    READY,
    SKIPPED,
    FlowState,
    ParentCounts,
    has_links,
    no_parent,
    parents_first,
    skip_reason,
    state_after,
    state_when_done,
    state_when_requeued,
)
from drumbeat.store.job_ids import number_of
from drumbeat.store.sql.database import Row, Script
from drumbeat.store.sql.job_rows import inserted_waits, json_text, row_id
from drumbeat.store.sql.rows import dump

_Parents = Mapping[int, Sequence[tuple[JobId, JobStatus]]]  #: by the number of a job: the ids and states of its parents


def link_jobs(
    pool_id: PoolId,
    jobs: Sequence[NewJob],
    ids: Sequence[JobId],
    new: Mapping[int, int],
    inserted_links: Mapping[JobId | None, int],
) -> Script[None]:
    """Link new jobs, which were inserted with the status waiting, to their parents, and set the states that follow from this.

    ``ids`` are the ids of ``jobs``. ``new``: the row number of each inserted job by its position in ``jobs``, parents before
    children. ``inserted_links``: how many children the inserted rows already count, by the parent's id. Raises NotFound if a
    parent does not exist.
    """
    if not has_links(jobs):
        return
    renamed = {
        job.job_id: job_id
        for job, job_id in zip(reversed(jobs), reversed(ids), strict=True)
        if job.job_id is not None and job.job_id != job_id
    }
    parents = {place: _parents_in_store(jobs[place].after, renamed) for place in new if jobs[place].after}
    numbers = {ids[place]: number for place, number in new.items()}
    states = dict.fromkeys(numbers, JobStatus.PENDING)
    links = Counter(chain.from_iterable(parents.values()))
    older = [parent for parent in links if parent not in numbers]
    older_numbers = yield from _numbers(older)
    rows = (yield "lock_parents", {"numbers": dump(sorted(older_numbers.values()))}) if older_numbers else ()
    states |= {row_id(row): JobStatus(row["status"]) for row in rows}
    for parent in older:
        if parent not in states:
            raise no_parent(parent)
    counted = {name: count for name, count in inserted_links.items() if name is not None and name in numbers}
    numbers |= older_numbers
    more = {name: links[name] - counted.get(name, 0) for name in links.keys() | counted.keys()}
    yield from _count_links({numbers[name]: count for name, count in more.items() if count})
    if not parents:
        return
    pairs = ",".join(f"[{new[place]},{numbers[name]}]" for place, each in parents.items() for name in each)
    yield "add_links", {"links": f"[{pairs}]"}
    ended = {name for name, status in states.items() if status in ENDED}
    changes: dict[int, FlowState] = {}
    reasons: dict[int, str] = {}
    for place, each in parents.items():
        job, number = jobs[place], new[place]
        if ended.isdisjoint(each) and len(each) == len(job.after):
            continue  # it waits for as many jobs as its row says
        found = state_after(
            ParentCounts.of([states[parent] for parent in each]), after_any=job.after_any, if_failed=job.if_failed
        )
        states[ids[place]] = found.status
        if found != FlowState(JobStatus.WAITING, inserted_waits(job)):
            changes[number] = found
        if found is SKIPPED:
            ended.add(ids[place])
            reasons[number] = _reason((parent, states[parent]) for parent in each)
    yield from _write(changes, reasons, dict.fromkeys(changes, pool_id))


def _parents_in_store(parents: Sequence[JobId], renamed: Mapping[JobId, JobId]) -> Sequence[JobId]:
    """Return the ids under which the store has these parents, each once. ``renamed``: the ids of those with another id."""
    return parents if len(parents) == 1 and not renamed else [*dict.fromkeys(renamed.get(each, each) for each in parents)]


def push_in_turn(jobs: Sequence[NewJob], push: Callable[[Sequence[NewJob]], Script[list[JobId]]]) -> Script[list[JobId]]:
    """Push jobs one by one, each after its parents, with the script that ``push`` returns. So a job that is skipped at once no
    longer has its unique key when the next is pushed."""
    for job in jobs:
        json_text(job.payload, "payload")
    ids: dict[int, JobId] = {}
    chosen: dict[JobId, JobId] = {}
    for place in parents_first(jobs):
        job = jobs[place]
        [ids[place]] = yield from push([replace(job, after=tuple(chosen.get(parent, parent) for parent in job.after))])
        if job.job_id is not None:
            chosen.setdefault(job.job_id, ids[place])
    return [ids[place] for place in range(len(jobs))]


def _count_links(more: Mapping[int, int]) -> Script[None]:
    """Add to the stored link counts of parents. ``more``: how many links to add, by the parent's row number."""
    parents: defaultdict[int, list[int]] = defaultdict(list)
    for number, links in sorted(more.items()):
        parents[links].append(number)
    for links, numbers in parents.items():
        if links:
            yield "count_links", {"numbers": dump(numbers), "links": links}


def lock_known_parents(jobs: Sequence[NewJob]) -> Script[set[JobId]]:
    """Lock the parents of jobs that are about to be pushed, apart from parents in the same push. Returns the ids of parents
    that do not exist."""
    if not has_links(jobs):
        return set()
    together = {job.job_id for job in jobs}
    named = dict.fromkeys(parent for job in jobs for parent in job.after if parent not in together)
    numbers = yield from _numbers(named)
    rows = (yield "lock_parents", {"numbers": dump(sorted(numbers.values()))}) if numbers else ()
    return named.keys() - {row_id(row) for row in rows}


def pass_on_ends(ends: Mapping[int, JobStatus]) -> Script[set[PoolId]]:
    """Update the jobs that wait for jobs that have ended. If some are skipped, update the jobs that wait for them, too.

    ``ends``: the final state of each ended job, by its number. Their rows must be locked. Returns the pools in which jobs
    became ready.
    """
    pools: set[PoolId] = set()
    while ends:
        counts = yield from _ended_parents(ends)
        rows = (yield "lock_waiting", {"numbers": dump(sorted(counts))}) if counts else ()
        doubtful = [row for row in rows if row["if_failed"] == IfFailed.SKIP and counts[row["seq"]].failed]
        parents = yield from _parents_of(row["seq"] for row in doubtful)
        changes: dict[int, FlowState] = {}
        for row in rows:
            found = _after_ends(row, counts[row["seq"]], parents)
            if found != FlowState(JobStatus.WAITING, row["waits_for"]):
                changes[row["seq"]] = found
        reasons = {number: _reason(parents[number]) for number, found in changes.items() if found is SKIPPED}
        homes = {row["seq"]: PoolId(row["pool_id"]) for row in rows}
        yield from _write(changes, reasons, homes)
        pools.update(homes[number] for number, found in changes.items() if found is READY)
        ends = {row["seq"]: JobStatus.CANCELLED for row in rows if row["seq"] in reasons and row["has_children"]}
    return pools


def pass_on_done(parents: Sequence[int]) -> Script[set[PoolId]]:
    """Update the jobs that wait for jobs that are done, all in one query: a job waits for fewer jobs, or is released.

    ``parents``: the numbers of the jobs that are done. Returns the pools in which jobs that waited for them are ready.
    """
    rows = (yield "pass_on_done", {"parents": dump(parents)}) if parents else ()
    return {PoolId(row["pool_id"]) for row in rows}


def state_of_requeued(row: Row) -> Script[FlowState]:
    """Return the state in which a job is requeued: see ``state_when_requeued``. Locks the parents' rows, so that none of them
    can end before the job waits again.

    Adds 1 to the link count of each unfinished parent. PostgreSQL's query ``settle_and_claim`` might have begun before the
    requeue, and would not see that the job waits again. It does not end a parent that has fewer links than this count, and
    leaves it to ``settle_locked``."""
    if row["if_failed"] is None:
        return READY
    linked = yield "list_parent_numbers", {"numbers": dump([row["seq"]])}
    rows = yield "lock_parents", {"numbers": dump(sorted(each["parent_seq"] for each in linked))}
    yield from _count_links({each["seq"]: 1 for each in rows if each["status"] not in ENDED})
    counts = ParentCounts.of([JobStatus(each["status"]) for each in rows])
    return state_when_requeued(counts, after_any=bool(row["after_any"]), if_failed=IfFailed(row["if_failed"]))


def wait_again(number: int, state: FlowState, *, has_children: bool) -> Script[None]:
    """Set the state of a requeued job. If its failure had counted as done for jobs that still wait, they wait for it again."""
    if state is not READY:
        yield "wait_again", {"numbers": dump([number]), "waits_for": state.waits_for}
    if has_children:
        yield "reopen_children", {"parent_seq": number}


def pass_on_missed_ends(children: Sequence[int]) -> Script[None]:
    """Set the state of waiting jobs from the states of all their parents: a process of an older Drumbeat, which knows no links,
    may have ended a parent without updating them. A waiting job that was tried or skipped before has been requeued, so its
    state is that of ``state_when_requeued``."""
    linked = yield "list_parent_numbers", {"numbers": dump([*children])}
    yield "lock_parents", {"numbers": dump(sorted({row["parent_seq"] for row in linked}))}
    rows = yield "lock_waiting", {"numbers": dump(sorted(children))}
    parents = yield from _parents_of(row["seq"] for row in rows)
    changes: dict[int, FlowState] = {}
    for row in rows:
        counts = ParentCounts.of([status for _, status in parents[row["seq"]]])
        state = state_after if row["is_untried"] else state_when_requeued
        found = state(counts, after_any=bool(row["after_any"]), if_failed=IfFailed(row["if_failed"]))
        if found != FlowState(JobStatus.WAITING, row["waits_for"]):
            changes[row["seq"]] = found
    reasons = {number: _reason(parents[number]) for number, found in changes.items() if found is SKIPPED}
    yield from _write(changes, reasons, {row["seq"]: PoolId(row["pool_id"]) for row in rows})
    yield from pass_on_ends({row["seq"]: JobStatus.CANCELLED for row in rows if row["seq"] in reasons and row["has_children"]})


def ended_parents(jobs: Iterable[tuple[int, JobStatus, bool]]) -> dict[int, JobStatus]:
    """Return, by number, the states of the jobs that have ended and have children. ``jobs``: number, status, has_children."""
    return {number: status for number, status, has_children in jobs if has_children and status in ENDED}


def _after_ends(row: Row, ended: ParentCounts, parents: _Parents) -> FlowState:
    policy = IfFailed(row["if_failed"])
    if row["seq"] in parents:
        statuses = [status for _, status in parents[row["seq"]]]
        return state_after(ParentCounts.of(statuses), after_any=bool(row["after_any"]), if_failed=policy)
    return state_when_done(row["waits_for"], ended.done + (ended.failed if policy is IfFailed.RUN else 0))


def _ended_parents(ends: Mapping[int, JobStatus]) -> Script[dict[int, ParentCounts]]:
    """Return, by the number of each child, how many of its parents are among the ended jobs."""
    ended: defaultdict[int, list[JobStatus]] = defaultdict(list)
    for link in (yield "list_child_links", {"parents": dump(sorted(ends))}):
        ended[link["child_seq"]].append(ends[link["parent_seq"]])
    return {child: ParentCounts.of(statuses) for child, statuses in ended.items()}


def _parents_of(children: Iterable[int]) -> Script[_Parents]:
    numbers = [*children]
    found: defaultdict[int, list[tuple[JobId, JobStatus]]] = defaultdict(list)
    for row in (yield "list_parent_states", {"numbers": dump(numbers)}) if numbers else ():
        found[row["child_seq"]].append((row_id(row), JobStatus(row["status"])))
    return found


def _write(changes: Mapping[int, FlowState], reasons: Mapping[int, str], pools: Mapping[int, PoolId]) -> Script[None]:
    """Write the new states of waiting jobs, and count the skipped ones as ended."""
    waits: defaultdict[int, list[int]] = defaultdict(list)
    skipped: defaultdict[str, list[int]] = defaultdict(list)
    for number, found in sorted(changes.items()):
        if found is SKIPPED:
            skipped[reasons[number]].append(number)
        else:
            waits[found.waits_for].append(number)
    for left, numbers in waits.items():
        if left:
            yield "set_waits", {"numbers": dump(numbers), "waits_for": left}
        else:
            yield "release_jobs", {"numbers": dump(numbers)}
    for reason, numbers in skipped.items():
        yield "skip_jobs", {"numbers": dump(numbers), "error": reason}
    counted: defaultdict[PoolId, int] = defaultdict(int)
    for number in reasons:
        counted[pools[number]] += 1
    for pool_id, jobs in sorted(counted.items()):
        yield "note_ended", {"pool_id": pool_id, "status": str(JobStatus.CANCELLED), "jobs": jobs}


def _reason(parents: Iterable[tuple[JobId, JobStatus]]) -> str:
    return skip_reason(*next((name, status) for name, status in parents if status in FAILED))


def _numbers(names: Iterable[JobId]) -> Script[dict[JobId, int]]:
    """Return the row number of each job id. Leaves out an id that a caller chose if no job has it."""
    numbers = {name: number_of(name) for name in names}
    chosen = [name for name, number in numbers.items() if number is None]
    rows = (yield "find_numbers", {"names": dump(chosen)}) if chosen else ()
    return dict(_known(numbers)) | {JobId(row["given_id"]): row["seq"] for row in rows}


def _known(numbers: Mapping[JobId, int | None]) -> Iterator[tuple[JobId, int]]:
    return ((name, number) for name, number in numbers.items() if number is not None)
