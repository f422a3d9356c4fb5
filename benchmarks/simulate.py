"""Replay a recorded run on other simulated workers, and on a larger corpus.

    python -m benchmarks.simulate replay STORE [--run RUN] [--workers 1,2,8,64,512]
    python -m benchmarks.simulate scale STORE (--documents N | --tokens N) [--with SMALLER_STORE ...]
                                        [--law STAGE=LAW ...] [--steps-of STORE STEP ... [--steps-run RUN]]
                                        [--wave-shards N] [--worker-price X] [--store-price X]

`replay` takes the run of a store that made the most parts: its graph of steps, the seconds of each part, the driver's
own work between them. It simulates the run with `benchmarks.schedule` on the given workers, and prints the speed-up and
what the run waits for: `workers` (all are busy, more would help), a stage (its last parts are running, other workers
are idle), `driver` (its own work between rounds), `scheduler` (idle workers wait for a part), or `start and end`
(worker start-up, publishing). `bound` is the longest chain of parts, which no number of workers can beat.

    --clock processor   CPU seconds instead of wall seconds: for runs of a busy machine
    --latency MS --bandwidth MB/S   of a bucket instead of the folder: per request, and per worker
    --handing MS        time of the scheduler and the driver for each part; default: measured on this machine
    --cores N           all workers share a machine of N cores with the driver; default: a core for each worker

`scale` first scales the run to a larger corpus: more parts of shards and groups, longer whole-corpus parts. These grow
linearly by default, by the exponent between the runs of STORE and of smaller stores (`--with`), or by `--law` (`parts`,
`constant`, `linear`, `nlogn`, an exponent). It prints the laws. `--steps-of` takes some steps from another run over the
same corpus, such as one of a later release with a cheap encoder. `--tokens` counts passage tokens of the published
version. `--wave-shards` simulates a backfill. Prices are per worker and hour, and per GB of the store and month.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import indexmill
from benchmarks.growth import DRIVER, END, Law, in_waves, laws_of, measured_laws, parse_law, scaled, with_steps_of
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.recorded_run import (
    NO_STORE,
    Clock,
    RecordedRun,
    StoreModel,
    graph_of,
    read_run,
)
from benchmarks.schedule import Played, Workers, critical_path, play
from indexmill.errors import IndexmillError
from storage.stores import open_store

START_AND_END = "start and end"
WIDTHS = (1, 2, 8, 64, 512)


@dataclasses.dataclass(frozen=True)
class Replay:
    """A simulated run, its start and end included."""

    workers: int
    seconds: float
    played: Played
    waited: dict[str, float]

    @property
    def causes(self) -> list[str]:
        """The causes of waits with their shares of the run, the longest first."""
        ordered = sorted(self.waited.items(), key=lambda item: (-item[1], item[0]))
        return [f"{name} ({took / max(self.seconds, 1e-9):.0%})" for name, took in ordered]

    @property
    def busy(self) -> float:
        """The share of the workers' time that is busy."""
        return sum(self.played.busy.values()) / max(self.workers * self.seconds, 1e-9)


def replay(run: RecordedRun, workers: Workers, clock: Clock, store: StoreModel = NO_STORE) -> Replay:
    """Simulate a run with its recorded start and end."""
    played = play(graph_of(run, clock, store), workers)
    ends = run.start_seconds + run.end_seconds
    return Replay(workers.count, played.seconds + ends, played, {**played.waited, START_AND_END: ends})


# Measured on this machine


def nothing() -> None:
    """A call without work."""


def handing_seconds(calls: int = 400) -> tuple[float, float]:
    """Measure an empty call: CPU seconds in this process, over many calls, and the wall seconds of a single call.

    The CPU seconds are those of the scheduler and the driver, which serve all workers from one thread each of the same
    interpreter.
    """
    from flows.cluster import private_cluster
    from flows.dask_executor import DaskExecutor
    from tasks.core.executor import Call

    with tempfile.TemporaryDirectory(prefix="indexmill-simulate-") as folder, private_cluster(1, folder) as client:
        executor = DaskExecutor(client)

        def run(name: str, count: int) -> None:
            for _ in executor.run([Call(f"{name}-{number}", nothing, ()) for number in range(count)]):
                pass

        def alone(name: str) -> float:
            began = time.perf_counter()
            run(name, 1)
            return time.perf_counter() - began

        run("warm", 20)
        trip = statistics.median(alone(f"alone-{number}") for number in range(15))
        began = time.process_time()
        run("many", calls)
        return (time.process_time() - began) / calls, trip


