"""Stage `embed_names`: vectors of the canonical names of an entity shard.

The pack `names` has the vectors, their row keys, and the key of the entity that each belongs to: an entity without a
vector has no row.
"""

from __future__ import annotations

from indexmill.names import NameIndex
from schemas.tables import NAMES
from tasks.embed import Vectors, embed_texts, keys_array
from tasks.encoder import encoder_of
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE"]


def _compute(inputs: Inputs) -> Outputs:
    table = inputs.table("names", NAMES)
    names = table.column("name").to_pylist()
    embedder = encoder_of(inputs)
    packs = [inputs.pack(digest) for digest in inputs.job.reuse]
    known = Vectors((pack["keys"], pack["vectors"]) for pack in packs)
    vectors, keys, made = embed_texts(names, embedder.encode, known, embedder.dimension)
    return Outputs(
        packs={
            "names": {
                "entity_keys": NameIndex.keys(table.column("entity_id").to_pylist()),
                "keys": keys_array(keys),
                "vectors": vectors,
            }
        },
        counts={"vectors_made": made, "vectors_reused": len(names) - made},
    )


STAGE = Stage("embed_names", version=1, compute=_compute, libraries=("numpy",))
