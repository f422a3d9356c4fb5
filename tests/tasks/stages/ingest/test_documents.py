"""A record becomes a document or a refusal with its reason."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.store.canonical import canonical_json
from schemas.corpus import AccessSettings, FieldNames
from tasks.stages.ingest.documents import REASONS, Document, Location, RejectedRow, SourceRow, document_of

GOOD = {"id": "a", "title": "T", "text": "Some text."}


def made(record: dict[str, Any], most: int = 1_000_000, **fields: Any) -> Document | RejectedRow:
    return document_of(SourceRow(3, record), FieldNames(**fields), most)


@pytest.mark.parametrize("required", [True, False])
def test_a_document_whose_groups_are_not_clear_is_refused(required: bool) -> None:
    def of(record: dict[str, Any], *, left_out: bool = False, **fields: Any) -> Document | RejectedRow:
        row = SourceRow(3, {**GOOD, **record}, front_matter_left_out=left_out)
        return document_of(row, FieldNames(**fields), 1000, AccessSettings(field="groups", required=required))

    for groups in ("staff", ["staff"], ["staff", "legal"]):
        assert isinstance(of({"groups": groups}), Document)
        assert isinstance(of({"metadata": {"groups": groups}}), Document)  # whose keys are the document's
        assert isinstance(of({"more": {"groups": groups}}, metadata="more"), Document)
    unclear: list[dict[str, Any]] = [{"groups": one} for one in (None, "", [], [""], ["a", 1], 1, True, {"a": "b"})]
    unclear.append({"lang": "en", "metadata": {"lang": "de", "groups": ["staff"]}})
    for record in unclear:
        refused = of(record)
        assert isinstance(refused, RejectedRow)
        assert (refused.reason, refused.line, refused.document_id) == ("bad-access", 3, "a")
    refused = of({"groups": "staff"}, left_out=True)  # which may have named others
    assert isinstance(refused, RejectedRow)
    assert "front matter" in refused.detail
    assert isinstance(of({}), RejectedRow if required else Document)
    assert isinstance(of({"Groups": "staff"}), RejectedRow if required else Document)


def document(record: dict[str, Any], **fields: Any) -> Document:
    found = made(record, **fields)
    assert isinstance(found, Document), found
    return found


def refusal(record: dict[str, Any], most: int = 1_000_000, **fields: Any) -> RejectedRow:
    found = made(record, most, **fields)
    assert isinstance(found, RejectedRow), found
    return found


def test_a_record_becomes_a_document_with_typed_metadata() -> None:
    found = document({**GOOD, "url": "https://example.org/a", "year": 1907, "ratio": 0.5, "tags": ["x"], "open": None})
    texts = (found.document_id, found.title, found.text, found.source)
    assert texts == ("a", "T", GOOD["text"], "https://example.org/a")
    assert found.metadata == '{"open":null,"ratio":0.5,"tags":["x"],"year":1907}'
    assert found.size == len("T") + len(GOOD["text"])
    assert len(found.content_hash) == 64


def test_a_title_and_a_number_may_be_long_but_not_endless() -> None:
    assert document({**GOOD, "title": "x" * 4096}).title == "x" * 4096
    refused = refusal({**GOOD, "title": "x" * 4097})
    assert (refused.reason, refused.detail) == ("too-large", "the title is 4,097 bytes; the limit is 4,096")
    for record in ({**GOOD, "n": 1 << 14_000}, {**GOOD, "more": {1 << 14_000: "x"}}):
        refused = refusal(record)
        assert (refused.reason, refused.document_id) == ("bad-metadata", "a")
        assert "a whole number of 14,001 bits" in refused.detail
    assert document({**GOOD, "n": (1 << 14_000) - 1}).metadata.startswith('{"n":')


def test_metadata_of_very_many_keys_is_read() -> None:
    keys = {f"key {number}": number for number in range(10_000)}
    assert json.loads(document({**GOOD, **keys}).metadata) == keys


def test_the_content_hash_tells_title_text_source_and_metadata_apart() -> None:
    variants = [
        GOOD,
        {**GOOD, "title": "TS", "text": "ome text."},
        {**GOOD, "source": "s"},
        {**GOOD, "year": 1},
        {**GOOD, "year": "1"},
        {**GOOD, "text": "Other text."},
    ]
    assert len({document(record).content_hash for record in variants}) == len(variants)
    assert document({**GOOD, "id": "b"}).content_hash == document(GOOD).content_hash


@pytest.mark.parametrize(
    ("given_id", "expected"),
    [(7, "7"), (7.0, "7"), (0.25, "0.25"), (1e22, "1" + "0" * 22), (decimal.Decimal("1.50"), "1.50"), (" a ", " a ")],
)
def test_numbers_become_their_decimal_digits(given_id: Any, expected: str) -> None:
    assert document({**GOOD, "id": given_id}).document_id == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "no-id"),
        ({"id": "  "}, "no-id"),
        ({"id": True}, "bad-id"),
        ({"id": ["a"]}, "bad-id"),
        ({"id": float("nan")}, "bad-id"),
        ({"id": "x" * 2000}, "bad-id"),
        ({"id": "a\x00"}, "nul"),
        ({"id": "\ud800"}, "lone-surrogate"),
        ({"text": None}, "no-text"),
        ({"text": " \n\t\u00a0"}, "no-text"),
        ({"text": 5}, "not-text"),
        ({"text": ["a"]}, "not-text"),
        ({"text": b"bytes"}, "not-text"),
        ({"text": "a\x00b"}, "nul"),
        ({"text": "a\udfff"}, "lone-surrogate"),
        ({"title": "\ud83d"}, "lone-surrogate"),
        ({"source": "s\x00"}, "nul"),
        ({"x": {1: "a", "1": "b"}}, "bad-metadata"),
        ({"x": {None: "a"}}, "bad-metadata"),
        ({"x": ["\x00"]}, "nul"),
        ({"x": {"k\x00": 1}}, "nul"),
        ({"x": "\ud800"}, "lone-surrogate"),
        ({"x": {"\ud800": 1}}, "lone-surrogate"),
        ({"text": "x" * 1_000_001}, "too-large"),
        ({"x": ["y" * 600_000, "z" * 600_000]}, "too-large"),
    ],
)
def test_what_no_index_can_hold_is_refused(change: dict[str, Any], reason: str) -> None:
    found = refusal({**GOOD, **change})
    assert (found.reason, found.line) == (reason, 3)
    assert len(found.detail) <= 300
    found.detail.encode("utf-8")
    if "id" not in change:
        assert found.document_id == "a"


def test_a_number_that_json_lacks_is_null_and_bytes_are_left_out_and_counted() -> None:
    numbers = {"a": float("inf"), "b": [{"c": float("nan")}], "d": decimal.Decimal("NaN")}
    found = document({**GOOD, **numbers})
    assert (json.loads(found.metadata), found.metadata_left_out) == ({"a": None, "b": [{"c": None}], "d": None}, False)
    found = document({**GOOD, "a": b"bytes", "b": [b"bytes", 1], "c": {"d": b"bytes", "e": 2}})
    assert (json.loads(found.metadata), found.metadata_left_out) == ({"b": [1], "c": {"e": 2}}, True)
    assert document({**GOOD, "title": float("nan")}).title == ""


@pytest.mark.parametrize("groups", [b"legal", [b"legal", "board"]])
def test_who_may_read_a_document_is_not_guessed_from_what_is_left(groups: Any) -> None:
    access = AccessSettings(field="groups", required=False)
    for more in ({"groups": groups}, {"metadata": {"groups": groups}}):
        refused = document_of(SourceRow(1, {**GOOD, **more}), FieldNames(), 1000, access)
        assert isinstance(refused, RejectedRow)
        assert refused.reason == "bad-access"
    other = SourceRow(1, {**GOOD, "vector": b"bytes", "groups": ["legal"]})
    assert isinstance(document_of(other, FieldNames(), 1000, access), Document)


def test_yaml_aliases_that_stand_for_billions_and_endless_nesting_are_refused() -> None:
    laugh: list[Any] = ["ha"]
    for _ in range(40):
        laugh = [laugh] * 10
    endless: list[Any] = []
    endless.append(endless)
    for value in (laugh, endless):
        assert refusal({**GOOD, "x": value}, most=10_000).reason in {"too-large", "bad-metadata"}


def test_the_limit_counts_utf8_bytes() -> None:
    assert isinstance(made({"id": "a", "text": "é" * 50}, most=102), Document)  # and {} of metadata
    assert isinstance(made({"id": "a", "text": "é" * 51}, most=102), RejectedRow)


@pytest.mark.parametrize(
    ("title", "expected"),
    [(None, ""), (5, "5"), (True, ""), ({"a": 1}, ""), ("  T \r\n", "T"), (datetime.date(2024, 5, 1), "2024-05-01")],
)
def test_titles_of_other_types(title: Any, expected: str) -> None:
    assert document({**GOOD, "title": title}).title == expected


def test_only_windows_line_ends_change_in_a_text() -> None:
    assert document({**GOOD, "text": "  a\r\nb\rc\n\n"}).text == "  a\nb\rc\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Halber\u200bstadt Do\u00adnau\u2060dampf", "Halberstadt Donaudampf"),
        ("\ufeffAuf\u200cla\u200dge\u200d", "Auflage"),
        ("👩\u200d💻 🏳️\u200d🌈", "👩\u200d💻 🏳️\u200d🌈"),
        ("می\u200cخواهم क्\u200dष", "می\u200cخواهم क्\u200dष"),
        ("ภาษา\u200bไทย\u200b", "ภาษา\u200bไทย"),
    ],
)
def test_characters_without_width_go_unless_the_script_needs_them(text: str, expected: str) -> None:
    found = document({**GOOD, "title": text, "text": text})
    assert (found.title, found.text) == (expected, expected)
    assert document({**GOOD, "text": found.text}).text == expected


def test_locations_are_those_of_the_text_without_them() -> None:
    raw = "A\u200b b\r\nc"
    places = tuple(Location(start, page) for page, start in enumerate((0, 3, 6), 1))
    found = document_of(SourceRow(1, {**GOOD, "text": raw}, locations=places), FieldNames(), 1000)
    assert isinstance(found, Document)
    assert [(at.start, found.text[at.start]) for at in found.locations] == [(0, "A"), (2, "b"), (4, "c")]


def test_dates_become_iso_strings() -> None:
    moment = datetime.datetime(2024, 5, 1, 12, 30, tzinfo=datetime.UTC)
    found = document({**GOOD, "when": moment, "day": moment.date(), "took": datetime.timedelta(seconds=90)})
    assert json.loads(found.metadata) == {"when": "2024-05-01T12:30:00+00:00", "day": "2024-05-01", "took": 90.0}


def test_metadata_is_everything_else_a_list_of_fields_or_one_object() -> None:
    record = {**GOOD, "lang": "en", "year": 1, "metadata": {"k": [1]}}
    assert json.loads(document(record).metadata) == {"k": [1], "lang": "en", "year": 1}
    assert json.loads(document(record, metadata=("lang", "absent")).metadata) == {"lang": "en"}
    assert json.loads(document(record, metadata="metadata").metadata) == {"k": [1]}
    assert document(GOOD, metadata="metadata").metadata == "{}"
    assert json.loads(document({**GOOD, "meta": '{"k": 2}'}, metadata="meta").metadata) == {"k": 2}
    for wrong in ([1], "[1]", "{", 5):
        assert refusal({**GOOD, "meta": wrong}, metadata="meta").reason == "bad-metadata"


def test_nothing_is_lost_where_a_lifted_key_is_taken() -> None:
    record = {**GOOD, "lang": "en", "metadata": {"lang": "de"}}
    assert json.loads(document(record).metadata) == {"lang": "en", "metadata": {"lang": "de"}}


def test_a_source_that_is_no_text_stays_in_the_metadata() -> None:
    found = document({**GOOD, "source": {"name": "n"}, "url": "u"})
    assert found.source == "u"
    assert json.loads(found.metadata) == {"source": {"name": "n"}}


def test_field_names_are_configurable() -> None:
    names = {"id": "key", "text": "body", "title": "head", "source": "from"}
    found = document({"key": 1, "body": "B", "head": "H", "from": "F"}, **names)
    assert (found.document_id, found.text, found.title, found.source) == ("1", "B", "H", "F")
    assert document({"id": 1, "text": "B", "title": "kept"}, title=None).metadata == '{"title":"kept"}'


def test_every_reason_is_explained_and_no_other_can_be_given() -> None:
    assert all(explained for explained in REASONS.values())
    with pytest.raises(ValueError, match="unknown reason"):
        RejectedRow(1, None, "because", "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["id", "title", "text", "source", "url", "metadata", "x"]), JSON))
def test_any_record_makes_a_whole_document_or_a_known_refusal(record: dict[str, Any]) -> None:
    found = made(record)
    if isinstance(found, RejectedRow):
        assert found.reason in REASONS
        (found.detail + (found.document_id or "")).encode("utf-8")
        return
    for text in (found.document_id, found.title, found.text, found.source or "", found.metadata):
        assert "\x00" not in text
        text.encode("utf-8")
    assert found.text.strip()
    assert found.document_id.strip()
    assert canonical_json(json.loads(found.metadata)).decode().strip("\n") == found.metadata
    assert made(dict(reversed(record.items()))) == found


def located(text: str, *locations: Location) -> Document | RejectedRow:
    return document_of(SourceRow(None, {"id": "a", "text": text}, locations=locations), FieldNames(), 1_000_000)


def locations_of(text: str, *locations: Location) -> tuple[Location, ...]:
    found = located(text, *locations)
    assert isinstance(found, Document), found
    return found.locations


def test_locations_count_in_the_content_hash_where_there_are_some() -> None:
    plain = document({"id": "a", "text": "one two"})
    places = [(), (Location(0, 1),), (Location(0, 2),), (Location(0, 1), Location(4, 2))]
    places += [(Location(0, 1, (1.0, 2.0, 3.0, 4.0)),), (Location(0, 1, (1.0, 2.0, 3.0, 4.5)),)]
    hashes = []
    for one in places:
        found = located("one two", *one)
        assert isinstance(found, Document)
        assert found.locations == one
        hashes.append(found.content_hash)
    assert hashes[0] == plain.content_hash
    assert len(set(hashes)) == len(places)


def test_locations_lead_to_the_same_text_once_its_line_ends_are_lf() -> None:
    raw = "ab\r\ncd\r\n\r\nef\r"
    starts = [raw.index(word) for word in ("ab", "cd", "ef")]
    found = located(raw, *(Location(start, page) for page, start in enumerate(starts, start=1)))
    assert isinstance(found, Document)
    assert [found.text[one.start : one.start + 2] for one in found.locations] == ["ab", "cd", "ef"]
    inside = locations_of("a\r\nb", Location(0, 1), Location(2, 2), Location(3, 3))  # the line feed, and what follows
    assert inside == (Location(0, 1), Location(1, 2), Location(2, 3))


@given(st.text("ab\r\n", min_size=1), st.lists(st.integers(0, 30)))
def test_every_location_of_a_letter_leads_to_it(text: str, starts: list[int]) -> None:
    letters = sorted({start for start in starts if start < len(text) and text[start] in "ab"})
    if not text.strip():
        return
    found = locations_of(text, *(Location(start, page) for page, start in enumerate(letters, start=1)))
    kept = document({"id": "a", "text": text}).text
    assert [kept[one.start] for one in found] == [text[start] for start in letters]
    assert [kept[: one.start].count("a") for one in found] == [text[:start].count("a") for start in letters]


def test_locations_in_which_nothing_stands_or_that_say_nothing_new_are_left_out() -> None:
    box = (1.0, 2.0, 3.0, 4.0)
    assert locations_of("one two", Location(0, 1), Location(0, 2), Location(4, 2), Location(7, 3)) == (Location(0, 2),)
    assert locations_of("one two", Location(0, 1), Location(4, 1, box)) == (Location(0, 1), Location(4, 1, box))
    assert locations_of("one two", Location(0, 1), Location(2, 2), Location(2, 1)) == (Location(0, 1),)


@pytest.mark.parametrize(
    "box",
    [
        (float("nan"), 0.0, 1.0, 1.0),
        (0.0, 0.0, float("inf"), 1.0),
        (0.0, 0.0, 1e300, 1.0),
        (2.0, 0.0, 1.0, 1.0),
        (0.0, 2.0, 1.0, 1.0),
        (0.0, 1.0),
    ],
)
def test_a_box_that_is_none_is_dropped_and_its_page_kept(box: Any) -> None:
    assert locations_of("one", Location(0, 3, box)) == (Location(0, 3),)


def test_a_box_is_kept_to_two_decimals() -> None:
    (found,) = locations_of("one", Location(0, 1, (-0.001, 1 / 3, 72, 100.005)))
    assert found.box == (0.0, 0.33, 72.0, 100.0)
    assert str(found.box) == "(0.0, 0.33, 72.0, 100.0)"  # no -0.0, which would be another hash


@pytest.mark.parametrize(
    "locations",
    [
        (Location(4, 1), Location(0, 2)),
        (Location(-1, 1),),
        (Location(8, 1),),
        (Location(0, 0),),
        (Location(0, 1 << 31),),
    ],
)
def test_wrong_locations_are_refused_without_the_text(locations: tuple[Location, ...]) -> None:
    refused = located("one two", *locations)
    assert isinstance(refused, RejectedRow)
    assert (refused.reason, refused.document_id) == ("unreadable-file", "a")
    assert "location" in refused.detail
    assert "one two" not in refused.detail
