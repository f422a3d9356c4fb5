"""Stage `hetero_units`: the vectors of a shard's units, one for each unit (NodeRAG, section 2.4).

Token counts include special tokens. Vectors and counts that an earlier part has for the same text are reused.
"""

from __future__ import annotations

import numpy as np

from indexmill.families.heterograph.schema import UNIT_VECTORS
from schemas.tables import UNITS
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.stages.embed.embed import TextVectors, embed_texts, keys_array


def _compute(part: Part[EncoderSettings]) -> Outputs:
    texts = _UNITS.texts(part)
    vectors, keys, computed = embed_texts(
        texts, lambda some: encoder_of(part).encode(some), _UNITS.reusable(part), part.settings.dimension
    )
    tokens = np.empty(len(texts), dtype=np.int32)
    new = ~_UNITS.reusable(part, "tokens").copy_into(keys, tokens)
    if new.any():
        tokens[new] = encoder_of(part).count_tokens([texts[row] for row in np.flatnonzero(new).tolist()])
    return Outputs(
        packs={"unit_vectors": {"text_keys": keys_array(keys), "vectors": vectors, "tokens": tokens}},
        counts={"vectors_made": computed, "vectors_reused": len(texts) - computed},
    )


_UNITS = TextVectors(lambda part: part.table("units", "text")["text"].to_pylist())

STAGE = Stage(
    "hetero_units",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    estimate=_UNITS.estimate,
    encodes=_UNITS.encodes,
    inputs=(Input("units", UNITS),),
    outputs=(Output("unit_vectors", UNIT_VECTORS, artifact="unit_vectors/{label}"),),
    uses_encoder=True,
)
