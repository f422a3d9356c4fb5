"""What traces cost: retrievals and builds with and without an SDK of OpenTelemetry that sends them.

    python -m benchmarks.traces CORPUS.jsonl QUESTIONS.jsonl [--questions 200] [--builds 3] [--method NAMES]

Builds an index of the corpus in this process, several times into new stores, in turn without an SDK, and with one whose
spans and metrics a receiving server in another process takes over OTLP. Then asks each question both ways, in turn, the
first way changing from question to question. Prints medians of wall time, and of CPU time of the whole process, its
sending threads included; the overhead of retrievals is the median difference of the two answers to a question, by the
median without. Builds vary by more than traces cost, so what their spans cost is also counted: their number, by the CPU
time that a span like them costs in this process until it is sent.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from flows.run import build_inline
from indexmill import telemetry
from schemas.config import Configuration
from tasks.core.report import Silent

WARM = 10

RECEIVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Counting(SpanProcessor):
    """Counts spans that end."""

    spans = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.spans += 1


class Sdk:
    """An SDK as `indexmill.telemetry_sdk` sets it up, that can be taken away again."""

    def __init__(self, url: str) -> None:
        self.counting = Counting()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url}/v1/traces")))
        self.tracers.add_span_processor(self.counting)
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=f"{url}/v1/metrics"))
        self.meters = MeterProvider([reader], shutdown_on_exit=False)

    @contextlib.contextmanager
    def there(self, wanted: bool) -> Iterator[None]:
        """The block's providers are this SDK's, if wanted."""
        if not wanted:
            yield
            return
        with (
            patch.object(trace, "get_tracer_provider", lambda: self.tracers),
            patch.object(metrics, "get_meter_provider", lambda: self.meters),
        ):
            yield


@contextlib.contextmanager
def receiver() -> Iterator[str]:
    """The address of a server in another process that takes everything."""
    process = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall time of some work, and the CPU time of the process meanwhile."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def medians(took: list[tuple[float, float]]) -> tuple[float, float]:
    """Of wall and CPU times."""
    wall, cpu = zip(*took, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def span_seconds(sdk: Sdk, rounds: int = 500) -> float:
    """CPU time that one span costs this process, with as many attributes as those of a part, until it is sent."""
    attributes: dict[str, Any] = {f"indexmill.attribute{number}": number for number in range(10)}

    def many() -> None:
        for _ in range(rounds):
            with telemetry.span("part embed", attributes) as told:
                told.set({"indexmill.part.rows": 1})
        sdk.tracers.force_flush()

    with sdk.there(True):
        return statistics.median(seconds(many)[1] / rounds for _ in range(5))


def measure_builds(sdk: Sdk, corpus: Path, folder: Path, builds: int) -> Path:
    """Print what builds cost; returns one of their stores."""
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    store = folder / "store"
    for number, traced in itertools.product(range(builds + 1), (False, True)):
        store = folder / f"store-{number}-{traced}"
        configuration = Configuration.model_validate({"store": str(store), "corpus": {"paths": [str(corpus)]}})
        before = sdk.counting.spans
        with sdk.there(traced):
            once = seconds(lambda: build_inline(configuration, progress=Silent()))  # noqa: B023 - called at once
        if number:  # the first of each warms up
            took[traced].append(once)
        spans = sdk.counting.spans - before
    cost = span_seconds(sdk)
    for what, plain, more in zip(("wall", "CPU"), medians(took[False]), medians(took[True]), strict=True):
        print(f"build, {what:4}              without {plain:9.2f} s   with {more:9.2f} s   {more / plain - 1:+.2%}")
    share = spans * cost / medians(took[False])[1]
    print(f"  counted: {spans} spans of {cost * 1e6:.0f} µs: {share:.3%} of the build's CPU time")
    return store


def measure_retrievals(sdk: Sdk, store: Path, questions: list[str], methods: list[str]) -> None:
    """Print what retrievals cost, one question at a time."""
    with indexmill.open(store) as snapshot:
        for method in methods:
            took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for number, question in enumerate([*questions[:WARM], *questions]):
                for traced in (False, True) if number % 2 else (True, False):
                    with sdk.there(traced):
                        once = seconds(lambda: snapshot.retrieve(question, method=method, k=10))  # noqa: B023
                    if number >= WARM:
                        took[traced].append(once)
            pairs = zip(took[True], took[False], strict=True)
            differences = [(one[0] - other[0], one[1] - other[1]) for one, other in pairs]
            for what, plain, more in zip(("wall", "CPU"), medians(took[False]), medians(differences), strict=True):
                both = f"without {plain * 1e3:9.3f} ms  with {(plain + more) * 1e3:9.3f} ms"
                told = f"retrieve, {method:6} {what:4}   {both}"
                print(f"{told}  {more / plain:+.2%}", flush=True)


def off_seconds(rounds: int = 100_000) -> tuple[float, float]:
    """What a span and a stage cost where nobody traces."""

    def spans() -> None:
        for _ in range(rounds):
            with telemetry.span("x"):
                pass

    def stages() -> None:
        for _ in range(rounds):
            with telemetry.stage("x"):
                pass

    return seconds(spans)[1] / rounds, seconds(stages)[1] / rounds


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--questions", dest="most", type=int, default=200)
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--method", default="fused,dense,bm25")
    chosen = parser.parse_args()
    with chosen.questions.open(encoding="utf-8") as lines:
        asked = [json.loads(line)["question"] for line in lines]
    questions = list(itertools.islice(itertools.cycle(asked), chosen.most))
    print(describe_machine())
    with receiver() as url, tempfile.TemporaryDirectory(prefix="indexmill-traces-") as folder:
        sdk = Sdk(url)
        span, stage = off_seconds()
        print(f"without an SDK: a span {span * 1e9:.0f} ns, a stage of a retrieval {stage * 1e9:.0f} ns")
        store = measure_builds(sdk, chosen.corpus, Path(folder), chosen.builds)
        measure_retrievals(sdk, store, questions, chosen.method.split(","))
        sdk.tracers.shutdown()
        sdk.meters.shutdown()


if __name__ == "__main__":
    main()
