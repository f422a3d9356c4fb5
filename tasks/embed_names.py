"""Stage `embed_names`: a vector for each canonical name of an entity shard."""

from __future__ import annotations

from schemas.tables import NAMES
from tasks.embed import Vectors, embed_texts, keys_array
from tasks.encoder import encoder_of
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE"]


def _compute(inputs: Inputs) -> Outputs:
    names = inputs.table("names", NAMES)["name"].to_pylist()
    embedder = encoder_of(inputs)
    packs = [inputs.pack(digest) for digest in inputs.job.reuse]
    known = Vectors((pack["keys"], pack["vectors"]) for pack in packs)
    vectors, keys, made = embed_texts(names, embedder.encode, known, embedder.dimension)
    return Outputs(
        packs={"names": {"vectors": vectors, "keys": keys_array(keys)}},
        counts={"vectors_made": made, "vectors_reused": len(names) - made},
    )


STAGE = Stage("embed_names", version=1, compute=_compute, libraries=("numpy",))
