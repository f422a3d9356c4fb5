"""The vectors of units: a row for each, copied where the text is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.models.embedder import HashEmbedder
from indexmill.store.packs import open_pack
from schemas.tables import UNITS
from storage.folder import FolderStore, init_folder
from storage.table_blobs import put_table
from tasks.core.part_runner import PartSpec
from tasks.families.heterograph.units import STAGE
from tasks.stages.embed.embed import row_key
from tests.storage.quick import quick_folder
from tests.tasks.families.heterograph.graphs import corpus_of, unit
from tests.tasks.making import CLOSED, Parts, embedded, numbers_of


def spec(store: FolderStore, *texts: str, **opening: Any) -> PartSpec:
    table = corpus_of([unit(text, "ada") for text in texts]).units
    digest = put_table(store, table, UNITS)[0]
    return embedded(store, "p", {"units": digest}, **opening)


def test_a_row_of_the_pack_is_the_unit_of_that_row(store: FolderStore) -> None:
    texts = ["Ada came.", "Ada came and saw the bridge.", "Nobody came."]
    parts, wanted = Parts(store), spec(store, *texts)
    made = parts.make(STAGE, wanted)
    pack = open_pack(store.open_local(made.receipt.outputs["unit_vectors"]))
    encoder = HashEmbedder()
    assert np.array_equal(pack["vectors"], encoder.encode(texts))
    assert pack["tokens"].tolist() == encoder.count_tokens(texts).tolist()
    assert len(set(pack["tokens"].tolist())) > 1
    assert [bytes(key) for key in pack["text_keys"]] == [row_key(text) for text in texts]
    assert {name: pack[name].dtype for name in pack} == {
        "text_keys": np.uint8,
        "vectors": np.float32,
        "tokens": np.int32,
    }


def test_what_an_earlier_part_holds_is_copied_and_the_plan_says_so(store: FolderStore) -> None:
    parts = Parts(store)
    before = parts.make(STAGE, spec(store, "Ada came.", "Ada saw.")).receipt
    wanted = spec(store, "Ada left.", "Ada saw.", "Ada left for good.")
    foreseen = STAGE.estimate(parts.inputs(STAGE, wanted, [before]), {})
    made = parts.make(STAGE, wanted, [before])
    assert made.counts == foreseen.counts == {"vectors_made": 2, "vectors_reused": 1}
    with quick_folder() as folder:
        other = init_folder(folder / "fresh")
        fresh = Parts(other).make(STAGE, spec(other, "Ada left.", "Ada saw.", "Ada left for good."))
    assert fresh.receipt.outputs == made.receipt.outputs


def test_all_is_copied_where_no_encoder_can_be_opened(store: FolderStore) -> None:
    parts = Parts(store)
    before = parts.make(STAGE, spec(store, "Ada came.", "Ada saw.")).receipt
    made = parts.make(STAGE, spec(store, "Ada saw.", opening=CLOSED), [before])
    assert made.counts == {"vectors_made": 0, "vectors_reused": 1}


def test_a_shard_without_units_has_vectors_of_none(store: FolderStore) -> None:
    made = Parts(store).make(STAGE, spec(store))
    assert Parts(store).vectors(made.receipt.outputs["unit_vectors"]).shape == (0, numbers_of(store)["dimension"])
