"""The directions of names, copied where an earlier part knows the name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder
from indexmill.retrieve.directions import directions_of
from indexmill.store.packs import open_pack
from indexmill.text.canonical_names import NameIndex, entity_id
from schemas.tables import NAMES
from storage.folder import FolderStore, init_folder
from storage.table_blobs import put_table
from tasks.core.part_runner import PartSpec
from tasks.stages.embed.embed import row_key
from tasks.stages.embed.embed_names import STAGE
from tests.deep import examples
from tests.storage.quick import quick_folder
from tests.tasks.making import Parts, embedded

SOME = st.sets(st.sampled_from(["ada venn", "marrow bridge", "bridge", "river", "grey hills", "tallow"]))


def ordered(names: set[str]) -> list[str]:
    return sorted(names, key=entity_id)


def spec(store: FolderStore, names: set[str]) -> PartSpec:
    rows = [{"entity_id": entity_id(name), "name": name} for name in ordered(names)]
    return embedded(store, "e", {"names": put_table(store, pa.Table.from_pylist(rows, NAMES), NAMES)[0]})


def test_a_row_is_the_direction_of_a_name(store: FolderStore) -> None:
    names = ["ada venn", "river"]
    made = Parts(store).make(STAGE, spec(store, set(names)))
    pack = open_pack(store.open_local(made.receipt.outputs["names"]))
    rows = ordered(set(names))
    assert pack["vectors"].dtype == np.int8
    assert np.array_equal(pack["vectors"], directions_of(HashEmbedder().encode(rows)))
    assert np.array_equal(pack["entity_keys"], NameIndex.keys([entity_id(name) for name in rows]))
    assert [bytes(key) for key in pack["keys"]] == [row_key(name) for name in rows]
    assert made.counts == {"vectors_made": 2, "vectors_reused": 0}


@examples(5, deep=20)
@given(before=SOME, others=SOME, names=SOME)
def test_names_that_earlier_parts_hold_are_copied_with_the_bytes_of_a_rebuild(
    before: set[str], others: set[str], names: set[str]
) -> None:
    assume(names not in (before, others))  # such a part is there already
    with quick_folder() as folder:
        store = init_folder(folder / "store")
        parts = Parts(store)
        earlier = [parts.make(STAGE, spec(store, some)).receipt for some in (before, others)]
        wanted = spec(store, names)
        foreseen = STAGE.estimate(parts.inputs(STAGE, wanted, earlier), {})
        made = parts.make(STAGE, wanted, earlier)
        new = len(names - before - others)
        assert made.counts == foreseen.counts == {"vectors_made": new, "vectors_reused": len(names) - new}
        other = init_folder(folder / "fresh")
        assert Parts(other).make(STAGE, spec(other, names)).receipt.outputs == made.receipt.outputs
