"""What holds of GraphRAG's tables, whatever snapshot they were made of."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

Tables = dict[str, list[dict[str, Any]]]
"""The rows of each table."""


def by(rows: list[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    """The rows by a column, whose values are distinct."""
    found = {row[key]: row for row in rows}
    assert len(found) == len(rows)
    return found


def check_references(found: Tables) -> None:
    """Every id and title leads somewhere, and back; the tree of communities goes both ways."""
    for rows in found.values():
        assert [row["human_readable_id"] for row in rows] == list(range(len(rows)))
    units, entities, relations, communities, reports = (
        by(found[name], "id")
        for name in ("text_units", "entities", "relationships", "communities", "community_reports")
    )
    ids = Counter(row["id"] for rows in found.values() for row in rows)
    assert max(ids.values()) == 1
    titles = by(found["entities"], "title")
    numbers = by(found["communities"], "community")
    documents = by(found["documents"], "id")
    assert len(communities) == len(reports)
    assert [(key, one) for key, its in documents.items() for one in its["text_unit_ids"]] == [
        (one["document_id"], key) for key, one in units.items()
    ]

    # What a passage holds is what holds it.
    for rows, column in ((entities, "entity_ids"), (relations, "relationship_ids")):
        there = {(unit, key) for key, one in rows.items() for unit in one["text_unit_ids"]}
        back = {(key, one) for key, unit in units.items() for one in unit[column]}
        assert there == back
        assert all(one["text_unit_ids"] for one in rows.values())
    for one in relations.values():
        assert one["id"] == f"{titles[one['source']]['id']}-{titles[one['target']]['id']}"
        assert one["combined_degree"] == titles[one["source"]]["degree"] + titles[one["target"]]["degree"]
    neighbours = {title: set[str]() for title in titles}
    for one in relations.values():
        neighbours[one["source"]].add(one["target"])
        neighbours[one["target"]].add(one["source"])
    assert {title: one["degree"] for title, one in titles.items()} == {one: len(its) for one, its in neighbours.items()}
    assert all(one["frequency"] == len(one["text_unit_ids"]) for one in entities.values())

    # The tree goes both ways; a community has the entities of its children, and no other has them on its level.
    assert list(numbers) == list(range(len(numbers)))
    assert all(one["level"] <= other["level"] for one, other in pairwise(found["communities"]))
    below: dict[int, set[str]] = {number: set() for number in numbers}
    for number, one in reversed(numbers.items()):
        if one["parent"] == -1:
            assert one["level"] == 0
        else:
            assert one["level"] == numbers[one["parent"]]["level"] + 1
            assert number in numbers[one["parent"]]["children"]
            below[one["parent"]] |= set(one["entity_ids"])
        assert {numbers[child]["parent"] for child in one["children"]} <= {number}
        assert below[number] <= set(one["entity_ids"])
        assert one["size"] == len(one["entity_ids"]) == len(set(one["entity_ids"]))
        held = {
            key
            for key, relation in relations.items()
            if {titles[relation[end]]["id"] for end in ("source", "target")} <= set(one["entity_ids"])
        }
        assert set(one["relationship_ids"]) == held
        evidence = [relations[key] for key in held] or [entities[key] for key in one["entity_ids"]]
        assert set(one["text_unit_ids"]) == {unit for its in evidence for unit in its["text_unit_ids"]}
    for level in {one["level"] for one in numbers.values()}:
        held_by = Counter(key for one in numbers.values() if one["level"] == level for key in one["entity_ids"])
        assert set(held_by.values()) <= {1}
        assert held_by.keys() <= entities.keys()
    for report in reports.values():
        place = numbers[report["community"]]
        assert report["id"] == f"{place['id']}-report"
        for column in ("human_readable_id", "level", "parent", "children", "period", "size"):
            assert report[column] == place[column]
        findings = [f"## {one['summary']}\n\n{one['explanation']}" for one in report["findings"]]
        told = [f"# {report['title']}", report["summary"], *(findings or [""])]
        assert report["full_content"] == "\n\n".join(told)
        assert json.loads(report["full_content_json"]) == {
            "title": report["title"],
            "summary": report["summary"],
            "findings": report["findings"],
            "rating": report["rank"],
            "rating_explanation": report["rating_explanation"],
        }
