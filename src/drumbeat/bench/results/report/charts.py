"""Describes the charts of a run's report: throughput, latency, connections, resources, server, search steps."""

from collections.abc import Callable, Sequence
from itertools import groupby

from drumbeat.bench.model.best import best_of, find_max_steps, knee_of
from drumbeat.bench.model.record import RunRecord, Second, ServerSecond
from drumbeat.bench.results.availability import availability_of
from drumbeat.bench.results.report.scale import is_wide
from drumbeat.bench.results.report.svg import Axis, Band, Chart, ChartSeries, Mark, Point, SeriesShape
from drumbeat.core.histogram import Histogram, bucket_bounds

_GUARDRAILS = ("SCALE_DOWN", "GUARDRAIL_WARNING")
_HISTOGRAM_BARS = 60
_MOST_EVENTS = 5


def bands(record: RunRecord) -> list[Band]:
    """Return the phases of the run as background bands of a chart."""
    found = []
    for phase, group in groupby(record.timeline, key=lambda second: second.phase):
        seconds = list(group)
        if phase:
            found.append(Band(label=phase, begin=seconds[0].offset, end=seconds[-1].offset + 1))
    return found


def _over_time(
    record: RunRecord,
    name: str,
    of: Callable[[Second], float | None],
    colour: int,
    *,
    shape: SeriesShape = SeriesShape.LINE,
    dashed: bool = False,
) -> ChartSeries:
    points: list[Point] = [(second.offset, of(second)) for second in record.timeline]
    return ChartSeries(name=name, points=points, colour=colour, shape=shape, dashed=dashed)


def throughput(record: RunRecord) -> Chart:
    series = [_over_time(record, "operations", lambda second: second.qps, 1, shape=SeriesShape.AREA)]
    if any(second.errors for second in record.timeline):
        series.append(_over_time(record, "errors", lambda second: second.errors, 5))
    marks = []
    if record.plan.load_mode == "QPS":
        marks.append(Mark(label=f"target {record.plan.qps.target_qps:g}/s", y=record.plan.qps.target_qps, colour=6))
    marks += outage_marks(record)
    return Chart(title="Throughput", unit="operations/s", series=series, marks=marks, bands=bands(record))


def latency(record: RunRecord) -> Chart:
    series = [
        _over_time(record, "p50", lambda second: second.p50_ms, 3),
        _over_time(record, "p95", lambda second: second.p95_ms, 1),
        _over_time(record, "p99", lambda second: second.p99_ms, 2),
    ]
    values = [y for each in series for _, y in each.points if y is not None]
    log = is_wide(values)
    title = "Latency, all workers merged" + (" (logarithmic)" if log else "")
    return Chart(title=title, unit="ms", series=series, log=log, bands=bands(record))


def histogram(record: RunRecord) -> Chart:
    packed = record.whole.histogram
    whole = Histogram.from_bytes(packed) if packed else Histogram()
    latency = record.whole.latency
    named = {"p50": latency.p50_ms, "p95": latency.p95_ms, "p99": latency.p99_ms}
    marks = [Mark(label=f"{name} {value:.3g} ms", x=value, colour=2, drawn=name) for name, value in named.items() if value]
    bars = ChartSeries(name="operations", points=_bars(whole), colour=1, shape=SeriesShape.BARS)
    return Chart(
        title="Latency histogram of the measurement", unit="operations", series=[bars],
        across="milliseconds (logarithmic)", axis=Axis.LOG, marks=marks,
    )  # fmt: skip


def _bars(whole: Histogram) -> list[Point]:
    """Return the bars of a latency histogram: equally wide on a logarithmic axis, as high as their number of operations."""
    if whole.least is None or whole.greatest is None:
        return []
    low, high = max(whole.least, 1) / 1e6, max(whole.greatest, 2) / 1e6 * 1.02
    ratio = (high / low) ** (1 / _HISTOGRAM_BARS)
    edges = [low * ratio**n for n in range(_HISTOGRAM_BARS + 1)]
    counts = [0.0] * _HISTOGRAM_BARS
    place = 0
    for bucket, count in whole.buckets():
        middle = sum(bucket_bounds(bucket)) / 2e6
        while place < _HISTOGRAM_BARS - 1 and middle >= edges[place + 1]:
            place += 1
        counts[place] += count
    return [*zip(edges, counts, strict=False), (edges[-1], None)]


def connections(record: RunRecord) -> Chart:
    series = [
        _over_time(record, "open", lambda second: second.held, 1, shape=SeriesShape.AREA),
        _over_time(record, "target", lambda second: second.target, 2, dashed=True),
    ]
    return Chart(title="Connections, all workers", unit="connections", whole=True, series=series, bands=bands(record))


def worker_count(record: RunRecord) -> Chart:
    series = [_over_time(record, "measuring workers", lambda second: second.workers, 4)]
    return Chart(title="Workers", unit="workers", whole=True, series=series, bands=bands(record))


def resources(record: RunRecord) -> Chart:
    rails = record.plan.guardrails
    series = [
        _over_time(record, "CPU", lambda second: second.cpu_percent, 1),
        _over_time(record, "memory", lambda second: second.memory_percent, 4),
    ]
    cpu, memory = rails.max_cpu_percent, rails.max_memory_percent
    limits = [
        Mark(label=f"CPU guardrail {cpu:g} %", y=cpu, colour=2, below=cpu <= memory),
        Mark(label=f"memory guardrail {memory:g} %", y=memory, colour=6, below=memory < cpu),
    ]
    return Chart(
        title="CPU and memory of the workers' hosts, mean (vertical lines: guardrail actions)", unit="%", series=series,
        marks=[*(limits if rails.enabled else ()), *guardrail_marks(record)], bands=bands(record),
    )  # fmt: skip


