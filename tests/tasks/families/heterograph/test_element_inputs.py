"""What the high-level elements of each community are made of, group by group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.config import LlmSettings
from storage.folder import FolderStore, init_folder
from storage.table_blobs import put_table, read_table
from tasks.core.estimate import Range, RowRange
from tasks.core.stage import WHOLE
from tasks.families.heterograph.element_inputs import STAGE, estimate
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.tables import HETERO_MADE, HETERO_READ, HETERO_SOURCES
from tests.tasks.families.heterograph.graphs import ids
from tests.tasks.families.heterograph.nights import READING, Night, attribute_rows
from tests.tasks.families.heterograph.towns import PEOPLE, TOWNS, names_of, towns

ASKED = LlmSettings(backend="openai", model="tester", base_url="http://127.0.0.1:9/v1")


def night(store: FolderStore, *names: str, before: Night | None = None, **changes: Any) -> Night:
    names = names or TOWNS
    made = {"important": [f"ada {name}" for name in names], **changes}
    return Night(store, towns(*names, more=made.pop("more", None)), names_of(*names), before=before, **made).read()


def rows(made: Night, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.table("hetero_elements_read", name).to_pylist()
    return found


def by_town(made: Night) -> dict[str, str]:
    """The community of each town, by the town's own entity."""
    return {name: made.membership()[ids(name)[0]] for name in TOWNS if ids(name)[0] in made.membership()}


def test_a_community_reads_its_units_attributes_and_relations(store: FolderStore) -> None:
    made = night(store)
    community = by_town(made)["vell"]
    read = [row for row in rows(made, "element_read") if row["owner"] == community]
    texts = {kind: {row["text"] for row in read if row["kind"] == kind} for kind in "SAR"}
    assert texts["S"] == {
        f"{one.title()} Vell wrote to {PEOPLE[(number + 1) % 4].title()} Vell of Vell on day {number}."
        for number, one in enumerate(PEOPLE)
    }
    assert texts["A"] == {"Ada Vell is important."}
    assert "Ada Vell wrote to Bruno Vell" in texts["R"]
    assert len(read) == 9
    (row,) = [row for row in rows(made, "element_made") if row["owner"] == community]
    assert row["nodes"] == 9
    assert row["shown"].split(", ")[0] == "Ada Vell"  # two units, two relations and the attribute; the town four units
    assert row["shown"].split(", ")[1] in {"Vell", *(f"{one.title()} Vell" for one in PEOPLE)}


def test_the_tables_of_a_group_are_of_its_communities_in_their_order(store: FolderStore) -> None:
    made = night(store)
    outputs = made.outputs("hetero_elements_read")
    labels = {name.partition("/")[2] for name in outputs}
    assert {name.partition("/")[0] for name in outputs} == {"element_read", "element_made"}
    assert len(labels) > 1
    seen: list[str] = []
    for label in sorted(labels):
        assert label.startswith("H")
        written = read_table(store, outputs[f"element_made/{label}"], HETERO_MADE)
        read = read_table(store, outputs[f"element_read/{label}"], HETERO_READ)
        owners = written["owner"].to_pylist()
        assert owners == sorted(owners)
        assert read["owner"].unique().to_pylist() == owners
        assert len(owners) <= READING["group"]
        for key in written["made_of"].to_pylist():
            assert f"{int(key, 16):0128b}".startswith(label[1:])
        seen += owners
    assert sorted(seen) == sorted(by_town(made).values())
    assert made.count("communities_read", "hetero_elements_read") == len(seen)


@pytest.mark.slow
def test_what_is_read_is_capped_and_small_communities_are_left_out(store: FolderStore) -> None:
    made = night(store, reading={"units": 2, "relations": 1, "attributes": 0})
    kinds = [row["kind"] for row in rows(made, "element_read")]
    assert [kinds.count(kind) for kind in "SAR"] == [2 * len(TOWNS), 0, len(TOWNS)]
    assert night(store, reading={"fewest": 10}).outputs("hetero_elements_read") == {}
    assert night(store, reading={"fewest": 9}).outputs("hetero_elements_read") != {}


@pytest.mark.slow
def test_an_edit_changes_what_its_own_community_is_made_of_alone(store: FolderStore) -> None:
    before = night(store)
    after = night(store, before=before, more={"vell": ("Rook came to Vell.",)}, reading={"units": 9})
    same = night(store, reading={"units": 9})
    was, now = ({row["owner"]: row["made_of"] for row in rows(one, "element_made")} for one in (same, after))
    assert len(set(was.values()) & set(now.values())) == len(TOWNS) - 1
    assert was[by_town(same)["vell"]] != now[by_town(after)["vell"]]
    assert before.outputs("hetero_elements_read") == same.outputs("hetero_elements_read")  # four units, nine at most


