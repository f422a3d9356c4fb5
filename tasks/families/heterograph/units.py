"""Stage `hetero_units`: the vectors of a shard's units, one for each unit (NodeRAG, section 2.4).

Token counts include special tokens. Vectors and counts that an earlier part holds for the same text are reused.
"""

from __future__ import annotations

import numpy as np

from indexmill.families.heterograph.schema import UNIT_VECTORS
from schemas.tables import UNITS
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.encoder_estimate import texts_to_send
from tasks.core.estimate import EncoderTexts, Estimate, Expected
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array, missing_texts, row_key, unknown_texts


def _compute(part: Part[EncoderSettings]) -> Outputs:
    texts = part.table("units", "text")["text"].to_pylist()
    vectors, keys, computed = embed_texts(
        texts, lambda some: encoder_of(part).encode(some), _earlier_vectors(part, "vectors"), part.settings.dimension
    )
    tokens = np.empty(len(texts), dtype=np.int32)
    new = ~_earlier_vectors(part, "tokens").copy_into(keys, tokens)
    if new.any():
        tokens[new] = encoder_of(part).count_tokens([texts[row] for row in np.flatnonzero(new).tolist()])
    return Outputs(
        packs={"unit_vectors": {"text_keys": keys_array(keys), "vectors": vectors, "tokens": tokens}},
        counts={"vectors_made": computed, "vectors_reused": len(texts) - computed},
    )


def _encodes(part: Part[EncoderSettings], expected: Expected) -> EncoderTexts:
    """The texts without a vector."""
    texts = part.table("units", "text")["text"].to_pylist()
    return texts_to_send(part, unknown_texts(texts, _earlier_vectors(part, "vectors")))


def estimate(part: Part[EncoderSettings], expected: Expected) -> Estimate:
    """The exact number of unit vectors to compute."""
    keys = [row_key(text) for text in part.table("units", "text")["text"].to_pylist()]
    missing = len(missing_texts(keys, _earlier_vectors(part, "vectors").holds(keys)))
    return Estimate(counts={"vectors_made": missing, "vectors_reused": len(keys) - missing})


def _earlier_vectors(part: Part[EncoderSettings], name: str) -> Vectors:
    return Vectors((pack["text_keys"], pack[name]) for pack in part.reusable_packs())


STAGE = Stage(
    "hetero_units",
    version=1,
    compute=_compute,
    settings=EncoderSettings,
    libraries=("numpy",),
    estimate=estimate,
    encodes=_encodes,
    inputs=(Input("units", UNITS),),
    outputs=(Output("unit_vectors", UNIT_VECTORS, artifact="unit_vectors/{label}"),),
    uses_encoder=True,
)
