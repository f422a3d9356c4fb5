"""Run the installed commands on real documents, and print a table of checks, each with its value and its floor.

    python -m benchmarks.acceptance [DATA] [--work DIR] [--only ROW] [--json]

DATA is the folder of the corpora, by default ../shared/data beside the checkout. A row of the table is not run if its
data are missing. Prefect, Dask, HTTP, MCP and the bucket are real, in their own processes, and the encoder is the
default.

--only runs the rows whose names contain ROW, and the rows they require: `--only "2wiki: serve"`, `--only recall`; it
may be repeated. Corpora, stores and the output of every command are in a temporary folder, or stay in --work DIR, which
must be empty. Two groups of rows run at a time. The CPU seconds of a row are those of its processes, without killed
processes. The exit code is 1 if a row fails or is below its floor.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.acceptance.corpora import TECHDOCS, WIKI
from benchmarks.acceptance.documents import DOCUMENTS
from benchmarks.acceptance.durability import DURABILITY
from benchmarks.acceptance.floors import TECHDOCS_RECALL, WIKI_RECALL
from benchmarks.acceptance.journey import journey
from benchmarks.acceptance.languages import LANGUAGES
from benchmarks.acceptance.rows import AcceptanceRow, Group, run_group
from benchmarks.acceptance.table import exit_code, markdown, to_json
from benchmarks.machine import argument_parser, describe_machine

DATA = Path(__file__).parents[2] / "../shared/data"

LATER = Group(
    "later",
    (
        AcceptanceRow("a real language model", reason="comes with the work on models"),
        AcceptanceRow("a real multilingual encoder", reason="comes with the work on models"),
    ),
)

GROUPS = (
    journey("techdocs", TECHDOCS, TECHDOCS_RECALL),
    journey("2wiki", WIKI[600], WIKI_RECALL),
    DURABILITY,
    DOCUMENTS,
    LANGUAGES,
    LATER,
)
"""The groups, the longest first, since two run at a time."""


@contextlib.contextmanager
def work_folder(chosen: Path | None) -> Iterator[Path]:
    """Yield the folder of the run: the chosen one, or a temporary one."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="indexmill-acceptance-") as temporary:
        yield Path(temporary)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rows and print the table; return 1 if a row fails."""
    parser = argument_parser(__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=DATA, metavar="DATA")
    parser.add_argument("--work", type=Path, metavar="DIR")
    parser.add_argument("--only", action="append", default=[], metavar="ROW")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    chosen = parser.parse_args(argv)
    if chosen.work is not None and chosen.work.exists() and any(chosen.work.iterdir()):
        parser.error(f"{chosen.work} is not empty")
    groups = [group for group in (group.choose(chosen.only) for group in GROUPS) if group.rows]
    if not groups:
        parser.error(f"no row has {' or '.join(chosen.only)} in its name")
    began = time.perf_counter()
    with work_folder(chosen.work) as work, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run_group, group, chosen.data.resolve(), work) for group in groups]
        lines = [line for future in futures for line in future.result()]
    if chosen.json:
        print(json.dumps(to_json(lines)))
    else:
        print(f"{describe_machine()}\n")
        print("\n".join(markdown(lines)))
        print(f"{time.perf_counter() - began:.0f} s, {sum(line.cpu for line in lines):.0f} CPU s")
    return exit_code(lines)


if __name__ == "__main__":
    sys.exit(main())
