"""The failure that was seen most is told with what the database said."""

from dataclasses import replace

from bench.recorded import record
from drumbeat.bench.model import FailureExample, RunRecord, WorkerRecord
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.results.top_errors import errors_by_class, most_frequent, most_frequent_state
from drumbeat.core.worker import WorkerId


def example(error_class: str, sqlstate: str, message: str) -> FailureExample:
    return FailureExample(kind="read", error_class=error_class, sqlstate=sqlstate, message=message)


EXAMPLES = (example("QUERY_TIMEOUT", "", "gave up"), example("DATABASE_ERROR", "42P01", "no such table"))


def failing(*workers: dict[str, int]) -> RunRecord:
    """A run of ten seconds whose samples saw one failure more than its workers counted."""
    plain = record(length=10, warmup=0)
    seen = replace(plain.timeline[3], errors_by_class={"DATABASE_ERROR": 8, "QUERY_TIMEOUT": 2})
    told = [WorkerRecord(worker_id=WorkerId(str(n)), extra={"error_classes": each}) for n, each in enumerate(workers)]
    return replace(
        plain,
        totals={ALL_KINDS: replace(plain.whole, errors=9)},
        timeline=(*plain.timeline[:3], seen, *plain.timeline[4:]),
        workers=tuple(told),
        failures=EXAMPLES,
    )


def test_it_is_named_with_its_count_and_its_text() -> None:
    found = most_frequent(failing({"DATABASE_ERROR": 5}, {"DATABASE_ERROR": 2, "QUERY_TIMEOUT": 2}))

    assert found is not None
    assert found.words == "most frequent error: DATABASE_ERROR 42P01, 7 of 9: no such table"


def test_where_a_worker_could_not_say_what_it_saw_the_seconds_tell() -> None:
    assert errors_by_class(failing({"DATABASE_ERROR": 5})) == {"DATABASE_ERROR": 8, "QUERY_TIMEOUT": 2}


def test_nothing_is_told_where_nothing_failed() -> None:
    assert most_frequent(record()) is None
    assert most_frequent_state({}, lambda outcome, code: None, EXAMPLES) is None


def test_codes_are_told_apart_where_they_are_counted() -> None:
    examples = (example("DATABASE_ERROR", "23505", "duplicate key"), *EXAMPLES)

    found = most_frequent_state({(1, "23505"): 2, (1, "42P01"): 3}, lambda outcome, code: "DATABASE_ERROR", examples)

    assert found is not None
    assert (found.sqlstate, found.message, found.count, found.errors) == ("42P01", "no such table", 3, 5)
