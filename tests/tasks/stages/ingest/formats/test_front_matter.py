"""Front matter is read within limits, and what it holds becomes plain JSON values."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.stages.ingest.documents import MAX_DEPTH
from tasks.stages.ingest.formats.front_matter import (
    MAX_CHARACTERS,
    MAX_EXPANDED,
    FrontMatter,
    FrontMatterError,
    looks_like_yaml,
    metadata_of,
    read_front_matter,
    split_front_matter,
)
from tests.deep import examples


def _chained(levels: int, width: int, item: str, first: str) -> str:
    """Each level repeats the one before it `width` times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {item.format(', '.join([f'*a{n - 1}'] * width))}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


MERGES = _chained(9, 9, "{{<<: [{}]}}", "{k: v}")
BOMBS = {
    "nested sequences": "a: " + "[" * 50_000,
    "nested mappings": "a: " + "{a: " * 15_000,
    "nested blocks": "- " * 30_000,
    "nested keys": "? " * 30_000,
    "merges of merges": MERGES,
    "aliases of aliases": _chained(9, 9, "[{}]", "[lol]"),
    "one long text, repeated": f"a: &a {'x' * 20_000}\nb: [{', '.join(['*a'] * 5000)}]\n",
    "aliases that nest": "a0: &a0 []\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000)),
    "an alias within what it repeats": "a: &a [*a]\n",
    "longer than the limit": "a: " + "x " * 40_000,
    "a huge integer": "a: " + "1_000" * 12_000,
    "a huge hexadecimal integer": "a: 0x" + "f" * 60_000,
    "a huge hexadecimal key": f"{{0x{'f' * 5000}: 1}}",
    "an endless sexagesimal integer": "a: 1" + ":59" * 20_000,
    "an endless sexagesimal float": "a: 1" + ":59" * 20_000 + ".5",
    "month 99": "a: 9999-99-99",
    "an offset of days": "a: 2024-05-01T00:00:00+99:00",
    "bytes": "a: !!binary aGVsbG8=",
    "a set": "a: !!set {x, y}",
    "a truth that is none": "a: !!bool maybe",
    "a moment that is none": "a: !!timestamp soon",
    "an empty integer": "a: !!int ''",
    "an unhashable key": "a: {[x]: y}",
    "a truth as key": "on: push",
    "keys that are the same as texts": "{1: a, '1': b}",
    "an alias of nothing": "a: *b",
    "an anchor twice": "a: &a x\nb: &a y\n",
    "a merge of a text": "<<: text",
    "an object": "a: !!python/object:os.system {}",
    "a NUL": 'a: "\\0"',
    "two documents": "a: b\n...\n---\nc: d\n",
}


@pytest.mark.parametrize("front", BOMBS.values(), ids=BOMBS)
def test_what_is_over_a_limit_or_not_plain_is_told_at_once(front: str) -> None:
    began = time.monotonic()
    with pytest.raises(FrontMatterError):
        metadata_of(front)
    assert time.monotonic() - began < 10


def test_the_limits_are_where_they_are_said_to_be() -> None:
    deep = "[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1)
    assert metadata_of(f"a: {deep}\n") is not None
    with pytest.raises(FrontMatterError, match="64 levels deep"):
        metadata_of(f"a: [{deep}]\n")
    with pytest.raises(FrontMatterError, match="64 levels deep"):
        metadata_of(f"a: &a {deep}\nb: [*a]\n")
    assert metadata_of("a: " + "x" * (MAX_CHARACTERS - 3)) == {"a": "x" * (MAX_CHARACTERS - 3)}
    with pytest.raises(FrontMatterError, match="65,537 characters"):
        metadata_of("a: " + "x" * (MAX_CHARACTERS - 2))


def test_toml_between_plus_signs_is_front_matter() -> None:
    front = read_front_matter("+++\ntitle = 'Vell'\ndate = 2024-05-01\n[params]\nx = 1\n+++\nText.\n")
    assert front == FrontMatter({"title": "Vell", "date": "2024-05-01", "params": {"x": 1}}, "Text.\n", left_out=False)
    assert read_front_matter("+++\nnot TOML\n+++\n") is None


