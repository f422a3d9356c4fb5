"""Mentions placed in passages and sentences."""

from __future__ import annotations

from indexmill.models.recogniser import RulesRecogniser
from tasks.stages.recognise.rules import recognise
from tests.tasks.tables import documents, passages_and_sentences

TEXT = "Ada Marl was an engineer. She built lamps. They burned.\n\nOrrin Bay is deep. It is cold."


def mentions(title: str, text: str, *cuts: int) -> list[tuple[str, int, str, str]]:
    """Passage, sentence, kind and name of the mentions of a document whose text is cut into passages."""
    whole = documents(("d", title, text))
    found = recognise(whole, *passages_and_sentences(whole, *cuts), RulesRecogniser())
    return [(row["passage_id"], row["sentence"], row["kind"], row["name"]) for row in found.to_pylist()]


def subjects(*cuts: int, title: str = "") -> list[tuple[str, int, str]]:
    return [(p, s, name) for p, s, kind, name in mentions(title, TEXT, *cuts) if kind == "subject"]


def test_a_subject_stands_in_the_sentence_that_begins_to_be_about_it() -> None:
    assert subjects() == [("p0", 0, "ada marl"), ("p0", 3, "orrin bay")]


def test_a_subject_holds_in_every_further_passage() -> None:
    cut = TEXT.index("They burned")
    assert subjects(cut) == [("p0", 0, "ada marl"), ("p1", 0, "ada marl"), ("p1", 1, "orrin bay")]


def test_a_title_that_tells_nothing_is_a_name_like_any_other() -> None:
    assert ("p0", -1, "part", "report 12") in mentions("Report 12", TEXT)
    assert ("p0", -1, "title", "ada marl") in mentions("Ada Marl", TEXT)
    assert subjects(title="Ada Marl") == []