@pytest.mark.slow
def test_of_a_town_that_is_gone_nothing_is_read(store: FolderStore, quick: Path) -> None:
    after = night(store, *TOWNS[1:], before=night(store))
    fresh = night(init_folder(quick / "fresh"), *TOWNS[1:])
    assert after.outputs("hetero_elements_read") == fresh.outputs("hetero_elements_read")
    assert not any("Vell" in row["text"] for row in rows(after, "element_read"))


@pytest.mark.slow
def test_what_writes_and_what_a_community_is_called_after_are_part_of_what_it_is_made_of(store: FolderStore) -> None:
    def made_of(**changes: Any) -> dict[str, str]:
        made = night(store, **changes)
        found = {row["owner"]: row["made_of"] for row in rows(made, "element_made")}
        return {name: found[community] for name, community in by_town(made).items()}

    first = made_of()
    assert not set(first.values()) & set(made_of(llm=ASKED).values())
    shown = made_of(shown={"ada krait": "Ada of Krait"})
    assert {name for name in first if first[name] != shown[name]} == {"krait"}


def test_a_model_is_told_which_passages_and_attributes_it_is_asked_about(store: FolderStore) -> None:
    made = night(store, llm=ASKED)
    sources = made.table("hetero_elements_read", "element_sources")
    assert sources.schema.equals(HETERO_SOURCES)
    (written,) = attribute_rows("ada vell")["made_of"].to_pylist()
    own = {row["source_id"] for row in sources.to_pylist() if row["owner"] == by_town(made)["vell"]}
    assert own == {*(f"vell {number}" for number in range(4)), written}
    assert written == node_id("made", "Ada Vell is important.")


def test_a_passage_that_writes_the_name_of_a_relations_end_is_a_source(store: FolderStore) -> None:
    """A relation shows the names of its ends, which another passage may write so."""
    plain = night(store, llm=ASKED)
    elsewhere = pa.Table.from_pylist(
        [
            {"passage_id": "a passage", "sentence": 0, "start": 0, "end": 1, "kind": "name"}
            | {"surface": "Ada Vell", "name": "ada vell", "entity_id": ids("ada vell")[0]}
        ],
        read_table(store, plain.inputs["mentions/p"]).schema,
    )
    made = Night(store, plain.corpus, plain.names, plain.important, llm=ASKED)
    made.inputs["mentions/p1"] = put_table(store, elsewhere)[0]
    made.read()
    sources = made.table("hetero_elements_read", "element_sources").to_pylist()
    assert {row["owner"] for row in sources if row["source_id"] == "a passage"} == {by_town(made)["vell"]}


@pytest.mark.parametrize("llm", [LlmSettings(), ASKED])
def test_a_plan_knows_what_is_read_where_the_communities_are_known(store: FolderStore, llm: LlmSettings) -> None:
    made = night(store, llm=llm)
    told = estimate(made.parts.inputs(STAGE, made.read_want()), {})
    receipt = made.made["hetero_elements_read"][WHOLE].receipt
    assert told.stand_ins == receipt.outputs
    assert not told.guessed


@pytest.mark.parametrize("llm", [LlmSettings(), ASKED])
def test_a_plan_bounds_what_is_read_of_communities_that_are_not_known(store: FolderStore, llm: LlmSettings) -> None:
    before = night(store, llm=llm)
    made = night(store, before=before, more={"vell": ("Rook came to Vell.",)}, llm=llm)
    want, receipt = made.read_want(), made.made["hetero_elements_read"][WHOLE].receipt
    expected = {"graph": Range(0, 200), "hetero_communities": Range(0, 100), "attributes/e0": Range(5, 5)}
    for reuse in ([], made.reuse("hetero_elements_read")):
        told = estimate(made.parts.inputs(STAGE, want, reuse), expected)
        assert {name.partition("/")[0] for name in told.rows} == {name.partition("/")[0] for name in receipt.outputs}
        count = sum(number for output, number in receipt.rows.items() if output.startswith("element_made/"))
        most = [one for output, one in told.rows.items() if output.startswith("element_made/")]
        assert sum(one.low for one in most) <= count <= sum(one.high for one in most)
        assert all(isinstance(one, RowRange) and one.fresh.high == one.high for one in most)
    assert set(told.rows) == set(before.outputs("hetero_elements_read"))  # the groups that there were


def test_without_communities_nothing_is_read(store: FolderStore) -> None:
    made = Night(store, towns(), []).read()
    assert made.outputs("hetero_elements_read") == {}
    assert made.count("communities_read", "hetero_elements_read") == 0
    assert made.element_wants() == []
