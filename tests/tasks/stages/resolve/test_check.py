"""What `check` refuses of descriptions, of their vectors, and of pairs of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from indexmill.text.canonical_names import NameIndex, entity_id
from schemas.tables import RELATED, SAME_AS
from tasks.core.checks import CheckError
from tasks.core.shards import id_hashes
from tasks.stages.check.shared_checks import check_descriptions, check_same_as
from tasks.stages.embed.embed import keys_array, row_key
from tasks.stages.resolve.consolidate import entity_text
from tests.corpora import documents
from tests.tasks.indexes import Index
from tests.tasks.making import Built, Check

NAMES = sorted(("ada marl", "orrin bay", "vell"), key=entity_id)
IDS = [entity_id(name) for name in NAMES]

Change = Callable[[dict[str, Any]], Any]


def whole() -> dict[str, Any]:
    """Three described entities, two related pairs, and the vectors."""
    keys = [row_key(entity_text(name.title(), "thing", "It is.")) for name in NAMES]
    described = pl.DataFrame(
        {
            "entity_id": IDS,
            "name": NAMES,
            "surface": [name.title() for name in NAMES],
            "type": "thing",
            "description": "It is.",
            "tokens": 7,
            "digest": [key.hex() for key in keys],
            "pieces": 1,
            "passages": 2,
            "stand_in": False,
        }
    )
    related = pl.DataFrame(
        {
            "source": [IDS[0], IDS[2]],
            "target": [IDS[1], IDS[0]],
            "kind": "",
            "description": "So.",
            "digest": row_key("So.").hex(),
            "relations": [1, 2],
            "stand_in": False,
        }
    )
    vectors = {"keys": id_hashes(IDS), "text_keys": keys_array(keys), "vectors": np.eye(3, 8, dtype=np.float32)}
    return {"described": described, "related": related, "vectors": vectors, "entities": NameIndex.keys(IDS)}


def test_what_is_sound_passes_and_is_counted() -> None:
    assert check_descriptions(**whole(), label="e") == {"described": 3, "related": 2, "relations": 3}


def altered(table: str, **columns: Any) -> Change:
    def change(parts: dict[str, Any]) -> None:
        parts[table] = parts[table].with_columns(**columns)

    return change


def cut(table: str, *rows: int) -> Change:
    def change(parts: dict[str, Any]) -> None:
        parts[table] = parts[table][list(rows)]

    return change


def vectors(name: str, with_: Callable[[NDArray[Any]], NDArray[Any]]) -> Change:
    def change(parts: dict[str, Any]) -> None:
        parts["vectors"][name] = with_(parts["vectors"][name])

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (cut("described", 1, 0, 2), "described/e: not in the order"),
        (cut("described", 0, 1, 1), "described/e: not in the order"),
        (lambda parts: parts.update(entities=parts["entities"][1:]), "1 descriptions belong to missing entities"),
        (altered("described", description=pl.lit("Else.")), "a text does not match its digest"),
        (altered("described", passages=pl.lit(0)), "no passage mentions an entity"),
        (vectors("vectors", lambda array: array[:2]), "2 rows for 3 entities"),
        (vectors("keys", lambda array: array[::-1]), "the vectors belong to other entities"),
        (vectors("text_keys", lambda array: array[::-1]), "the vectors belong to other texts"),
        (vectors("vectors", lambda array: array * 2), "not of unit length"),
        (cut("related", 1, 0), "related/e: not in the order"),
        (altered("related", source=pl.lit(IDS[0]), target=pl.Series([IDS[0], IDS[1]])), "related to itself"),
        (altered("related", source=pl.Series(["f" * 31 + "0", "f" * 32])), "2 relations of entities"),
        (altered("related", description=pl.lit("Else.")), "related/e: a text does not match its digest"),
    ],
)
def test_what_does_not_hold_together_is_refused(change: Change, why: str) -> None:
    parts = whole()
    change(parts)
    with pytest.raises(CheckError, match=why):
        check_descriptions(**parts, label="e")


def pairs(*rows: tuple[str, str]) -> pa.Table:
    ones, others = zip(*rows, strict=True) if rows else ((), ())
    numbers = {"cosine": [0.9] * len(rows), "likeness": [0.9] * len(rows)}
    return pa.table({"entity_id": list(ones), "other_id": list(others), **numbers}, schema=SAME_AS)


def test_pairs_of_names_are_of_two_described_entities_in_order() -> None:
    ids = pa.array(IDS)
    check_same_as(pairs(), ids)
    check_same_as(pairs((IDS[0], IDS[1]), (IDS[0], IDS[2])), ids)
    for rows, why in (
        ([(IDS[0], IDS[2]), (IDS[0], IDS[1])], "order of their ids"),
        ([(IDS[0], IDS[1])] * 2, "order of their ids"),
        ([(IDS[1], IDS[0])], "order of its ids"),
        ([(IDS[1], IDS[1])], "order of its ids"),
        ([(IDS[1], "f" * 32)], "not described"),
        ([("0" * 32, IDS[1])], "not described"),
    ):
        with pytest.raises(CheckError, match=why):
            check_same_as(pairs(*rows), ids)


def test_descriptions_are_held_against_what_was_extracted(quick: Path) -> None:
    """The check of the whole corpus, with tables of a build and one of them changed."""
    Index(quick / "store", resolve={"description": {"enabled": True}}).build(documents(6))
    built = Built(quick / "store")
    assert built.outputs["check", "all"]
    tables = ("mentions", "extracted", "described", "related", "checked")
    inputs = {name: digest for name, digest in built.named().items() if name.partition("/")[0] in tables}
    check = Check(built.store, "all", {name: one for name, one in inputs.items() if name != "checked/all"})
    check.run()
    extracted, described, related = (next(n for n in inputs if n.startswith(f"{table}/")) for table in tables[1:4])
    rows = pl.DataFrame(pl.from_arrow(check.table(extracted)))
    more = pl.concat([rows, rows[:1].with_columns(entity_id=pl.lit("0" * 32))])
    lost = check.table(related).to_pylist()
    lost[0]["target"] = "0" * 32
    for changed, why in (
        (check.with_table(extracted, more.to_arrow()), "mentioned or extracted ids"),
        (check.with_table(described, check.table(described).slice(0, 1)), "lead to entities that are not described"),
        (
            check.with_table(related, pa.Table.from_pylist(lost, RELATED)),
            "1 pairs lead to entities that are not described",
        ),
    ):
        with pytest.raises(CheckError, match=why):
            changed.run()
