"""Stage `hetero_units`: the vectors of what the passages of a shard say, one of each unit (NodeRAG, section 2.4).

    Want(<p>, {"units"}, {"encoder": numbers}, {"opening"}, encoder=numbers)

The pack `unit_vectors`: indexmill.families.heterograph.schema. Tokens include special ones. What an earlier
part holds of the same text is copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from indexmill.families.heterograph.schema import UNIT_VECTORS
from schemas.tables import UNITS
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, Range
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array, missing_texts, row_key

__all__ = ["STAGE", "estimate"]


def _compute(inputs: Inputs) -> Outputs:
    texts = inputs.table("units", UNITS, "text")["text"].to_pylist()
    dimension = inputs.settings["encoder"]["dimension"]
    vectors, keys, made = embed_texts(
        texts, lambda some: encoder_of(inputs).encode(some), _known(inputs, "vectors"), dimension
    )
    tokens = np.empty(len(texts), dtype=np.int32)
    new = ~_known(inputs, "tokens").copy_into(keys, tokens)
    if new.any():
        tokens[new] = encoder_of(inputs).count_tokens([texts[row] for row in np.flatnonzero(new).tolist()])
    pack = {"text_keys": keys_array(keys), "vectors": vectors, "tokens": tokens}
    return Outputs(
        packs={"unit_vectors": UNIT_VECTORS.conform(pack)},
        counts={"vectors_made": made, "vectors_reused": len(texts) - made},
    )


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """How many vectors of units must be computed, to the vector."""
    keys = [row_key(text) for text in inputs.table("units", UNITS, "text")["text"].to_pylist()]
    made = len(missing_texts(keys, _known(inputs, "vectors").holds(keys)))
    size = UNIT_VECTORS.size({"own units": len(keys), "dimensions": inputs.settings["encoder"]["dimension"]})
    return Estimate(
        bytes={"unit_vectors": Range.exactly(size)},
        rows={"unit_vectors": Range.exactly(len(keys))},
        counts={"vectors_made": made, "vectors_reused": len(keys) - made},
    )


def _known(inputs: Inputs, name: str) -> Vectors:
    packs = [inputs.pack(digest) for digest in inputs.job.reuse]
    return Vectors((pack["text_keys"], pack[name]) for pack in packs)


STAGE = Stage("hetero_units", version=1, compute=_compute, libraries=("numpy",), estimate=estimate)
