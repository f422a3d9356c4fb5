"""Measure what a report costs: seconds, memory and bytes of the page about a store's newest version.

    python -m benchmarks.report STORE [--compare VERSION] [--rounds 3]

Each round renders the page in a new process; the file cache is not cleared before the first. Time includes the import
of the reader and, as on the page, the comparison with the previous version.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from benchmarks.machine import argument_parser, describe_machine, peak_memory


def once(store: str, compare: int | None) -> dict[str, float]:
    """Render a page in this process; return its costs and counts."""
    began = time.perf_counter()
    from indexmill.report.facts import facts_of
    from indexmill.report.report_page import rendered

    facts = facts_of(store, compare=compare)
    gathered = time.perf_counter()
    page = rendered(facts)
    return {
        "facts": gathered - began,
        "page": time.perf_counter() - gathered,
        "memory": peak_memory(),
        "bytes": len(page.encode()),
        "documents": facts.documents,
        "passages": facts.passages,
        "entities": facts.inside.entities,
        "versions": len(facts.history),
    }


def main() -> None:
    """Print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("--compare", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="render one page in this process and print its numbers")
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(once(arguments.store, arguments.compare)))
        return
    again = ["--once", *([] if arguments.compare is None else ["--compare", str(arguments.compare)])]
    command = [sys.executable, "-m", "benchmarks.report", arguments.store, *again]
    rounds = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(arguments.rounds)
    ]
    print(describe_machine())
    first = rounds[0]
    print(
        f"\n{first['documents']:,} documents, {first['passages']:,} passages, {first['entities']:,} entities, "
        f"{first['versions']:,} versions; the median of {len(rounds)} rounds\n"
    )
    print("| facts, s | page, s | peak memory, GiB | page, kB |")
    print("| --- | --- | --- | --- |")
    facts, page, memory = (statistics.median(one[name] for one in rounds) for name in ("facts", "page", "memory"))
    print(f"| {facts:.1f} | {page:.1f} | {memory:.2f} | {first['bytes'] / 1000:.0f} |")


if __name__ == "__main__":
    sys.exit(main())
