"""Strategies for hostile texts and files of records: nesting, long lines, quotes, broken archives, bombs, odd names."""

from __future__ import annotations

import functools
import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import strategies as st

Item = TypeVar("Item")
Strategy = st.SearchStrategy

sizes = st.integers(10, 55).map(lambda tenth: int(10 ** (tenth / 10)))
"""Lengths from 10 to 300,000, evenly over the orders of magnitude."""


@dataclass(frozen=True, slots=True)
class HostileFile:
    """A file. rows: how many it has; None where nobody can say."""

    suffix: str
    content: bytes = b""
    rows: int | None = 1


def sized(makers: Sequence[Callable[[int], Item]]) -> Strategy[Item]:
    """What any of these makes of a size."""
    return st.builds(lambda maker, size: maker(size), st.sampled_from(makers), sizes)


def around(starts: Sequence[str], units: Sequence[str], ends: Sequence[str]) -> Strategy[str]:
    """A unit that repeats, with something before and behind."""
    parts = map(st.sampled_from, (starts, units, ends))
    return st.builds(lambda start, unit, end, size: start + unit * (size // len(unit) + 1) + end, *parts, sizes)


def files(suffixes: str, contents: Strategy[str] | Strategy[bytes], rows: int | None = 1) -> Strategy[HostileFile]:
    encoded = contents.map(lambda text: text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return st.builds(HostileFile, st.sampled_from(suffixes.split()), encoded, st.just(rows))


# Texts: a unit that repeats, brackets around it, or a structure.

UNITS = (
    *(" ", "word" + " " * 200 + "\n", "word ", "w", '"', "'a ", "[", "[a](", "![", "*a_ ", "**a ", "```\n~~~\n"),
    *("a\n=\n", "# a\n", "<", "<a ", "<b>", "<!--", "&amp;&#0;&#x110000;&", "http://a.", "\u0301", "\u200d\U0001f468"),
    *("\u202e\u2066a\u2069", "".join(map(chr, range(1, 32))), "a\r", "a\x0c\x85\u2028", "\ufeff", ".", "A. ", "Dr. "),
    *("Aa Bb of ", "Aa-", "a_b.C::", "1,234.5e6 ", "\u4e00\u4e8c", "\uff21\uff22\u3002", "\ufdfa"),
)
nested = st.builds(
    lambda pair, size: pair[0] * size + "a" + pair[1] * size,
    st.sampled_from([("[", "](b)"), ("(", ")"), ("#", "#")]),
    sizes.map(lambda size: size // 4),
)
structured = sized(
    [
        lambda n: "".join(f"[a{i}]: b{i}\n" for i in range(n // 12)) + "[a0]" * (n // 12),
        lambda n: " ".join("`" * i for i in range(1, int((2 * n) ** 0.5))),
        lambda n: ">" * min(n, 2000) + " a",
        lambda n: "".join("  " * i + "- a\n" for i in range(min(n, 300))),
        lambda n: "|" * n + "\n" + "|-" * n,
        lambda n: "|a" * (n // 8) + "|\n" + "|-" * (n // 8) + "|\n" + "|b" * (n // 8) + "|\n",
    ]
)
texts = st.one_of(around(["", "a", "# a"], UNITS, ["", "x"]), nested, structured)

wrappers = st.sampled_from(["{}", "<html><body><p>{}</p></body></html>", "<article>{}", "<p>" * 3000 + "{}"])
pages = st.builds(str.replace, wrappers, st.just("{}"), texts)
front_matter = st.one_of(
    around(
        ["", "a: ", 'a: "'],
        ["[", "{a: ", '\\"', ": ", "- ", "%", " ", "a: 1\n", "a: 1\n...\n", "\t", "k"],
        ["", "b", "a: 1", ": 1", "\n%YAML 9.9\n"],
    ),
    sized(
        [
            lambda n: "".join(" " * i + "a:\n" for i in range(min(n, 1500))),
            lambda n: "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
            lambda n: (
                "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 30))
            ),
            lambda n: "a: &a [*a]",
            lambda n: "".join(f"k{i}: 1\n" for i in range(n // 6)),
            lambda n: "? [a, b]\n: 1",
            lambda n: f"a: {'9' * n}\nb: 1e{'9' * 20}\nc: .inf\nd: .nan\ne: 0x{'f' * n}",
            lambda n: "a: 9999-99-99\nb: 0000-00-00\nc: 2001-12-14t21:59:43.10-99:99\nd: 1:" + ":59" * n,
            lambda n: "a: !!python/object/apply:os.system [true]\nb: !!binary '****'\nc: !<x> y",
        ]
    ),
)

BYTES = (b"\xef\xbb\xbf", b"\0", b"a\0b", b"\xc0\x80", b"\xed\xa0\x80", b"\n", b"t\0")
starts = st.sampled_from([b"", b"\xff\xfe", b"text \xf0\x9f"])
binary = st.builds(
    lambda start, unit, size: start + unit * size, starts, st.binary(max_size=9) | st.sampled_from(BYTES), sizes
)

# Records.

ODD_IDS = ("\u202egnp", "a\nb", "a\tb", "\u0301", "../../etc/passwd", "a" * 1022, "a" * 1025, " ", "\x1b[31m", "id\x7f")
identities = st.builds("{} {}".format, st.integers(0, 9), st.sampled_from((*ODD_IDS, "\\", "%00")))
values = st.one_of(
    st.sampled_from(["NaN", "-Infinity", "true"]),
    around(["", '"'], ["[", "9", "a", "\\ud800", "\\u0000", "\\\\"], ["", '"']),
    sized(
        [
            lambda n: "[" * n + "]" * n,
            lambda n: '{"a":' * n + "1" + "}" * n,
            lambda n: "1e" + "9" * min(n, 300),
            lambda n: "[" + "1," * n + "1]",
            lambda n: "{" + "".join(f'"{i}":1,' for i in range(n // 8)) + '"a":1}',
            lambda n: "{" + '"a":1,' * (n // 8) + '"a":1}',
        ]
    ),
)
"""JSON values, whole or broken: used as text, as metadata, and as a whole line."""

LINES = """
VALUE
{"id": ID, "text": VALUE}
{"id": VALUE, "text": "A text."}
{"id": ID, "text": TEXT}
{"id": ID, "text": "a", "more": VALUE}
{"id": ID, "text": TEXT, "title": TEXT}
{"id": 1, "text": "A text that repeats."}
"""


def line(form: str, identity: str, text: str, value: str) -> str:
    filled = form.replace("ID", json.dumps(identity))
    return filled.replace("VALUE", value) if "VALUE" in form else filled.replace("TEXT", json.dumps(text))


rows = st.lists(
    st.builds(line, st.sampled_from(LINES.split("\n")[1:-1]), identities, texts, values), min_size=1, max_size=11
)
arrays = st.one_of(
    st.builds(lambda form, rows: form % ",".join(rows), st.sampled_from(["[%s]", "[%s", "{%s"]), rows),
    around([""], ["[", "[]", "[1,]"], [""]),
    st.sampled_from(["[]", "{}"]),
)
separated = st.one_of(
    around(
        ["", "id,text\n", 'id,text\na,"', 'id,text\n1,"a\n'],
        ["b", '"', "a,b\n", ",", "a,", '""\n', "id,text\r"],
        ["", "\n"],
    ),
    st.builds("id,text\n{!r},{}\n".format, identities, texts),
    st.sampled_from(["id,text,text\n1,2,3\n", "\ufeffid,text\r\n1,a\r\n2,\x00\r\n", "id;text\n1;2\n"]),
    sizes.map(lambda n: f"id,text,{','.join(f'c{i}' for i in range(min(n, 3000)))}\n1,2{',' * min(n, 3000)}\n"),
)
tables = st.one_of(
    st.builds(lambda text: {"id": ["a", None, ""], "text": [text, "b", None]}, texts),
    st.builds(lambda text: {"id": [1.5, float("nan"), float("inf")], "text": [text] * 3}, texts),
    st.builds(
        lambda depth: {"id": ["a"], "text": ["b"], "deep": [functools.reduce(lambda deep, _: [deep], range(depth), 1)]},
        st.integers(1, 40),
    ),
    sizes.map(lambda n: {"id": ["a"], **{f"c{i}": [i] for i in range(min(n, 1500))}, "text": ["b"]}),
    sizes.map(lambda n: {"id": list(range(n // 80)), "text": ["b"] * (n // 80)}),
    st.sampled_from(
        [
            {"id": [b"\xff\x00"], "text": [b"\xff"]},
            {"id": pa.array([2**62], pa.timestamp("ns")), "text": ["b"]},
            {"id": ["a"], "text": ["b"], "when": pa.array([2**50], pa.timestamp("s"))},
            {"id": [], "text": []},
            {"ids": ["a"], "texts": ["b"]},
        ]
    ),
).map(pa.table)


flips = st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=9)
cuts = st.sampled_from([(0, 1), (1, 9), (1, 2), (8, 9), (99, 100), (1, 1), (2, 1)])
ends = st.sampled_from([(b"", b""), (b"x", b""), (b"", b"more")])


def damage(content: bytes, flips: Sequence[tuple[int, int]], cut: tuple[int, int], ends: tuple[bytes, bytes]) -> bytes:
    """A file with some bytes replaced, cut off or doubled, and something before or behind."""
    data = bytearray(content)
    for place, byte in flips if data else ():
        data[place % len(data)] = byte
    return ends[0] + bytes(data * 2)[: len(data) * cut[0] // cut[1]] + ends[1]


def damaged(whole: Strategy[bytes]) -> Strategy[bytes]:
    return st.builds(damage, whole, flips, cuts, ends)


def parquet(table: pa.Table) -> Strategy[bytes]:
    def written(compression: str) -> bytes:
        pq.write_table(table, sink := io.BytesIO(), compression=compression)
        return sink.getvalue()

    return st.sampled_from(["none", "zstd", "snappy"]).map(written)


LINE = b'{"id": 1, "text": "a"}\n'
plain = st.builds(
    lambda start, unit, size: start + unit * (size * 100 // len(unit)),
    st.sampled_from([b"", LINE, LINE + b'{"id": 2, "text": "']),
    st.sampled_from([LINE, b"a", b"[", b" ", b"\0"]),
    st.just(0) | sizes,
)


def packed(suffix: str, pack: Callable[[bytes], bytes]) -> Strategy[HostileFile]:
    contents = plain.map(pack)
    content = contents | damaged(contents) | plain.map(lambda data: data[:9999])
    return files(f".jsonl{suffix} .json{suffix} .csv{suffix}", content, None)


KINDS: dict[str, Strategy[HostileFile]] = {
    "text": files(".txt", texts),
    "Markdown": files(".md", texts),
    "front matter": files(".md", front_matter.map("---\n{}\n---\n# Title\n\nA text.\n".format)),
    "HTML": files(".html", pages),
    "bytes": files(".txt .md .html", binary),
    "JSON Lines": rows.flatmap(lambda rows: files(".jsonl .ndjson", st.just("\n".join([*rows, ""])), len(rows))),
    "JSON": files(".json", arrays, None),
    "CSV": files(".csv", separated, None),
    "Parquet": tables.flatmap(
        lambda table: files(".parquet", parquet(table), table.num_rows if "id" in table.column_names else None)
    ),
    "damaged Parquet": files(".parquet", damaged(tables.flatmap(parquet)), None),
    "gzip": packed(".gz", functools.partial(gzip.compress, compresslevel=1, mtime=0)),
    "Zstandard": packed(".zst", zstandard.compress),
}

names = st.sampled_from(
    ["{}", "a\nb {}", "\u202e{}", "{} \x1b[31m", "\u0301{}", "{} \U0001f4a5", "{} '\";|&$(x)", "-{}", "{} %00"]
)
"""Formats of file names."""
