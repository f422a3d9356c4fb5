"""What a night reads of many small files of which few changed, in a folder and in a bucket.

    python -m benchmarks.night_of_files [--docs 10000] [--change 10] [--bucket s3://BUCKET/PREFIX]
    python -m benchmarks.night_of_files --docs 300       # a minute, for every day

The same documents are put into a folder and into a bucket: moto's server on this machine, unless `--bucket` names an
empty prefix of another. Each place is built into a store of its own with the real command: for the first time, after
`--change` documents were edited (a night), with nothing edited, and after as many edits again with `--full`, which
reads everything. Vectors are made by the encoder `hash` and the only family is bm25, so that reading is most of it.

files read, unchanged: as the run's record has them. GET, HEAD, LIST: requests that reached the service, counted by a
proxy in front of it; `-` for a folder and for `--bucket`. read: seconds of listing, comparing and reading, until the
documents are in shards. wall: the whole command, of which some seconds are the start of Prefect.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from benchmarks.machine import argument_parser, describe_machine, run_command
from tests.storage.services import FaultProxy, bucket_of, s3_environment, s3_service

_WORDS = ["amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "kettle", "meadow"]


@dataclass(frozen=True)
class Place:
    """Where documents are: the source of the corpus, how one is put there, and what was asked of its service so far."""

    name: str
    corpus: dict[str, Any]
    put: Callable[[str, bytes], object]
    asked: Callable[[], Counter[str]] | None


def document(number: int, edition: int) -> tuple[str, bytes]:
    """A document's name and text; another edition has other words."""
    words = [_WORDS[(number * step + edition) % len(_WORDS)] for step in range(1, 40)]
    lines = [" ".join(words[at : at + 10]).capitalize() + "." for at in range(0, len(words), 10)]
    text = f"# Note {number}\n\n{' '.join(lines)} This is edition {edition} of note {number}.\n"
    return f"{number // 100:04d}/note-{number:07d}.md", text.encode()


def write(place: Place, numbers: range, edition: int) -> None:
    """Put an edition of some documents into a place."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: place.put(*document(number, edition)), numbers))


def build(place: Place, folder: Path, *options: str) -> list[str]:
    """Build with the real command; the cells of its row."""
    settings = folder / f"{place.name}.yaml"
    off = {family: {"enabled": False} for family in ("tri_graph", "zoom_graph", "lsh_tree")}
    settings.write_text(
        yaml.safe_dump({"corpus": place.corpus, "embed": {"model": "hash"}, "families": off}), encoding="utf-8"
    )
    store = folder / f"{place.name}-store"
    before = place.asked() if place.asked is not None else Counter[str]()
    began = time.perf_counter()
    outcome = run_command("build", "--config", settings, "--store", store, *options)
    wall = time.perf_counter() - began
    asked = place.asked() - before if place.asked is not None else None
    run = run_command("runs", outcome["run"], "--store", store)
    return [
        f"{outcome['documents']:,}",
        f"{outcome['files_read']:,}",
        f"{outcome['files_unchanged']:,}",
        *("-" if asked is None else f"{asked[kind]:,}" for kind in ("GET", "HEAD", "LIST")),
        seconds_of_reading(run),
        f"{wall:.1f}",
    ]


def seconds_of_reading(run: dict[str, Any]) -> str:
    """The seconds from the beginning of `ingest`, which lists first, to its last part; `-` where it made none."""
    began = run.get("stages", {}).get("ingest", {}).get("began_seconds")
    ends = [span[3] for span in run.get("timeline", {}).get("spans", []) if span[1] == "ingest"]
    return "-" if began is None or not ends else f"{max(ends) - began:.1f}"


def in_folder(folder: Path) -> Place:
    """A folder of this machine."""

    def put(name: str, data: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return Place("folder", {"paths": [str(folder)]}, put, None)


@contextlib.contextmanager
def in_bucket(url: str | None) -> Iterator[Place]:
    """A bucket of moto's server behind a proxy that counts, or the one that a URL names."""
    from obstore.store import from_url

    with contextlib.ExitStack() as stack:
        asked = None
        if url is None:
            service = stack.enter_context(s3_service())
            url = bucket_of(service)
            client = from_url(url, client_options={"allow_http": True})
            proxy = stack.enter_context(FaultProxy(service))
            stack.enter_context(s3_environment(proxy.url))

            def asked() -> Counter[str]:
                return Counter(map(kind_of_request, list(proxy.requests)))

        else:
            client = from_url(url, client_options={"allow_http": "AWS_ALLOW_HTTP" in os.environ})
        yield Place("bucket", {"sources": [{"kind": "bucket", "url": url}]}, client.put, asked)


def kind_of_request(request: tuple[str, str]) -> str:
    """A request's method; LIST for a GET of a page of a listing."""
    method, path = request
    return "LIST" if method == "GET" and "list-type" in parse_qs(urlsplit(path).query) else method


def main() -> int:
    """Print the table; 1 if a night read more than what changed."""
    parser = argument_parser(__doc__)
    parser.add_argument("--docs", type=int, default=10_000)
    parser.add_argument("--change", type=int, default=10)
    parser.add_argument("--places", nargs="+", choices=("folder", "bucket"), default=("folder", "bucket"))
    parser.add_argument("--bucket", help="the URL of an empty prefix to use; a bucket of moto's server by default")
    arguments = parser.parse_args()
    print(describe_machine())
    print(f"\n{arguments.docs:,} documents, {arguments.change:,} of them edited in each night\n")
    print("| place | build | documents | files read | unchanged | GET | HEAD | LIST | read, s | wall, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    failed = False
    with tempfile.TemporaryDirectory() as temporary, in_bucket(arguments.bucket) as bucket:
        folder = Path(temporary)
        os.environ["INDEXMILL_CACHE"] = str(folder / "cache")
        for place in (in_folder(folder / "documents"), bucket):
            if place.name not in arguments.places:
                continue
            write(place, range(arguments.docs), 0)
            if place.asked is None:
                time.sleep(3)  # a file that has just been written may change without a trace in its times
            step = max(arguments.docs // arguments.change, 1)
            edited = range(0, step * arguments.change, step)
            for name, edition, options in (
                ("first", 0, ()),
                ("night", 1, ()),
                ("nothing edited", 1, ()),
                ("night --full", 2, ("--full",)),
            ):
                if edition and name != "nothing edited":
                    write(place, edited, edition)
                    time.sleep(3)
                cells = build(place, folder, *options)
                print("|", " | ".join([place.name, name, *cells]), "|", flush=True)
                failed |= name == "night" and int(cells[1].replace(",", "")) != len(edited)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