def test_a_slip_costs_its_own_line() -> None:
    front = read_front_matter("---\ntitle:Foo bar\n???\ntags: [a]\n---\nText.\n")
    assert front == FrontMatter({"title": "Foo bar", "tags": ["a"]}, "Text.\n", left_out=True)


def test_aliases_and_merges_of_an_ordinary_size_are_read() -> None:
    front = "base: &base {lang: en, tags: &tags [a, b]}\nmore:\n  <<: *base\n  lang: de\nagain: *tags\n"
    base = {"lang": "en", "tags": ["a", "b"]}
    assert metadata_of(front) == {"base": base, "more": base | {"lang": "de"}, "again": ["a", "b"]}
    assert metadata_of("a: 1\na: 2\n") == {"a": 2}
    assert metadata_of("a: .nan\nb: -.inf\n") == {"a": None, "b": None}
    assert metadata_of("") == metadata_of("# nothing\n") == {}
    assert metadata_of("just a text") is None


def test_the_text_between_two_rules_at_the_beginning_is_front_matter() -> None:
    assert split_front_matter("---\na: b\n---\nText.\n---\n") == ("a: b\n", "Text.\n---\n")
    assert split_front_matter("-----  \n---\t") == ("", "")
    for text in ("", "---", "---\na: b\n", "Text.\n---\na: b\n---\n", "--- a\n---\n---\n", " ---\na: b\n---\n"):
        assert split_front_matter(text) is None


_ANCHORS = st.sampled_from(["", "&a ", "&b ", "&c ", "!!str ", "!!int ", "!!set ", "!!binary ", "!!float ", "!!omap "])
_SCALARS = st.one_of(
    st.sampled_from(
        ["x", "*a", "*b", "*c", "1", "0x1f", ".nan", "2024-05-01", "'q'", '"\\ud800"', "~", "on", "", "1:59"]
    ),
    st.sampled_from(["<<", "=", "|\n x"]),
)
_NESTED = st.recursive(
    st.builds("{}{}".format, _ANCHORS, _SCALARS),
    lambda below: (
        st.builds(lambda mark, items: f"{mark}[{', '.join(items)}]", _ANCHORS, st.lists(below, max_size=4))
        | st.builds(
            lambda mark, items: mark + "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}",
            _ANCHORS,
            st.lists(st.tuples(below | st.just("<<"), below), max_size=4),
        )
    ),
    max_leaves=25,
)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


@examples(85, deep=300)
@given(
    st.text(max_size=200)
    | st.text("&*a[]{}<:,- \n\t'\"|>!?#%~0.x_", max_size=200)
    | st.lists(st.tuples(st.sampled_from("abcd"), _NESTED), max_size=6).map(
        lambda pairs: "\n".join(f"{key}: {value}" for key, value in pairs)
    )
)
def test_whatever_the_text_it_is_plain_metadata_within_the_limits_or_an_error_of_its_own(front: str) -> None:
    looks_like_yaml(front)
    try:
        found = metadata_of(front)
    except FrontMatterError:
        return
    if found is not None:
        written = json.dumps(found, ensure_ascii=False, allow_nan=False)
        assert json.loads(written) == found
        assert len(written) < 10 * MAX_EXPANDED
        assert _depth(found) <= MAX_DEPTH


@examples(20, deep=100)
@given(_NESTED)
def test_what_is_within_the_limits_is_what_yaml_reads(value: str) -> None:
    front = f"a: {value}\n"
    try:
        found = metadata_of(front)
    except FrontMatterError:
        return
    assert found is not None
    read = yaml.safe_load(front)
    assert json.dumps(found["a"]) == json.dumps(read["a"], default=str)


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from(["[{}]", "{{<<: [{}]}}"]))
def test_what_aliases_stand_for_is_bounded(levels: int, width: int, item: str) -> None:
    front = _chained(levels, width, item, "{k: v}")
    try:
        found = metadata_of(front)
    except FrontMatterError:
        assert width**levels > 1000
    else:
        assert found is not None
        assert len(json.dumps(found)) < 10 * MAX_EXPANDED
