"""Every size that cuts work or data is a constant that a test can make small, and `tests.tiny_sizes` lists it.

Which constants those are is told from the code: the step of a range, the width of a slice, what is taken, cached or
written at once, and whatever has a name that says so.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.paths import ROOT
from tests.tiny_sizes import MEMOS, SIZES, Size, make_tiny, value_of

ROOMS = ("tasks", "storage", "flows", "schemas", "indexmill")

WORDS = "TILE PIECE BLOCK BLOCKS CELLS CHUNK BATCH STRIP TOGETHER AT_ONCE HELD KEPT GATHERED WAVE WALK SLICE POSTINGS"
NAMED = re.compile(rf"(^|_)({WORDS.replace(' ', '|')})(_|$)")

CONSTANTS = re.compile(r"^(_?[A-Z][A-Z0-9_]*(?:, _?[A-Z][A-Z0-9_]*)*) = \(?[0-9]", re.MULTILINE)
"""The names that are given whole numbers at the left margin."""

_INNER = r"(?:[^(),]|\([^()]*\))+"
CUTS = re.compile(
    rf"range\({_INNER}, {_INNER}, ([\w. <]+)\)"
    r"|\[[^\[\]:]+ : [^\[\]:]+ \+ ([A-Za-z_][\w.]*)\]"
    rf"|(?:islice|batched)\({_INNER}, ([\w.]+)\)|copyfileobj\({_INNER}, {_INNER}, ([\w. <]+)\)"
    r"|\b(?:batch_size|buffer_size|chunk_size|max_chunksize|maxsize|row_group_size)=([\w. <]+)[,)]"
)

OTHERS = {
    "flows.run_log.ROTATED_FILES": "files of a log",
    "tasks.llm.llm_recogniser._AHEAD": "characters that rank equally good cuts",
    "indexmill.store.assemblies._EARLIER": "snapshots in whose tables a table is looked for",
    "storage.document_traces._STRIDE": "what a trace of a document is",
    "storage.document_traces._WINDOW": "what a trace of a document is",
    "tasks.core.timeline._GATHERED": "spans before the record of a run leaves some out",
    "tasks.families.community_tree.levels._TOGETHER": "an assumption of an estimate",
    "tasks.pipeline.plan.judged._READ": "a sample of earlier answers",
    "tasks.pipeline.plan.judged._SAMPLE": "a sample of earlier answers",
    "tasks.families.lsh_tree.texts._READ": "of a memo, see MEMOS",
    "tasks.stages.ingest.formats.glyph_names._LONGEST_ENCODING": "a limit of hostile files",
    "tasks.stages.ingest.formats.glyph_names._MOST_ENCODINGS": "a limit of hostile files",
    "tasks.stages.ingest.formats.glyph_names._MOST_STREAMS": "a limit of hostile files",
    "tasks.stages.ingest.formats.opendocument._MAX_CELLS": "a limit of hostile files",
    "tasks.stages.ingest.formats.opendocument._MAX_REPEATED_CELLS": "a limit of hostile files",
    "tasks.stages.ingest.formats.pdf_text._MOST_DIVIDERS": "lines that are compared with a gap between words",
    "tasks.stages.ingest.formats.ruled_tables._MOST_CELLS": "a limit of hostile files",
    "tasks.stages.ingest.formats.ruled_tables._MOST_TABLES": "a limit of hostile files",
    "tasks.stages.ingest.formats.text_encoding._EXAMINED": "bytes of a text by which its encoding is detected",
    "tasks.stages.ingest.formats.title_filter._MOST_HEADINGS": "headings of which the first that is a title is taken",
    "tasks.stages.ingest.formats.xhtml_text._MAX_CELLS": "a limit of hostile files",
    "tasks.stages.ingest.sources.feed._DIGESTED": "bytes of a file by which it is known again",
    "tasks.stages.split.split._PER_TOKEN": "characters of an estimate",
}
"""Constants that look like sizes, and what they are."""


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    """The code of each module of the rooms."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text("utf-8") for path in paths}


def constants(code: str) -> set[str]:
    return {name for names in CONSTANTS.findall(code) for name in names.split(", ")}


def unlisted(module: str, code: str) -> Iterator[str]:
    """What a module cuts by that is no size of the list, and no variable made from one."""
    own, names = constants(code), {size.name for size in SIZES}
    yield from (f"{module}.{name}" for name in own if NAMED.search(name))
    for match in CUTS.finditer(code):
        cut = next(filter(None, match.groups()))
        name = cut.rpartition(".")[2]
        if name.isupper() and len(name) > 1:
            yield from [f"{module}.{name}"] if name in own or name not in names else []
        elif (
            cut[0].isdigit()
            and not (cut.isdigit() and int(cut) <= 16)
            and module not in {memo.module for memo in MEMOS}
        ):
            yield f"{module}: {match.group()}"


def test_what_cuts_is_a_size_that_tests_make_tiny(modules: dict[str, str]) -> None:
    known = {f"{size.module}.{size.name}" for size in SIZES} | set(OTHERS)
    missing = {cut for module, code in modules.items() for cut in unlisted(module, code)} - known
    assert not missing, "list it in tests/tiny_sizes.py, or say in OTHERS what it is"
    assert set(OTHERS) <= {f"{module}.{name}" for module, code in modules.items() for name in constants(code)}


@pytest.mark.parametrize(
    "code",
    [
        "_TILE = 1 << 20",
        "_ROWS, _BATCH = 3, 4",
        "_N = 7\nfor low in range(0, len(rows), _N):",
        "_N = 7\nrows[low : low + _N]",
        "_N = 7\nwhile tile := list(islice(rows, _N)):",
        "for low in range(0, f(a, b), 1 << 10):",
        "@lru_cache(maxsize=500)",
        "table.to_batches(max_chunksize=1024)",
    ],
)
def test_a_size_that_is_not_listed_is_noticed(code: str) -> None:
    assert list(unlisted("tasks.anything", code))


def test_each_size_is_read_where_it_is_used(modules: dict[str, str]) -> None:
    """A name that is imported, or the default of an argument or a field, has the value of the import for ever."""
    bound = []
    for size in SIZES:
        imported = re.compile(
            rf"^from {re.escape(size.module)} import (\([^)]*\b{size.name}\b|.*\b{size.name}\b)", re.M
        )
        bound += [
            f"{name} imports {size.name}"
            for name, code in modules.items()
            if size.name in code and imported.search(code)
        ]
        default = re.compile(
            rf"^    .*\w: [^=\n]+ = {size.name}\b[^(\n]*$|[(,] ?\w+: [^=\n,]+ = {size.name}\b", re.MULTILINE
        )
        bound += [f"{size.module}: {match.group()}" for match in default.finditer(modules[size.module])]
    assert bound == []


@pytest.fixture(scope="module")
def before() -> dict[Size, Any]:
    """The sizes as they are; imports their modules."""
    return {size: value_of(size) for size in SIZES}


def test_each_size_exists_and_is_made_smaller(before: dict[Size, Any]) -> None:
    assert len({(size.module, size.name) for size in SIZES}) == len(SIZES)
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch, close=True)
        for size, value in before.items():
            assert type(value_of(size)) is type(value)
            assert (value_of(size) < value) != (size.name == "PIECE_BITS"), size  # more bits make smaller pieces
        for memo in MEMOS:
            assert getattr(importlib.import_module(memo.module), memo.name).cache_info().maxsize == 1
    assert {size: value_of(size) for size in SIZES} == before
