"""The directions of names, copied where an earlier part knows the name, also from the vectors of an older one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder
from indexmill.retrieve.directions import directions_of
from indexmill.store.packs import open_pack
from indexmill.text.names import NameIndex, entity_id
from schemas.tables import NAMES
from storage.arrays import put_pack
from storage.folder import FolderStore, init_folder
from storage.receipts import Receipt
from storage.tables import put_table
from tasks.core.part_runner import PartSpec
from tasks.stages.embed.embed import row_key
from tasks.stages.embed.names import STAGE, estimate
from tests.deep import examples
from tests.storage.quick import quick_folder
from tests.tasks.making import Parts, embedded

SOME = st.sets(st.sampled_from(["ada venn", "marrow bridge", "bridge", "river", "grey hills", "tallow"]))


def ordered(names: set[str]) -> list[str]:
    return sorted(names, key=entity_id)


def spec(store: FolderStore, names: set[str]) -> PartSpec:
    rows = [{"entity_id": entity_id(name), "name": name} for name in ordered(names)]
    return embedded(store, "e", {"names": put_table(store, pa.Table.from_pylist(rows, NAMES), NAMES)[0]})


def of_version_1(store: FolderStore, names: set[str]) -> Receipt:
    """The part that stage version 1 made of some names: it has their vectors."""
    made = Parts(store).make(STAGE, spec(store, names)).receipt
    arrays = dict(open_pack(store.open_local(made.outputs["names"])))
    arrays["vectors"] = HashEmbedder().encode(ordered(names))
    return made.model_copy(update={"outputs": {"names": put_pack(store, "run", arrays)[0]}})


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
@given(before=SOME, older=SOME, names=SOME)
def test_names_that_earlier_parts_hold_are_copied_with_the_bytes_of_a_rebuild(
    before: set[str], older: set[str], names: set[str]
) -> None:
    assume(names not in (before, older))  # such a part is there already
    with quick_folder() as folder:
        store = init_folder(folder / "store")
        parts = Parts(store)
        earlier = [parts.make(STAGE, spec(store, before)).receipt, of_version_1(store, older)]
        wanted = spec(store, names)
        foreseen = estimate(parts.inputs(STAGE, wanted, earlier), {})
        made = parts.make(STAGE, wanted, earlier)
        new = len(names - before - older)
        assert made.counts == foreseen.counts == {"vectors_made": new, "vectors_reused": len(names) - new}
        other = init_folder(folder / "fresh")
        assert Parts(other).make(STAGE, spec(other, names)).receipt.outputs == made.receipt.outputs
