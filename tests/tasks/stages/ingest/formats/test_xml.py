"""XML of strangers: nothing expands, nothing is fetched, depth and size are bounded."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from tasks.stages.ingest.formats.extraction import UnreadableError
from tasks.stages.ingest.formats.xml import MAX_DEPTH, blocks, each, first, integer, parse, text_of
from tests.tasks.stages.ingest.formats.office_files import LAUGHS, W

HOSTILE = {
    "a billion laughs": f"{LAUGHS}<x>&k;</x>",
    "a billion laughs in an attribute": f'{LAUGHS}<x a="&k;"/>',
    "quadratic blowup": f'<!DOCTYPE x [<!ENTITY a "{"a" * 50_000}">]><x>{"&a;" * 50_000}</x>',
    "an external entity": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
    "a parameter entity": '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1:9/a"> %a;]><x/>',
    "an external document type": '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/a.dtd"><x/>',
    "a document type alone": "<!DOCTYPE x><x/>",
    "a document type behind a megabyte": f"<!-- {'x' * 1_000_000} --><!DOCTYPE x><x/>",
    "a hundred thousand levels": "<a>" * 100_000 + "</a>" * 100_000,
    "a tag of ten megabytes": f'<x a="{"x" * 10_000_000}"/>',
    "a comment of ten megabytes": f"<x><!-- {'x' * 10_000_000} --></x>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused_soon_and_in_little_memory(name: str) -> None:
    data = HOSTILE[name].encode()
    start = time.perf_counter()
    tracemalloc.start()
    with pytest.raises(UnreadableError) as caught:
        parse(data, "a part")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.reason == "hostile-file"
    assert time.perf_counter() - start < 10
    assert peak < (64 << 20)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_a_document_type_is_seen_in_any_encoding(encoding: str) -> None:
    text = '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'
    with pytest.raises(UnreadableError, match=r"document type|not XML"):
        parse(text.encode(encoding), "a part")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"<a>", b"<a></b>", b"text", b"<a/><b/>", b"<a>&b;</a>", b"<a>&#0;</a>", b"<a>&#xD800;</a>"),
        *(b"<a>\x01</a>", b"<a>\xff</a>", b'<?xml version="1.0" encoding="nothing"?><a/>', b"<x:a/>"),
    ],
)
def test_what_is_not_xml_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^the part a part is not XML") as caught:
        parse(data, "a part")
    assert caught.value.reason == "unreadable-file"


def test_tags_have_the_prefix_of_their_namespace_whatever_the_file_calls_it() -> None:
    space = W.partition("=")[2]
    strict = '"http://purl.oclc.org/ooxml/wordprocessingml/main"'
    for data in (f"<w:p {W} w:val='1'/>", f"<q:p xmlns:q={space} q:val='1'/>", f"<q:p xmlns:q={strict} q:val='1'/>"):
        tree = parse(data.encode(), "a part", "w:p")
        assert (tree.tag, tree.attrib) == ("w:p", {"w:val": "1"})
    other = parse(b"<p xmlns='urn:x'><a/></p>", "a part")
    assert (other.tag, other[0].tag) == ("?:p", "?:a")


def test_another_root_is_told() -> None:
    with pytest.raises(UnreadableError, match="not what the file's name says: expected <w:document>"):
        parse(b"<a/>", "a part", "w:document")


def test_text_and_tails_stay_where_they_are() -> None:
    tree = parse(b"<a>1<b>2<!-- no -->3</b>4<![CDATA[<5>]]><c/>6</a>", "a part")
    assert (tree.text, tree[0].text, tree[0].tail, tree[1].text, tree[1].tail) == ("1", "23", "4<5>", None, "6")
    assert text_of(tree) == "1234<5>6"


def test_blocks_are_complete_in_order_and_without_what_is_skipped() -> None:
    data = b"<r>x<s>y<b n='1'>1<i>2</i></b>z<skip><b>no</b></skip><b>3<skip>no</skip>4</b></s><s><b/></s></r>"
    found = list(blocks(data, "a part", "r", 3, {"skip"}))
    assert ["".join(one.itertext()) for one in found] == ["12", "34", ""]
    assert found[0].attrib == {"n": "1"}


@pytest.mark.slow
def test_blocks_take_memory_that_does_not_grow_with_the_part() -> None:
    data = b"<r>" + b"<b><c>some words</c><c>some more</c></b>" * 40_000 + b"</r>"
    tracemalloc.start()
    assert sum(1 for _ in blocks(data, "a part", "r", 2)) == 40_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20


def test_an_error_in_the_middle_comes_after_the_blocks_before_it() -> None:
    found = blocks(b"<r><b/>" + b" " * 600_000 + b"<b></c></r>", "a part", "r", 2)
    assert next(found).tag == "b"
    with pytest.raises(UnreadableError, match="not XML"):
        list(found)


def test_depth_within_the_limit_is_read() -> None:
    inner = MAX_DEPTH - 1
    assert text_of(parse(b"<a>" + b"<b>" * inner + b"x" + b"</b>" * inner + b"</a>", "a part")) == "x"


def test_paths_lead_through_tags_and_any_tag() -> None:
    tree = parse(b"<a><b><c n='1'/><d><c n='2'/></d></b><b><c n='3'/></b></a>", "a part")
    assert [one.get("n") for one in each(tree, "b/c")] == ["1", "3"]
    assert [one.get("n") for one in each(tree, "b/*/c")] == ["2"]
    assert (first(tree, "b/x"), first(None, "b")) == (None, None)


@pytest.mark.parametrize(
    ("value", "found"), [("7", 7), (None, -1), ("", -1), ("x", -1), ("1" * 13, -1), ("-3", -3), ("1e3", -1)]
)
def test_a_whole_number_is_read_or_its_default(value: str | None, found: int) -> None:
    assert integer(value, -1) == found
