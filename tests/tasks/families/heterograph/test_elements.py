"""High-level elements through nights: what is written again, what is copied, and what a language model is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.config import LlmSettings
from storage.folder import FolderStore, init_folder
from storage.table_blobs import put_table, read_table
from tasks.core.estimate import Estimate, Expected, Range, RowRange
from tasks.families.heterograph.elements import STAGE, estimate
from tasks.families.heterograph.tables import HETERO_ATTRIBUTES
from tests.llm_server import CANARY, LlmServer
from tests.tasks.families.heterograph.graphs import ids
from tests.tasks.families.heterograph.nights import Night, attribute_rows
from tests.tasks.families.heterograph.towns import TOWNS, names_of, towns

NEW = {"vell": ("Rook came to Vell.",)}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)


def asking(server: LlmServer) -> LlmSettings:
    return LlmSettings(
        backend="openai", model="tester", base_url=server.base_url, api_key_env="CANARY_KEY", timeout_seconds=5.0
    )


def night(store: FolderStore, *names: str, before: Night | None = None, **changes: Any) -> Night:
    names = names or TOWNS
    made = {"important": [f"ada {name}" for name in names], **changes}
    return Night(store, towns(*names, more=made.pop("more", None)), names_of(*names), before=before, **made).run()


def rows(made: Night) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.table("elements", "elements").to_pylist()
    return found


def of_town(made: Night, name: str) -> list[dict[str, Any]]:
    """The elements of the community of a town."""
    return [row for row in rows(made) if row["community_id"] == made.membership()[ids(name)[0]]]


def insights(*elements: tuple[str, str]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Answers with elements; {} stands for the town that the prompt tells of."""

    def answer(chat: Mapping[str, Any]) -> Mapping[str, Any]:
        told = str(chat["messages"][1]["content"])
        name = next(one.title() for one in TOWNS if one.title() in told)
        return {"elements": [{"title": title.format(name), "text": text.format(name)} for title, text in elements]}

    return answer


TWO = insights(("Letters of {}", "All of {} write letters."), ("{} by days", "Day by day {} writes."))


# --- without a model -------------------------------------------------------------------------------------------------


def test_without_a_model_each_community_has_one_element_of_its_own_words(store: FolderStore) -> None:
    made = night(store)
    found = rows(made)
    assert len(found) == len(TOWNS) == made.count("elements") == made.count("elements_made")
    assert made.count("stand_ins") == 0
    (vell,) = of_town(made, "vell")
    assert vell["title"].startswith("Ada Vell, ")
    assert "Vell wrote to" in vell["text"]
    assert not any(name.title() in vell["text"] for name in TOWNS[1:])
    assert vell["stand_in"] is False


@pytest.mark.slow
def test_a_night_writes_again_what_changed_and_copies_the_rest(store: FolderStore, quick: Path) -> None:
    before = night(store)
    made = night(store, before=before, more=NEW)
    assert made.count("elements_made") == 1
    assert [row for row in rows(made) if row not in rows(before)] == of_town(made, "vell")
    assert made.digests("elements") == night(init_folder(quick / "fresh"), more=NEW).digests("elements")


@pytest.mark.slow
def test_a_community_that_wins_a_node_that_is_not_read_keeps_its_elements(store: FolderStore) -> None:
    """Of its units one is read, the first in the order of their hashes, which some of the new ones come after."""
    before = night(store, reading={"units": 1})
    (was,) = of_town(before, "vell")
    kept = 0
    for what in ("old", "cold", "far", "here", "small"):
        made = night(store, before=before, reading={"units": 1}, more={"vell": (f"Vell is {what}.",)})
        (now,) = of_town(made, "vell")
        assert now["community_id"] != was["community_id"]
        if now["made_of"] == was["made_of"]:
            assert made.count("elements_made") == 0
            assert {**now, "community_id": ""} == {**was, "community_id": ""}
            kept += 1
        else:
            assert made.count("elements_made") == 1
    assert kept >= 3


def test_the_order_of_rows_and_documents_shapes_nothing(store: FolderStore, quick: Path) -> None:
    first = night(store)
    other = init_folder(quick / "other")
    turned = Night(other, towns(*TOWNS).shuffled(7), names_of(*TOWNS), [f"ada {name}" for name in TOWNS])
    for name in ("units", "unit_entities", "relations"):  # each row once, in another order
        table = read_table(other, turned.inputs[f"{name}/p"])
        turned.inputs[f"{name}/p"] = put_table(other, table.group_by(table.column_names).aggregate([]))[0]
    assert rows(turned.run()) == rows(first)


