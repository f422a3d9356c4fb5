"""Extraction without a model: sentences, the names in them, and the words between two names."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.recogniser import RulesRecogniser, WordListRecogniser
from indexmill.text.canonical_names import entity_id
from tasks.core.checks import CheckError
from tasks.stages.check.shared_checks import check_extraction
from tasks.stages.extract.extraction_tables import (
    EXTRACTION,
    Entity,
    Extraction,
    MentionTexts,
    Relation,
    Unit,
    tables_of,
)
from tasks.stages.extract.extractive import extract_all
from tasks.stages.recognise.rules import recognise
from tests.deep import examples
from tests.tasks.tables import documents, passages_and_sentences

NAMES = ["Ada Marl", "Vell", "Bruno Quill", "Orrin Bay", "Goran Stave"]


def texts_of(*rows: tuple[str, str], names: list[str] | None = None) -> MentionTexts:
    """Documents of one passage each, and their mentions."""
    whole = documents(*((f"d{number}", *row) for number, row in enumerate(rows)))
    tables = (whole, *passages_and_sentences(whole))
    return MentionTexts(*tables, recognise(*tables, WordListRecogniser(names) if names else RulesRecogniser()))


def extracted(title: str, text: str, names: list[str] | None = NAMES) -> Extraction:
    (found,) = extract_all(texts_of((title, text), names=names))
    return found


def relations(found: Extraction) -> list[tuple[str, str, str]]:
    return [(one.source, one.text, one.target) for unit in found.units for one in unit.relations]


def test_sentences_are_units_and_the_words_between_two_names_relate_them() -> None:
    found = extracted("", "Ada Marl built the Bridge of Vell. It rained.  Vell lies\non Orrin Bay.")
    first, about, second = "Ada Marl built the Bridge of Vell.", "It rained.", "Vell lies on Orrin Bay."
    built = Relation("ada marl", "vell", "built the bridge of", "built the Bridge of", first)
    lies = Relation("vell", "orrin bay", "lies on", "lies on", second)
    assert found.units == (
        Unit(first, ("ada marl", "vell"), (built,)),
        Unit(about, ("ada marl",), ()),
        Unit(second, ("vell", "orrin bay"), (lies,)),
    )


@pytest.mark.parametrize(
    ("sentence", "wording"),
    [
        ("Ada Marl was born in Vell.", "was born in"),
        ("Ada Marl's home town Vell.", "'s home town"),
        ("Ada Marl, Vell.", None),
        ("Ada Marl and Vell.", None),
        ("Ada Marl & Vell.", None),
        ("Ada Marl slept, then left Vell.", None),
        ("Ada Marl slept while Vell burned.", None),
        ("Ada Marl slept and Vell burned.", "slept and"),
        ("Ada Marl slept; Vell burned.", None),
        ("| Ada Marl | Vell |", None),
        ("Ada Marl - Vell.", None),
        ("Ada Marl (Vell).", None),
        ("Ada Marl one two three four five six seven eight Vell.", "one two three four five six seven eight"),
        ("Ada Marl one two three four five six seven eight nine Vell.", None),
        ("Ada Marl likes Ada Marl.", None),
    ],
)
def test_words_that_go_on_within_a_clause_are_a_relation(sentence: str, wording: str | None) -> None:
    wanted = [] if wording is None or wording.endswith("and") else [("ada marl", wording, "vell")]
    assert relations(extracted("", sentence)) == wanted


def test_a_relation_has_the_direction_in_which_it_is_written() -> None:
    assert relations(extracted("", "Vell was left by Ada Marl.")) == [("vell", "was left by", "ada marl")]


def test_a_sentence_without_a_name_is_about_what_the_title_says() -> None:
    found = extracted("Orrin Bay", "It is deep. Vell lies there.", None)
    assert [(unit.text, unit.entities) for unit in found.units] == [
        ("It is deep.", ("orrin bay",)),
        ("Vell lies there.", ("vell",)),
    ]
    assert {one.name: one.type for one in found.entities} == {"orrin bay": "title", "vell": "name"}


def test_dates_and_numbers_are_no_entities() -> None:
    found = extracted("", "On 20 March 1890 Ada Marl sold 9,984 lamps.", None)
    assert [one.name for one in found.entities] == ["ada marl"]


def test_an_entity_is_described_by_what_says_most_about_it() -> None:
    text = (
        "Bruno Quill met Ada Marl. Ada Marl was an engineer of iron bridges, ships and lamps in the cold north. "
        "Vell saw Ada Marl. Nobody else came."
    )
    (described,) = [one.description for one in extracted("", text).entities if one.name == "ada marl"]
    assert described.startswith("Ada Marl was an engineer")
    assert "Nobody" not in described
    long = f"Ada Marl {'and so on ' * 60}ended. Ada Marl painted."
    (described,) = [one.description for one in extracted("", long).entities]
    assert described.count("Ada Marl") == 1


def test_types_are_those_of_the_mentions() -> None:
    found = extracted("", 'Ada Marl wrote "Cold River" and called GetMessage() there.', None)
    types = {one.name: one.type for one in found.entities}
    assert types == {"ada marl": "name", "cold river": "work", "getmessage": "code"}


def test_other_scripts_are_extracted_too() -> None:
    found = extracted("", "藤原乙牟漏は桓武天皇の皇后。", None)
    assert relations(found)[:1] == [("藤原乙牟漏", "は", "桓武天皇")]


@pytest.mark.parametrize("text", ["", " \n ", "...", "no names here at all", "\0"])
def test_a_passage_that_says_nothing_of_anything_is_empty(text: str) -> None:
    assert extracted("", text) == Extraction()


WORDS = st.sampled_from(
    [*NAMES, "built", "and", ".", ",", "\n", "(", "the", "Ada", "1890", "é", "漢字", '"', "'s", "-"]
)


@examples(22, deep=150)
@given(st.lists(st.tuples(st.sampled_from(["", "Vell", "Ada Marl (1)"]), st.lists(WORDS).map(" ".join)), max_size=4))
def test_tables_hold_together_and_each_passage_is_extracted_as_if_alone(rows: list[tuple[str, str]]) -> None:

    texts = texts_of(*rows)
    found = extract_all(texts)
    ids = texts.passages["passage_id"].to_pylist()
    tables = tables_of(ids, found)
    for name, schema in EXTRACTION.items():
        assert tables[name].schema == schema
    check_extraction(
        {name: pl.DataFrame(pl.from_arrow(table)) for name, table in tables.items()}, pl.Series("passage_id", ids), "p"
    )
    for row, of in enumerate(rows):
        assert extract_all(texts_of(of)) == [found[row]]


def entity(name: str) -> Entity:
    return Entity(name, name, "", "")


def test_ids_are_of_content_and_rows_in_order() -> None:
    said = (Relation("b", "a", "k", "made", ""), Relation("a", "b", "k", "made", ""))
    whole = Extraction((entity("b"), entity("a")), (Unit("one", ("b", "a"), said), Unit("two", ("a",))))
    tables = tables_of(["p1", "p2"], [whole, whole])
    assert tables["units"].column("ordinal").to_pylist() == [0, 1, 0, 1]
    assert len(set(tables["units"].column("unit_id").to_pylist())) == 4
    assert len(set(tables["relations"].column("relation_id").to_pylist())) == 4  # another direction is another one
    assert tables["extracted"].column("entity_id").to_pylist() == sorted(map(entity_id, "ab")) * 2
    moved = tables_of(["p2"], [Extraction(whole.entities[::-1], whole.units[::-1])])
    for name in ("extracted", "relations"):
        assert moved[name].equals(tables[name].slice(len(moved[name])))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"units": 0}, "name no unit_id of their passage"),
        ({"extracted": 0}, "name no entity_id of their passage"),
        ({"unit_entities": 0}, "relations/p: .* name no entity_id"),
        ({"units": 2}, "unit_id are not unique"),
        ({"relations": 2}, "relation_id are not unique"),
    ],
)
def test_the_check_refuses_what_dangles_or_is_there_twice(changed: dict[str, int], message: str) -> None:

    whole = Extraction((entity("a"), entity("b")), (Unit("one", ("a", "b"), (Relation("a", "b", "k", "made", ""),)),))
    tables = {
        name: pl.DataFrame(pl.from_arrow(pa.concat_tables([table] * changed.get(name, 1) or [table.slice(0, 0)])))
        for name, table in tables_of(["p1"], [whole]).items()
    }
    with pytest.raises(CheckError, match=message):
        check_extraction(tables, pl.Series("passage_id", ["p1"]), "p")


def test_the_check_refuses_rows_of_other_passages() -> None:
    table = pl.DataFrame(pl.from_arrow(tables_of(["p1"], [Extraction((entity("a"),))])["extracted"]))
    tables = {name: pl.DataFrame(pl.from_arrow(schema.empty_table())) for name, schema in EXTRACTION.items()}
    check_extraction(tables | {"extracted": table}, pl.Series("passage_id", ["p1"]), "p")
    with pytest.raises(CheckError, match="belong to no passage"):
        check_extraction(tables | {"extracted": table}, pl.Series("passage_id", ["p2"]), "p")
