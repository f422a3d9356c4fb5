"""The check refuses what does not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from schemas.tables import DOCUMENTS
from storage.table_blobs import put_table, read_table
from tasks.core.checks import CheckError
from tasks.families.bm25.check import check_postings
from tasks.families.bm25.postings import postings
from tasks.stages.embed.embed import row_key
from tests.corpora import documents
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index
from tests.tasks.making import Built, Check

WHOLE = postings(["", "", ""], ["a lamp", "lamp lamp", "river"], 0)


def test_whole_postings_pass() -> None:
    check_postings(WHOLE, 3, "bm25/p")
    check_postings(postings([], [], 0), 0, "bm25/p")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lengths": WHOLE["lengths"][:2]}, "expected 3 where it has 2"),
        ({"lengths": WHOLE["lengths"][::-1]}, "add up"),
        ({"counts": WHOLE["counts"] + np.uint8(1)}, "add up"),
        ({"keys": WHOLE["keys"] * np.uint64(0)}, "order of their keys"),
        ({"indptr": WHOLE["indptr"][[0, 0, 2, 3]]}, "has no passages"),
        ({"passages": WHOLE["passages"][::-1]}, "order of their rows"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_postings(WHOLE | changed, 3, "bm25/p")


@pytest.fixture(scope="module")
def checks() -> Iterator[dict[str, Check]]:
    """The checks of a built store, by shard."""
    with quick_folder() as folder:
        small = {"lsh_tree": {"smallest": 2, "largest": 3, "group": 8}}
        Index(folder / "store", families=small).build(documents(50))
        built = Built(folder / "store")
        of_shard: dict[str, dict[str, str]] = {}
        segments: dict[str, str] = {}
        entities: dict[str, str] = {}
        elsewhere = {"lsh_segments": segments, "resolve": entities}
        for (stage, label), outputs in built.outputs.items():
            if label != "all" and stage not in ("zoom_links", "count_names"):
                (elsewhere[stage] if stage in elsewhere else of_shard.setdefault(label, {})).update(outputs)
        for label, inputs in of_shard.items():
            inputs |= {"entities": entities[f"entities/{label}"]} if f"entities/{label}" in entities else {}
            blocks = {name.partition("/")[2] for name in inputs if name.startswith("summaries/")}
            inputs |= {f"segments/{block}": segments[f"segments/{block}"] for block in blocks}
        inputs = {f"mentions/{label}": outputs["mentions"] for label, outputs in of_shard.items() if label[0] == "p"}
        inputs |= {
            f"{name}/{label}": outputs[name]
            for name in ("checked", "mention_links")
            for label, outputs in of_shard.items()
            if name in outputs
        }
        yield {label: Check(built.store, label, held) for label, held in {**of_shard, "all": inputs}.items()}


def test_a_sound_store_passes(checks: dict[str, Check]) -> None:
    assert len(checks) > 4
    for check in checks.values():
        check.run()


@pytest.mark.parametrize("letter", ["p", "e", "a"])
def test_what_belongs_to_another_shard_is_refused(checks: dict[str, Check], letter: str) -> None:
    labels = sorted(label for label in checks if label[0] == letter and label != "all")
    strange = labels[-1][:-1] + ("0" if labels[-1][-1] == "1" else "1") if labels[-1] != letter else letter + "0"
    check = checks[labels[-1]]
    blocks = {name.replace(f"/{labels[-1]}", f"/{strange}"): digest for name, digest in check.inputs.items()}
    with pytest.raises(CheckError, match="belong"):
        Check(check.store, strange, blocks).run()


def test_passages_of_another_shard_are_refused(checks: dict[str, Check]) -> None:
    one, other = sorted(label for label in checks if label[0] == "p")[:2]
    with pytest.raises(CheckError, match="belong to no document"):
        checks[one].with_inputs(passages=checks[other].inputs["passages"]).run()


def test_a_shard_that_is_missing_or_there_twice_is_refused(checks: dict[str, Check]) -> None:
    whole = checks["all"]
    entities = next(name for name in whole.inputs if name.startswith("checked/e"))
    left = {name: digest for name, digest in whole.inputs.items() if name != entities}
    with pytest.raises(CheckError, match="mentioned or extracted ids"):
        Check(whole.store, whole.shard, left).run()
    with pytest.raises(CheckError, match="contains another"):
        whole.with_inputs(**{f"{entities}0": whole.inputs[entities]}).run()


@pytest.fixture
def titled(checks: dict[str, Check]) -> Check:
    """The check of a shard of documents, which have titles."""
    return checks[min(label for label in checks if label[0] == "p")]


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("text_keys", lambda held: held[::-1], "the vectors belong to other titles"),
        ("vectors", lambda held: held * 0, "unit length"),
        ("vectors", lambda held: held[:-1], "rows for"),
        ("passage_document", lambda held: held[::-1], "the passages belong to other documents"),
        ("passage_document", lambda held: held[:-1], "the passages belong to other documents"),
    ],
)
def test_titles_that_do_not_fit_are_refused(
    titled: Check, name: str, wrong: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    with pytest.raises(CheckError, match=message):
        titled.with_arrays("titles", **{name: wrong(titled.pack("titles")[name])}).run()


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("entity_keys", lambda held: np.append(held[:-1], held[-1] + np.uint64(1)), "belong to other entities"),
        ("entity_keys", lambda held: held[::-1], "does not ascend"),
        ("mentions.indices", lambda held: held[:-1], "runs from 0"),
        ("contents.counts", lambda held: held * 0, "expected at least 1"),
        ("contents.indices", lambda held: held * 0, "do not ascend"),
        ("passage_sentences", lambda held: held[[0, 0, *range(2, len(held))]], "belong to other rows"),
        ("document_passages", lambda held: held[:-1], "has the shape"),
    ],
)
def test_links_that_do_not_fit_are_refused(
    titled: Check, name: str, wrong: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    with pytest.raises(CheckError, match=f"mention_links.*{message}"):
        titled.with_arrays("mention_links", **{name: wrong(titled.pack("mention_links")[name])}).run()


def test_links_of_all_shards_have_the_entities_of_the_table(checks: dict[str, Check]) -> None:
    whole = checks["all"]
    name = min(one for one in whole.inputs if one.startswith("mention_links/"))
    left = {one: digest for one, digest in whole.inputs.items() if one != name}
    with pytest.raises(CheckError, match=r"mention_links: \d+ entities for"):
        Check(whole.store, whole.shard, left).run()


def test_a_vector_of_a_title_that_is_not_there_is_refused(titled: Check) -> None:
    titles = ["", *titled.table("documents")["title"].to_pylist()[1:]]
    untitled = titled.with_column("documents", "title", pa.array(titles))
    arrays = titled.pack("titles")
    arrays["text_keys"][0] = list(row_key(""))
    with pytest.raises(CheckError, match="without a title has a vector"):
        untitled.with_arrays("titles", **arrays).run()
    arrays["vectors"][0] = 0
    untitled.with_arrays("titles", **arrays).run()


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        ([(0, 1, None), (9, 1, [0.0, 0.0, 1.0, 1.0]), (12, 4, None)], ""),
        ([(9, 1, None), (9, 2, None)], "do not ascend"),
        ([(-1, 1, None)], "outside its document's text"),
        ([(1_000_000, 1, None)], "outside its document's text"),
        ([(0, 0, None)], "page below 1"),
        ([(0, 1, [0.0, 1.0])], "four sides"),
        ([(0, 1, [0.0, None, 1.0, 1.0])], "four sides"),
        ([(0, 1, [0.0, float("nan"), 1.0, 1.0])], "not numbers"),
        ([(0, 1, [2.0, 0.0, 1.0, 1.0])], "not in order"),
    ],
)
def test_locations_lead_into_their_text_and_hold_pages_and_boxes(
    titled: Check, locations: list[tuple[int, int, list[float | None] | None]], message: str
) -> None:
    table = read_table(titled.store, titled.inputs["documents"], DOCUMENTS)
    rows = table.to_pylist()
    rows[-1]["locations"] = [dict(zip(("start", "page", "box"), one, strict=True)) for one in locations]
    if len(rows) > 1:
        rows[0]["locations"] = [{"start": 3, "page": 9, "box": None}]  # another document's ascend on their own
    digest, _ = put_table(titled.store, pa.Table.from_pylist(rows, DOCUMENTS), DOCUMENTS)
    check = titled.with_inputs(documents=digest)
    if not message:
        check.run()
        return
    with pytest.raises(CheckError, match=message):
        check.run()