def test_an_attribute_that_is_written_anew_has_its_community_told_anew(store: FolderStore) -> None:
    before = night(store)
    made = Night(store, before.corpus, before.names, before.important, before)
    told = [attribute_rows(*before.important[1:]), attribute_rows(before.important[0], text="{} was a poet.")]
    table = pa.concat_tables(told).sort_by("attribute_id")
    made.inputs["attributes/e0"] = put_table(store, table, HETERO_ATTRIBUTES)[0]
    made.run()
    assert made.count("elements_made") == 1
    assert made.outputs("hetero_groups") == before.outputs("hetero_groups")
    changed = {row["community_id"] for row in rows(made) if row not in rows(before)}
    assert changed == {made.membership()[ids("vell")[0]]}
    read = made.table("hetero_elements_read", "element_read").to_pylist()
    assert {row["owner"] for row in read if row["text"] == "Ada Vell was a poet."} == changed


# --- with a model ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_writes_several_elements_of_a_community_and_is_paid_once(store: FolderStore) -> None:
    with LlmServer(answer=TWO) as server:
        before = night(store, llm=asking(server))
        assert server.billed.calls == len(TOWNS) == before.count("llm_calls")
        vell = of_town(before, "vell")
        assert {(row["title"], row["text"]) for row in vell} == {
            ("Letters of Vell", "All of Vell write letters."),
            ("Vell by days", "Day by day Vell writes."),
        }
        assert before.count("elements") == 2 * len(TOWNS) == len(rows(before))
        assert before.count("elements_made") == len(TOWNS)
        made = night(store, before=before, llm=asking(server), more=NEW)
        assert server.billed.calls == len(TOWNS) + 1
        assert made.count("elements_made") == made.count("llm_calls") == 1
        assert {row["element_id"] for row in rows(made)} - {row["element_id"] for row in rows(before)} == {
            row["element_id"] for row in of_town(made, "vell")
        }
        assert len(rows(made)) == 2 * len(TOWNS)
        cold = night(store, before=made, llm=asking(server), more=NEW, cold=True)  # the ledger has all answers
        assert server.billed.calls == len(TOWNS) + 1
        assert rows(cold) == rows(made)


# --- the plan --------------------------------------------------------------------------------------------------------


def told_of(made: Night, expected: Expected, before: Night | None) -> dict[str, Estimate]:
    reuse = [] if before is None else [part.receipt for part in before.made["elements"].values()]
    wants = made.element_wants()
    return {want.shard: estimate(made.parts.inputs(STAGE, want, reuse), expected) for want in wants}


def test_a_plan_bounds_what_a_model_is_asked(store: FolderStore) -> None:
    with LlmServer(answer=TWO) as server:
        before = None
        for more, new in ({}, len(TOWNS)), (NEW, 1):
            made = Night(
                store,
                towns(*TOWNS, more=more),
                names_of(*TOWNS),
                [f"ada {name}" for name in TOWNS],
                before,
                llm=asking(server),
            ).read()
            sure = told_of(made, {}, before)
            some = Range(0, 3)
            unsure = told_of(made, {"read": some, "made": RowRange(0, 3, some)}, before)
            was = server.billed.calls, server.billed.input_tokens, server.billed.output_tokens
            made.run()
            now = server.billed.calls, server.billed.input_tokens, server.billed.output_tokens
            spent = [after - then for after, then in zip(now, was, strict=True)]
            for told in (sure, unsure):
                uses = [use for one in told.values() for use in one.llm]
                for name, number in zip(("calls", "input_tokens", "output_tokens"), spent, strict=True):
                    bounds = [getattr(use, name) for use in uses]
                    assert sum(one.low for one in bounds) <= number <= sum(one.high for one in bounds)
            assert sum(use.calls.low for one in sure.values() for use in one.llm) == new == spent[0]
            before = made
        again = told_of(made, {}, made)
        assert sum(use.calls.high for one in again.values() for use in one.llm) == 0
        ledgered = told_of(made, {}, None)
        assert sum(use.calls.high for one in ledgered.values() for use in one.llm) == 0
