"""What an explanation says, whichever method made it."""

from __future__ import annotations

from typing import Any

from indexmill.explore.found import Reason, lines, passages_behind, reasons
from indexmill.hits import Hit


def hit(explanation: dict[str, Any] | None) -> Hit:
    return Hit("passage", "p", 1.0, "text", "title", ("d",), explanation=explanation)


WALKED = {
    "dense": False,
    "entities": [
        {"entity_id": "e1", "surface": "Ada", "score": 1, "hop": 0, "reached_from": None, "sentence": None},
        {
            "entity_id": "e2",
            "surface": "Ilse",
            "score": 0.5,
            "hop": 1,
            "reached_from": "Ada",
            "sentence": "Met Ilse.",
        },
    ],
}
FOLLOWED = [Reason("entity", "e1", 1.0, 0), Reason("entity", "e2", 0.5, 1, "Ada", "Met Ilse.")]


def test_entities_and_communities_are_read_with_what_led_to_them() -> None:
    assert list(reasons(hit(WALKED))) == FOLLOWED
    told = {
        "entities": [{"entity_id": "e1", "surface": "Ada", "added": 0.25}],
        "communities": [{"community_id": "c1", "title": "The bridge", "level": 1, "added": 0.5}],
    }
    assert list(reasons(hit(told))) == [Reason("entity", "e1", 0.25), Reason("community", "c1", 0.5)]
    assert list(reasons(hit(None))) == list(reasons(hit({}))) == []


def test_the_methods_of_a_fusion_are_read_one_after_the_other() -> None:
    terms = {"terms": [{"term": "bridge", "share": 0.75}]}
    told = {
        "methods": [{"name": "walk", "rank": 2, "score": 0.125}, {"name": "words", "rank": 1, "score": 17.0}],
        "walk": WALKED,
        "words": terms,
        "unlisted": WALKED,
    }
    assert list(reasons(hit(told))) == FOLLOWED
    assert lines(hit(told)) == [
        "walk: rank 2, score 0.125",
        "words: rank 1, score 17",
        "words terms: bridge, share 0.75",
    ]


def test_other_reasons_become_lines_without_ids_and_of_bounded_length() -> None:
    said = [{"text": "x" * 5_000, "score": 0.5}, {"node_id": "n", "kind": "unit", "added": 0.1}]
    (first, second) = lines(hit({"sentences": said, "dense": True}))[:2]
    assert len(first) == 400
    assert second == "sentences: unit, added 0.1"
    assert lines(hit({"sentences": said, "dense": True}))[2] == "dense"
    assert len(lines(hit({"sentences": said * 50}))) == 12


def test_the_passages_behind_a_summary_are_listed() -> None:
    assert passages_behind(hit({"layer": 1, "passages": ["p1", "p2"]})) == ["p1", "p2"]
    assert passages_behind(hit({"passages": 3})) == passages_behind(hit(None)) == []
