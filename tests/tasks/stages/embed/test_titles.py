"""The vectors of titles: a row for each document, copied where the title is known, zeros where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.models.embedder import HashEmbedder
from indexmill.retrieve.directions import directions_of
from indexmill.store.packs import open_pack
from schemas.tables import DOCUMENTS, PASSAGES
from storage.folder import FolderStore, init_folder
from storage.table_blobs import put_table
from tasks.core.part_runner import PartSpec
from tasks.stages.embed.embed import row_key
from tasks.stages.embed.titles import STAGE, embedded_title
from tasks.stages.split.split import TITLE_BYTES
from tests.storage.quick import quick_folder
from tests.tasks.making import CLOSED, Parts, embedded, numbers_of
from tests.tasks.tables import documents


def tables(store: FolderStore, titles: list[str], passages: list[int]) -> dict[str, str]:
    """The digests of documents with some titles, and of so many passages of each."""
    titled = documents(*((f"d{i}", title, "text") for i, title in enumerate(titles)))
    parts = [
        {"passage_id": f"d{i}-{n}", "document_id": f"d{i}", "ordinal": n, "start": 0, "end": 4, "text": "text"}
        | {"tokens": 1, "section": "", "language": "en"}
        for i, count in enumerate(passages)
        for n in range(count)
    ]
    return {
        "documents": put_table(store, titled, DOCUMENTS)[0],
        "passages": put_table(store, pa.Table.from_pylist(parts, PASSAGES), PASSAGES)[0],
    }


def spec(store: FolderStore, *titles: str, passages: list[int] | None = None, **opening: Any) -> PartSpec:
    inputs = tables(store, list(titles), passages or [1] * len(titles))
    return embedded(store, "p", inputs, **opening)


def test_a_row_is_the_title_of_the_document_of_that_row(store: FolderStore) -> None:
    parts, wanted = Parts(store), spec(store, "Marrow Bridge", "", " Ada Venn\n", "Ada Venn", passages=[2, 1, 0, 3])
    made = parts.make(STAGE, wanted)
    pack = open_pack(store.open_local(made.receipt.outputs["titles"]))
    bridge, venn = directions_of(HashEmbedder().encode(["Marrow Bridge", "Ada Venn"]))
    assert np.array_equal(pack["vectors"], [bridge, np.zeros_like(bridge), venn, venn])
    keys = [row_key(title) for title in ("Marrow Bridge", "", "Ada Venn", "Ada Venn")]
    assert [bytes(key) for key in pack["text_keys"]] == keys
    assert pack["passage_document"].tolist() == [0, 0, 1, 3, 3, 3]
    dtypes = {"text_keys": np.uint8, "vectors": np.int8, "passage_document": np.int32}
    assert {name: pack[name].dtype for name in pack} == dtypes
    assert made.counts == {"vectors_made": 2, "vectors_reused": 1}


def test_a_long_title_is_cut_as_before_a_passage() -> None:
    title = embedded_title("bridge " * TITLE_BYTES)
    assert title.startswith("bridge bridge")
    assert title.endswith("bridge")
    assert TITLE_BYTES - 8 < len(title) <= TITLE_BYTES
    assert embedded_title(" \n ") == ""


def test_a_title_that_an_earlier_part_holds_is_copied_and_the_plan_says_so(store: FolderStore) -> None:
    parts = Parts(store)
    before = parts.make(STAGE, spec(store, "Ada Venn", "", "Marrow Bridge")).receipt
    wanted = spec(store, "", "Grey Hills", "Marrow Bridge", "Grey Hills", passages=[1, 1, 4, 1])
    foreseen = STAGE.estimate(parts.inputs(STAGE, wanted, [before]), {})
    made = parts.make(STAGE, wanted, [before])
    assert made.counts == foreseen.counts == {"vectors_made": 1, "vectors_reused": 2}
    with quick_folder() as folder:
        other = init_folder(folder / "fresh")
        again = spec(other, "", "Grey Hills", "Marrow Bridge", "Grey Hills", passages=[1, 1, 4, 1])
        assert Parts(other).make(STAGE, again).receipt.outputs == made.receipt.outputs


def test_no_encoder_is_opened_where_every_title_is_known_or_empty(store: FolderStore) -> None:
    parts = Parts(store)
    before = parts.make(STAGE, spec(store, "Ada Venn")).receipt
    made = parts.make(STAGE, spec(store, "", "Ada Venn", opening=CLOSED), [before])
    assert made.counts == {"vectors_made": 0, "vectors_reused": 1}


def test_a_shard_without_documents_has_no_rows(store: FolderStore) -> None:
    made = Parts(store).make(STAGE, spec(store))
    pack = open_pack(store.open_local(made.receipt.outputs["titles"]))
    assert pack["vectors"].shape == (0, numbers_of(store)["dimension"])
    assert pack["text_keys"].shape == (0, 16)
    assert pack["passage_document"].shape == (0,)
