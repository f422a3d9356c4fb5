"""What a report is made of, and how it is written: the order of members, the room, and no more than is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.folder import FolderStore
from tasks.core.shards import estimate_tokens
from tasks.families.community_tree.report_inputs import DescribedRelation, Member, ReportInput, chosen
from tasks.families.community_tree.reports import STAGE, ReportSettings, _Community, _Reports, community_text
from tasks.stages.embed.embed import row_key
from tests.tasks.making import UNASKED, part_with

ANSWER: dict[str, Any] = {
    "title": "Vell and\nits bridges",
    "summary": "  Ada Marl built\n the bridge. ",
    "findings": [{"summary": "A bridge", "explanation": "It is\nold."}, {"summary": "\0 ", "explanation": "Nothing."}],
    "rating": 7.26,
    "rating_explanation": "Many cross it.",
}


def member(name: str, words: int = 3, size: int = 0) -> Member:
    body = " ".join([f"{name} stands."] * words)
    text = f"{name}: {body}"
    return Member(name.lower(), row_key(text).hex(), name, body, text, size)


def relation(source: str, target: str, words: int = 3) -> DescribedRelation:
    text = " ".join([f"{source} saw {target}."] * words)
    return DescribedRelation(source.lower(), target.lower(), row_key(text).hex(), text)


def names(made: ReportInput) -> list[str]:
    return [one.name for one in made.members]


@pytest.fixture
def writer(store: FolderStore) -> _Reports:
    shaping = {"tokens": 60, "input_tokens": 200}
    settings = ReportSettings(level=1, summariser=shaping, encoder={}, texts={}, sources=None, **UNASKED)
    return _Reports(part_with(store, STAGE, settings))


def community(made: ReportInput) -> _Community:
    return _Community("c", len(made.members) + (not made.alone), made, "made")


def test_members_come_by_classes_of_their_relations_then_by_id() -> None:
    """Relations: A 3, B 2, C 1, D 2, E 0, F 2; the classes are 3 to 6, 1 to 2, and none."""
    pairs = [("A", "B"), ("A", "D"), ("A", "F"), ("B", "F"), ("C", "D")]
    members = [member(name) for name in "FEDCBA"]
    made = chosen(members, [relation(*pair) for pair in pairs], 10_000)
    assert names(made) == ["A", "B", "C", "D", "F", "E"]
    told = [(one.source, one.target) for one in made.relations]
    assert told == [("a", "b"), ("a", "d"), ("a", "f"), ("b", "f"), ("c", "d")]
    one_more = chosen(members, [relation(*pair) for pair in [*pairs, ("C", "A")]], 10_000)
    assert names(one_more) == names(made)
    another = chosen(members, [relation(*pair) for pair in [*pairs, ("B", "C"), ("E", "F")]], 10_000)
    assert names(another) == ["A", "B", "F", "C", "D", "E"]
    assert [(one.source, one.target) for one in another.relations][:3] == [("a", "b"), ("a", "f"), ("b", "f")]


def test_communities_come_by_the_class_of_their_size() -> None:
    members = [member("A", size=3), member("B", size=40), member("C", size=33), member("D", size=1)]
    assert names(chosen(members, [], 10_000, above=True)) == ["B", "C", "A", "D"]


def test_members_leave_a_third_of_the_room_to_relations_and_take_what_these_leave() -> None:
    members = [member(name, 20) for name in "ABCDEF"]
    each = estimate_tokens(len(members[0].text.encode()))
    assert names(chosen(members, [], 3 * each)) == ["A", "B", "C"]
    pairs = [relation(*pair) for pair in (("A", "B"), ("A", "C"), ("B", "C"))]
    made = chosen(members, pairs, 3 * each)
    assert names(made)[:2] == ["A", "B"]  # two thirds of the room
    assert [(one.source, one.target) for one in made.relations] == [("a", "b")]  # both ends are told
    small = [*members[:5], member("F", 1)]
    assert names(chosen(small, pairs, 3 * each)) == ["A", "B", "F"]  # what did not fit is passed over


def test_one_member_is_told_whatever_the_room(writer: _Reports) -> None:
    made = chosen([member("A", 100), member("B", 100)], [relation("A", "B")], 5)
    assert (names(made), made.relations, made.alone) == (["A"], [], False)
    (text,) = writer.content(community(chosen([member("A", 1000)], [], 5)))
    assert len(text.encode()) == 4 * 200


_MEMBERS = st.lists(
    st.tuples(st.sampled_from("ABCDEFGHIJ"), st.integers(1, 30)), min_size=1, max_size=10, unique_by=lambda one: one[0]
)
_PAIRS = st.lists(st.tuples(st.sampled_from("ABCDEFGHIJ"), st.sampled_from("ABCDEFGHIJ")), max_size=20, unique=True)


@settings(max_examples=200)
@given(_MEMBERS, _PAIRS, st.integers(20, 400), st.randoms())
def test_what_is_told_fits_and_is_a_function_of_the_set(
    sizes: list[tuple[str, int]], pairs: list[tuple[str, str]], room: int, chance: Any
) -> None:
    members = [member(*one) for one in sizes]
    held = {one.id for one in members}
    relations = [relation(*pair) for pair in pairs if {end.lower() for end in pair} <= held and pair[0] != pair[1]]
    made = chosen(members, relations, room)
    assert len({one.id for one in made.members}) == len(made.members) >= 1
    told = {one.id for one in made.members}
    assert all({one.source, one.target} <= told for one in made.relations)
    cost = sum(estimate_tokens(len(one.text.encode())) for one in made.members)
    cost += sum(estimate_tokens(len(f"A -> B: {one.description}".encode())) for one in made.relations)
    assert cost <= room or len(made.members) == 1
    chance.shuffle(members)
    chance.shuffle(relations)
    assert chosen(members, relations, room) == made


def test_a_report_hashes_all_that_it_is_made_of_and_nothing_else() -> None:
    members, pairs = [member("A"), member("B")], [relation("A", "B")]
    made = chosen(members, pairs, 1000)
    first = made.digest(1, {"backend": "extractive"})
    others = [
        made.digest(2, {"backend": "extractive"}),
        made.digest(1, {"backend": "openai"}),
        dataclasses.replace(made, alone=True).digest(1, {"backend": "extractive"}),
        chosen(members, [relation("A", "B", 4)], 1000).digest(1, {"backend": "extractive"}),
        chosen([members[0], member("B", 4)], pairs, 1000).digest(1, {"backend": "extractive"}),
        chosen([*members, member("C")], pairs, 1000).digest(1, {"backend": "extractive"}),
    ]
    assert len({first, *others}) == 7
    long = chosen([*members, member("C", 500)], pairs, 1000)  # does not fit
    assert long.digest(1, {"backend": "extractive"}) == first


def test_a_report_without_a_model_by_hand(writer: _Reports) -> None:
    members = [member(name, 1) for name in ("Ada", "Bruno", "Vell", "Orrin")]
    pairs = [relation("Ada", "Vell", 1), relation("Ada", "Bruno", 1)]
    report = writer.fallback(community(chosen(members, pairs, 1000)))
    assert report.title == "Ada, Bruno, Vell"
    assert all(name in report.text for name in ("Ada", "Bruno", "Vell", "Orrin"))
    assert [(one.summary, one.explanation) for one in report.findings] == [
        ("Ada and Bruno", "Ada saw Bruno."),
        ("Ada and Vell", "Ada saw Vell."),
    ]
    assert report.rating == 3.3  # 10 * 2 / (2 + 4)
    assert report.rating_explanation == "2 relations between 4 entities"


def test_a_report_on_reports_is_named_after_the_first_of_each(writer: _Reports) -> None:
    below = [member("Ada, Bruno, Vell", 1, size=6), member("Orrin, Rook", 1, size=2)]
    report = writer.fallback(community(chosen(below, [], 1000, above=True)))
    assert report.title == "Ada, Orrin"
    assert report.rating == 8.0  # 10 * 8 / (8 + 2)
    assert [one.summary for one in report.findings] == ["Ada, Bruno, Vell", "Orrin, Rook"]


def test_a_community_of_one_member_says_what_the_member_says(writer: _Reports) -> None:
    for one, text in ((member("Ada", 1), "Ada\nAda stands."), (Member("a", "", "Ada", "", "Ada"), "Ada\nAda")):
        report = writer.fixed_text(community(chosen([one], [], 1000)))
        assert report is not None
        assert community_text(report.title, report.text) == text
    assert writer.fixed_text(community(chosen([member("Ada"), member("Bruno")], [], 1000))) is None


def test_entities_and_relations_are_two_texts_and_reports_one_each(writer: _Reports) -> None:
    members = [member("A"), member("B")]
    told = writer.content(community(chosen(members, [relation("A", "B")], 500)))
    assert told == [f"{members[0].text}\n\n{members[1].text}", "A -> B: A saw B. A saw B. A saw B."]
    assert len(writer.content(community(chosen(members, [], 500)))) == 1
    assert len(writer.content(community(chosen(members, [], 500, above=True)))) == 2


def test_an_answer_becomes_plain_lines_within_bounds(writer: _Reports) -> None:
    report = writer.parse(ANSWER)
    assert report is not None
    assert (report.title, report.text) == ("Vell and its bridges", "Ada Marl built the bridge.")
    assert [(one.summary, one.explanation) for one in report.findings] == [("A bridge", "It is old.")]
    assert report.rating == 7.3
    for rating, kept in ((11, 10.0), (-3, 0.0), (10**400, 10.0)):
        bounded = writer.parse({**ANSWER, "rating": rating})
        assert bounded is not None
        assert bounded.rating == kept
    assert writer.parse({**ANSWER, "title": "\0"}) is None
    long = writer.parse({**ANSWER, "findings": ANSWER["findings"] * 50})
    assert long is not None
    assert len(long.findings) == 10
