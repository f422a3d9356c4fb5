"""Events of a change feed, read at once and piece by piece."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from schemas.sources import FeedSettings
from tasks.stages.ingest.sources.feed import FeedSource
from tasks.stages.ingest.sources.source_interface import RecordSource, SourceError
from tests.paths import ROOT
from tests.tasks.stages.ingest.sources.reading import Read, read


def upsert(identity: Any, text: str = "T.", **more: Any) -> bytes:
    return json.dumps({"op": "upsert", "id": identity, "text": text, **more}).encode() + b"\n"


def delete(identity: Any) -> bytes:
    return json.dumps({"op": "delete", "id": identity}).encode() + b"\n"


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


def place(*paths: Path | str, **settings: Any) -> RecordSource:
    return FeedSource(FeedSettings(paths=tuple(map(str, paths)), **settings), Path())


def through(cursor: Any) -> Any:
    """A cursor as it is kept: JSON with sorted keys."""
    return json.loads(json.dumps(cursor, sort_keys=True))


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "feed" / "events.jsonl"
    path.parent.mkdir()
    append(path, upsert("a", title="A"), upsert("b"), delete("a"))
    return path


def test_events_come_in_order_and_without_their_op(feed: Path) -> None:
    found = read(place(feed))
    assert found.events == [("upsert", "a"), ("upsert", "b"), ("delete", "a")]
    assert found.records[0] == {"id": "a", "title": "A", "text": "T."}
    assert found.until is not None
    assert found.until.whole


def test_only_new_events_of_a_growing_file_are_read(feed: Path) -> None:
    first = read(place(feed))
    append(feed, upsert("c"), b"\xff\n")
    second = read(place(feed), through(first.cursor))
    assert (second.events, second.until and second.until.whole) == ([("upsert", "c")], False)
    assert second.reasons == [(5, "not-utf8")]
    third = read(place(feed), through(second.cursor))
    assert (third.events, third.refusals, third.cursor) == ([], [], second.cursor)


def test_a_torn_last_line_is_read_once_it_is_whole(feed: Path) -> None:
    line = upsert("c")
    append(feed, line[:9])
    first = read(place(feed))
    assert (len(first.events), first.refusals) == (3, [])
    append(feed, line[9:])
    second = read(place(feed), through(first.cursor))
    assert second.events == [("upsert", "c")]


def test_a_last_line_without_an_end_is_whole_where_another_file_follows(feed: Path) -> None:
    append(feed, upsert("c").rstrip())
    first = read(place(feed.parent))
    assert len(first.events) == 3
    append(feed.parent / "later.jsonl", upsert("d"))
    assert read(place(feed.parent), through(first.cursor)).events == [("upsert", "c"), ("upsert", "d")]


def test_broken_lines_are_refused_by_number_and_the_others_read(feed: Path) -> None:
    lines = [b"{\n", b"\n", b"[1]\n", b'{"op": "merge", "id": "x"}\n', b'{"id": "y", "text": "t"}\n', delete(None)]
    append(feed, *lines, upsert("z"))
    found = read(place(feed))
    assert found.reasons == [(4, "not-json"), (6, "not-an-object"), (7, "bad-op"), (8, "bad-op"), (9, "no-id")]
    assert [one.document_id for one in found.refusals] == [None, None, "x", "y", None]
    assert all(one.detail.startswith("events.jsonl: ") for one in found.refusals)
    assert found.events[-1] == ("upsert", "z")


def test_an_overlong_line_is_skipped(feed: Path) -> None:
    append(feed, upsert("long", "x" * 3_000_000), upsert("c"))
    found = read(place(feed, max_line_bytes=1000))
    assert (found.reasons, found.events[-1]) == ([(4, "too-large")], ("upsert", "c"))
    append(feed, upsert("longer", "x" * 3_000_000)[:-1])
    second = read(place(feed, max_line_bytes=1000), through(found.cursor))
    assert (second.reasons, second.events) == ([], [])
    append(feed, b"\n", upsert("d"))
    third = read(place(feed, max_line_bytes=1000), through(second.cursor))
    assert (third.reasons, third.events) == ([(6, "too-large")], [("upsert", "d")])


def test_ids_are_those_that_documents_have(feed: Path) -> None:
    feed.write_bytes(json.dumps({"op": "delete", "key": 7.0}).encode() + b"\n")
    assert read(place(feed, id="key")).deleted == ["7"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:20],
        lambda data: b"",
        lambda data: data.replace(b'"a"', b'"x"'),
        lambda data: data.replace(b'"T."', b'"U."') + upsert("q"),
        lambda data: b"".join(data.splitlines(keepends=True)[1:]) + upsert("q") + upsert("r") + upsert("s"),
    ],
    ids=["cut", "emptied", "edited", "replaced", "beginning-removed"],
)
@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_a_file_that_is_another_ends_the_reading(feed: Path, damage: Any, long: bool) -> None:
    if long:
        append(feed, *(upsert("b", f"Text {number}. " * 9) for number in range(99)), upsert("a"))
    first = read(place(feed))
    feed.write_bytes(damage(feed.read_bytes()))
    with pytest.raises(SourceError, match="--full"):
        read(place(feed), through(first.cursor))
    assert read(place(feed)).until is not None


@pytest.mark.parametrize("pattern", ["", "*.jsonl", "**/*.jsonl"])
def test_files_are_read_in_the_order_of_their_names(tmp_path: Path, pattern: str) -> None:
    for name in ("2026-01-03", "2026-01-01", "2026-01-02"):
        append(tmp_path / f"{name}.jsonl", upsert(name))
    (tmp_path / ".2026-01-00.jsonl").write_bytes(upsert("hidden"))
    (tmp_path / "notes.txt").write_bytes(b"no events")
    found = read(place(tmp_path / pattern if pattern else tmp_path))
    assert found.ids == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_files_that_were_read_may_go_away(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    append(one, upsert("a"))
    first = read(place(tmp_path))
    one.unlink()
    append(two, upsert("b"))
    second = read(place(tmp_path), through(first.cursor))
    assert second.events == [("upsert", "b")]
    two.unlink()
    third = read(place(tmp_path), through(second.cursor))
    assert (third.events, third.cursor) == ([], second.cursor)
    with pytest.raises(SourceError, match="no file of a change feed"):
        read(place(tmp_path))


def test_a_file_that_went_away_half_read_ends_the_reading(feed: Path) -> None:
    append(feed, b'{"op"')
    first = read(place(feed.parent))
    feed.unlink()
    with pytest.raises(SourceError, match="was not read to its end"):
        read(place(feed.parent), through(first.cursor))


@pytest.mark.parametrize("size", [1, 200])
def test_a_rotated_file_goes_on_under_its_new_name(feed: Path, size: int) -> None:
    append(feed, *(upsert("b", f"Text {number}.") for number in range(size)))
    first = read(place(feed.parent))
    append(feed, upsert("c"))
    feed.rename(feed.with_name("events-2026-01-01.jsonl"))
    append(feed, upsert("d"))
    second = read(place(feed.parent), through(first.cursor))
    assert second.events == [("upsert", "c"), ("upsert", "d")]
    compressed = feed.with_name("events-2026-01-01.jsonl.gz")
    compressed.write_bytes(gzip.compress(feed.with_name("events-2026-01-01.jsonl").read_bytes()))
    feed.with_name("events-2026-01-01.jsonl").unlink()
    append(feed, upsert("e"))
    third = read(place(feed.parent), through(second.cursor))
    assert third.events == [("upsert", "e")]


def test_an_event_that_was_read_before_is_read_again_in_a_later_file(tmp_path: Path) -> None:
    append(tmp_path / "1.jsonl", delete("a"))
    append(tmp_path / "2.jsonl", upsert("a"))
    first = read(place(tmp_path))
    (tmp_path / "1.jsonl").unlink()
    append(tmp_path / "3.jsonl", delete("a"), upsert("b"))  # begins like the file that is gone
    assert read(place(tmp_path), through(first.cursor)).events == [("delete", "a"), ("upsert", "b")]


@pytest.mark.parametrize("late", ["grown", "new"])
def test_events_before_others_that_were_read_end_the_reading(tmp_path: Path, late: str) -> None:
    append(tmp_path / "2.jsonl", upsert("a"))
    append(tmp_path / "3.jsonl", delete("a"))
    first = read(place(tmp_path))
    append(tmp_path / ("2.jsonl" if late == "grown" else "1.jsonl"), upsert("a"))
    with pytest.raises(SourceError, match="in the order of the files' names"):
        read(place(tmp_path), through(first.cursor))


def test_paths_grow_independently(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        append(tmp_path / name / "1.jsonl", upsert(f"{name}-1"))
    both = place(tmp_path / "one", tmp_path / "two")
    first = read(both)
    append(tmp_path / "one" / "1.jsonl", upsert("one-2"))
    append(tmp_path / "two" / "1.jsonl", upsert("two-2"))
    assert read(both, through(first.cursor)).ids == ["one-2", "two-2"]
    third = read(place(tmp_path / "two"), through(first.cursor))
    assert (third.ids, third.until and third.until.whole) == (["two-1", "two-2"], True)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed_files_are_read_and_may_be_being_written(tmp_path: Path, suffix: str) -> None:
    def packed(data: bytes) -> bytes:
        return gzip.compress(data) if suffix == "gz" else zstandard.compress(data)

    path = tmp_path / f"1.jsonl.{suffix}"
    chance = random.Random(7)  # noqa: S311 - test data
    lines = [upsert(f"{number}", chance.randbytes(3000).hex()) for number in range(1000)]
    whole = packed(b"".join(lines))
    path.write_bytes(whole[: len(whole) // 2])
    first = read(place(tmp_path))
    assert 100 < len(first.ids) < 900
    path.write_bytes(whole)
    second = read(place(tmp_path), through(first.cursor))
    assert first.ids + second.ids == [f"{number}" for number in range(1000)]
    path.write_bytes(whole + packed(upsert("more").rstrip()))
    third = read(place(tmp_path), through(second.cursor))
    assert third.ids == ["more"]
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="--full"):
        read(place(tmp_path), through(third.cursor))
    append(tmp_path / "2.jsonl", upsert("later"))
    with pytest.raises(SourceError, match="damaged"):
        read(place(tmp_path))


def test_a_damaged_compressed_file_ends_the_reading(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(upsert("a") * 100))
    data[-6] ^= 0xFF
    (tmp_path / "1.jsonl.gz").write_bytes(data)
    with pytest.raises(SourceError, match=r"1\.jsonl\.gz is damaged"):
        read(place(tmp_path))


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl", tmp_path / "none" / "*.jsonl", tmp_path / "none" / "1.jsonl"):
        with pytest.raises(SourceError, match="change feed"):
            read(place(path))


def test_pipes_and_links_to_elsewhere_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    os.mkfifo(folder / "1.jsonl")
    with pytest.raises(SourceError, match="it is a pipe"):
        read(place(folder))
    (folder / "1.jsonl").unlink()
    append(tmp_path / "secret.jsonl", upsert("a"))
    (folder / "2.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(SourceError, match="a link to a file outside"):
        read(place(folder))


@pytest.mark.parametrize(
    "cursor", [{"id": "id"}, {"id": "id", "paths": [{"path": "x", "files": {"a": {"offset": 1}}}]}]
)
def test_a_damaged_cursor_is_told(feed: Path, cursor: Any) -> None:
    with pytest.raises(SourceError, match="damaged"):
        read(place(feed), cursor)


def test_the_token_changes_with_every_line(feed: Path) -> None:
    tokens = {place(feed.parent).token(), place(feed.parent).token()}
    append(feed, upsert("c"))
    tokens.add(place(feed.parent).token())
    append(feed.parent / "other.jsonl", upsert("d"))
    tokens.add(place(feed.parent).token())
    assert len(tokens) == 3
    assert "" not in tokens


@pytest.mark.parametrize("seed", range(8))
def test_pieces_give_what_the_whole_gives(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - test data
    events: list[tuple[str, str]] = []
    cursor, day, torn = None, 0, b""
    for _ in range(60):
        path = tmp_path / f"{day:02d}.jsonl"
        identity = f"d{chance.randrange(5)}"
        line = torn or (upsert(identity, "x" * chance.randrange(400)) if chance.random() < 0.7 else delete(identity))
        cut = chance.randrange(1, len(line)) if chance.random() < 0.2 and not torn else None
        append(path, line[:cut])
        torn = line[cut:] if cut else b""
        if not torn and chance.random() < 0.15:
            day += 1
        if chance.random() < 0.3:
            found: Read = read(place(tmp_path), cursor)
            cursor = through(found.cursor)
            events += found.events
    append(path, torn)
    events += read(place(tmp_path), cursor).events
    assert events == read(place(tmp_path)).events


@pytest.mark.slow
def test_memory_is_flat_over_a_million_events(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "1.jsonl.gz", "wb", compresslevel=1) as file:
        for number in range(1_000_000):
            file.write(upsert(number % 1000, "some text " * 10))
    program = f"""
import resource
from pathlib import Path
from schemas.sources import FeedSettings
from tasks.stages.ingest.sources.feed import FeedSource
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
early = 0
for number, _ in enumerate(FeedSource(FeedSettings(paths={str(tmp_path)!r}), Path()).rows(None), 1):
    if number == 100_000:
        early = most()
print(number - 1, most() - early)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    count, grown = map(int, done.stdout.split())
    assert count == 1_000_000
    assert grown < 30