def outage_marks(record: RunRecord) -> list[Mark]:
    """Return a vertical line for the start and for the end of each outage."""
    found = availability_of(record)
    edges = [(began, ended) for began, ended in found.stretches[:25]] if found else []
    return [
        Mark(
            label=f"no service for {ended - began} s" if x == began else "service restored",
            x=x,
            drawn="no service" if x == began else "",
        )
        for began, ended in edges
        for x in (began, ended)
    ]


def guardrail_marks(record: RunRecord) -> list[Mark]:
    actions = [each for each in record.decisions if each.what.startswith(_GUARDRAILS)]
    return [Mark(label=f"{each.what}: {each.reason}", x=each.offset) for each in actions[:50]]


def server(record: RunRecord) -> Chart:
    def points(of: Callable[[ServerSecond], float | None]) -> list[Point]:
        return [(round(second.offset, 1), of(second)) for second in record.server]

    series = [
        ChartSeries(name="sessions", points=points(lambda second: second.sessions), colour=6),
        ChartSeries(name="active", points=points(lambda second: second.active), colour=1),
        ChartSeries(name="waiting", points=points(lambda second: second.waiting), colour=2),
        ChartSeries(name="lock waits", points=points(lambda second: second.lock_waits), colour=5),
    ]
    known = [each for each in series if any(y is not None for _, y in each.points)]
    return Chart(title="Database sessions", unit="sessions", whole=True, series=known)


def wait_events(record: RunRecord) -> Chart:
    """Return a chart of the most common wait events of database sessions."""
    totals: dict[str, int] = {}
    for second in record.server:
        for event, count in second.wait_events.items():
            totals[event] = totals.get(event, 0) + count
    commonest = sorted(totals, key=lambda event: -totals[event])[:_MOST_EVENTS]
    series = [
        ChartSeries(
            name=event, points=[(round(each.offset, 1), each.wait_events.get(event, 0)) for each in record.server], colour=n + 1
        )
        for n, event in enumerate(commonest)
    ]
    return Chart(title="Wait events of sessions", unit="sessions", whole=True, series=series)


def steps(record: RunRecord) -> Chart:
    found = find_max_steps(record)
    stable: list[Point] = [(step.to_target, step.qps) for step in found if step.outcome == "STABLE"]
    failed: list[Point] = [(step.to_target, step.qps) for step in found if step.outcome not in ("STABLE", "HELD", None)]
    series = [
        ChartSeries(name="stable", points=stable, colour=3, shape=SeriesShape.POINTS),
        ChartSeries(name="not stable", points=failed, colour=5, shape=SeriesShape.POINTS),
    ]
    if curve := _law(record):
        series.append(ChartSeries(name="fitted scalability law (USL)", points=curve, colour=6, dashed=True))
    return Chart(
        title="Throughput by connections, and the knee", unit="operations/s", series=[each for each in series if each.points],
        across="connections", axis=Axis.EVEN, marks=_knees(record),
    )  # fmt: skip


def _knees(record: RunRecord) -> list[Mark]:
    best, knee = best_of(record), knee_of(record)
    highest = max((step.to_target for step in find_max_steps(record)), default=0)
    marks = (
        [
            Mark(
                label=f"best stable level: {best.connections:g} connections",
                x=best.connections,
                colour=3,
                drawn=f"best {best.connections:g}",
            )
        ]
        if best
        else []
    )
    if knee and knee <= 1.5 * highest:
        marks.append(Mark(label=f"USL peak: {knee:.1f} connections", x=knee, colour=6, drawn=f"USL peak {knee:.3g}"))
    return marks


def _law(record: RunRecord) -> Sequence[Point]:
    """Return the fitted Universal Scalability Law, λN / (1 + σ(N−1) + κN(N−1)), as points up to the most connections tried."""
    usl = record.find_max_result.get("usl") or {}
    if not all(isinstance(usl.get(name), int | float) for name in ("lambda", "sigma", "kappa")):
        return []
    highest = max((step.to_target for step in find_max_steps(record)), default=0)
    levels = [highest * n / 60 for n in range(1, 61)] if highest else []
    return [(n, usl["lambda"] * n / (1 + usl["sigma"] * (n - 1) + usl["kappa"] * n * (n - 1))) for n in levels if n >= 1]


def step_latency(record: RunRecord) -> Chart:
    found = [step for step in find_max_steps(record) if step.outcome != "HELD"]
    series = [
        ChartSeries(name="p95", points=[(step.to_target, step.p95_ms) for step in found], colour=1, shape=SeriesShape.POINTS),
        ChartSeries(name="p99", points=[(step.to_target, step.p99_ms) for step in found], colour=2, shape=SeriesShape.POINTS),
    ]
    values = [y for each in series for _, y in each.points if y is not None]
    return Chart(
        title="Latency by connections", unit="ms", series=series, across="connections", axis=Axis.EVEN, log=is_wide(values),
        marks=_knees(record)[:1],
    )  # fmt: skip


def per_worker(record: RunRecord) -> Chart:
    """Return a chart of each worker's throughput; empty with more than 8 workers, as so many lines are unreadable."""
    few = record.workers if len(record.workers) <= 8 else ()
    series = [
        ChartSeries(name=str(worker.worker_id), points=[(round(s.offset, 1), s.qps) for s in worker.series], colour=n + 1)
        for n, worker in enumerate(few)
    ]
    return Chart(title="Throughput of each worker", unit="operations/s", series=series)