# The commands


def show_replays(run: RecordedRun, chosen: argparse.Namespace, store: StoreModel, handing: float) -> list[Replay]:
    """Print the table of a run on each number of workers."""
    clock: Clock = chosen.clock
    bound = critical_path(graph_of(run, clock, store)) + run.start_seconds + run.end_seconds
    print("| workers | time | speed-up | workers busy | waits for | then for |")
    print("| --- | --- | --- | --- | --- | --- |")
    shown: list[Replay] = []
    for count in chosen.workers:
        workers = Workers(
            count,
            handing,
            run.pause,
            run.opening,
            cores=chosen.cores,
            driver=run.driver_share if chosen.cores else 0.0,
        )
        replayed = replay(run, workers, clock, store)
        shown.append(replayed)
        first, second = [*replayed.causes, "nothing (0%)"][:2]
        alone = shown[0].seconds * shown[0].workers if shown[0].workers == 1 else math.nan
        cells = (
            f"{count:,}",
            _time(replayed.seconds),
            f"{alone / replayed.seconds:.1f}",
            f"{replayed.busy:.0%}",
            first,
            second,
        )
        print("|", " | ".join(cells), "|", flush=True)
    ends = _time(run.start_seconds + run.end_seconds)
    print(f"\nbound: {_time(bound)}, the longest chain of parts, with {ends} of start and end")
    return shown


def _time(seconds: float) -> str:
    return (
        f"{seconds:,.1f} s"
        if seconds < 600
        else f"{seconds / 60:,.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:,.1f} h"
    )


def show_run(run: RecordedRun, store: str) -> None:
    """Print a summary of the recorded run."""
    parts = run.parts
    print(
        f"run {run.run_id} of {store}: {run.documents:,} documents, {len(parts):,} parts by {run.workers} workers, "
        f"{_time(run.seconds)}; parts {_time(sum(part.seconds for part in parts))}, of processors "
        f"{_time(sum(part.processor_seconds for part in parts))}; the driver takes {run.driver_share:.2f} cores; "
        f"{sum(part.bytes_read for part in parts) / 1e6:,.0f} MB read, "
        f"{sum(part.bytes_made for part in parts) / 1e6:,.0f} MB made"
    )


def _handing(chosen: argparse.Namespace) -> float:
    if chosen.handing is not None:
        return float(chosen.handing) / 1e3
    each, alone = handing_seconds()
    print(f"handing out a part takes {each * 1e3:.1f} ms of the driver; an empty one alone {alone * 1e3:.1f} ms, here")
    return each


def _store(chosen: argparse.Namespace) -> StoreModel:
    bandwidth = chosen.bandwidth * 1e6 if chosen.bandwidth is not None else math.inf
    if chosen.latency or chosen.bandwidth is not None:
        print(
            f"a store of {chosen.latency:g} ms a request and {chosen.bandwidth or math.inf:g} MB/s for a worker; each "
            "part fetches what it opens, though a worker keeps it"
        )
    return StoreModel(chosen.latency / 1e3, bandwidth)


def command_replay(chosen: argparse.Namespace) -> int:
    """Print a recorded run on other workers."""
    run = read_run(open_store(chosen.store), chosen.run)
    print(describe_machine())
    show_run(run, chosen.store)
    store, handing = _store(chosen), _handing(chosen)
    print()
    show_replays(run, chosen, store, handing)
    return 0


def command_scale(chosen: argparse.Namespace) -> int:
    """Print a recorded run over a larger corpus."""
    run = read_run(open_store(chosen.store), chosen.run)
    if chosen.steps_of:
        place, *names = chosen.steps_of
        try:
            run = with_steps_of(run, read_run(open_store(place), chosen.steps_run), names)
        except ValueError as error:
            raise SystemExit(f"--steps-of {place}: {error}") from error
    others = [read_run(open_store(store)) for store in chosen.smaller]
    print(describe_machine())
    show_run(run, chosen.store)
    factor = _factor(chosen, run)
    laws = laws_of(run, {**measured_laws([*others, run]), **dict(chosen.law)})
    grown = scaled(run, factor, laws)
    store, handing = _store(chosen), _handing(chosen)
    if chosen.wave_shards is not None:
        grown = in_waves(grown, chosen.wave_shards)
    print(f"\n{factor:,.1f} times the documents: {grown.documents:,}\n")
    show_laws(run, grown, laws)
    print()
    replays = show_replays(grown, chosen, store, handing)
    store_bytes = sum(part.bytes_made for part in grown.parts)
    largest = max(grown.parts, key=lambda part: part.process_bytes)
    print(
        f"the store gets {store_bytes / 1e9:,.1f} GB; the largest process has {largest.process_bytes / 1e9:,.2f} GB, "
        f"where {largest.stage} reads {largest.bytes_read / 1e9:,.2f} GB"
    )
    if chosen.worker_price is not None or chosen.store_price is not None:
        show_prices(replays, store_bytes, chosen)
    return 0


def _factor(chosen: argparse.Namespace, run: RecordedRun) -> float:
    if chosen.documents is not None:
        return float(chosen.documents) / run.documents
    with indexmill.open(chosen.store) as snapshot:
        tokens = sum(snapshot.table("passages", ["tokens"]).column(0).to_pylist())
    print(f"{tokens:,} tokens of passages")
    return float(chosen.tokens) / tokens


def show_laws(run: RecordedRun, grown: RecordedRun, laws: dict[str, Law]) -> None:
    """Print the law of each stage, with its parts and CPU seconds before and after."""
    print("| stage | law | from | parts | then | processor s | then |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for stage, law in laws.items():
        if stage in {DRIVER, END}:
            print(f"| {stage} | {law} | {law.why} | | | | |")
            continue
        counts, took = [], []
        for stage_run in (run, grown):
            parts = [part for part in stage_run.parts if part.stage == stage]
            counts.append(f"{len(parts):,}")
            took.append(f"{sum(part.processor_seconds for part in parts):,.1f}")
        cells = (stage, str(law), law.why, counts[0], counts[1], took[0], took[1])
        print("|", " | ".join(cells), "|")


def show_prices(replays: Sequence[Replay], store_bytes: int, chosen: argparse.Namespace) -> None:
    """Print the costs of the workers and the store."""
    print("\n| workers | worker hours | workers cost | store, a month |")
    print("| --- | --- | --- | --- |")
    for replayed in replays:
        hours = replayed.workers * replayed.seconds / 3600
        worker, month = hours * (chosen.worker_price or 0.0), store_bytes / 1e9 * (chosen.store_price or 0.0)
        print(f"| {replayed.workers:,} | {hours:,.1f} | {worker:,.2f} | {month:,.2f} |")


def _counts(text: str) -> list[int]:
    counts = [int(count) for count in text.split(",")]
    if not counts or min(counts) < 1:
        raise ValueError(text)
    return counts


def _law(text: str) -> tuple[str, Law]:
    stage, _, law = text.partition("=")
    return stage, parse_law(law)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the commands."""
    options = argument_parser(__doc__)
    commands = options.add_subparsers(dest="command", required=True)
    playing = argparse.ArgumentParser(add_help=False)
    playing.add_argument("store")
    playing.add_argument("--run")
    playing.add_argument("--workers", type=_counts, default=list(WIDTHS))
    playing.add_argument("--clock", choices=("wall", "processor"), default="wall")
    playing.add_argument("--latency", type=float, default=0.0, help="milliseconds of a request to the store")
    playing.add_argument("--bandwidth", type=float, help="MB/s of a worker")
    playing.add_argument("--handing", type=float, help="milliseconds of the scheduler for a part")
    playing.add_argument("--cores", type=float)
    commands.add_parser("replay", parents=[playing]).set_defaults(run_command=command_replay)
    scale = commands.add_parser("scale", parents=[playing])
    size = scale.add_mutually_exclusive_group(required=True)
    size.add_argument("--documents", type=int)
    size.add_argument("--tokens", type=float)
    scale.add_argument("--with", dest="smaller", nargs="+", default=[], help="stores of smaller corpora")
    scale.add_argument("--law", type=_law, nargs="+", default=[])
    scale.add_argument("--wave-shards", type=int)
    scale.add_argument(
        "--steps-of", nargs="+", default=[], metavar=("STORE", "STEP"), help="take these steps from the run of STORE"
    )
    scale.add_argument(
        "--steps-run", metavar="RUN", help="the run of that store; default: the one that made the most parts"
    )
    scale.add_argument("--worker-price", type=float)
    scale.add_argument("--store-price", type=float)
    scale.set_defaults(run_command=command_scale)
    return options


def main() -> int:
    chosen = parser().parse_args()
    try:
        result: int = chosen.run_command(chosen)
    except IndexmillError as error:
        raise SystemExit(str(error)) from error
    return result


if __name__ == "__main__":
    sys.exit(main())
