"""Stage `embed_names`: the directions of the canonical names of an entity shard.

The pack `names` (indexmill.retrieve.shared_schema) has no row for an entity without a vector. Directions that an
earlier part holds are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.retrieve.directions import directions_of
from indexmill.retrieve.shared_schema import NAMES as NAME_VECTORS
from indexmill.text.canonical_names import NameIndex
from schemas.tables import NAMES
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.encoder_estimate import texts_to_send
from tasks.core.estimate import EncoderTexts, Estimate, Expected
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array, missing_texts, row_key, unknown_texts


def drive(run: Run) -> None:
    """Make the vectors of canonical names that no earlier part holds."""
    settings = EncoderSettings(**run.opened_encoder.settings)
    shards = sorted(run.outputs("named").items())
    run.make(STAGE, [PartSpec(name.partition("/")[2], {"names": digest}, settings) for name, digest in shards])


def _compute(part: Part[EncoderSettings]) -> Outputs:
    table = part.table("names")
    names = table.column("name").to_pylist()
    embedder = encoder_of(part)
    vectors, keys, computed = embed_texts(
        names, lambda some: directions_of(embedder.encode(some)), _reusable_vectors(part), embedder.dimension, np.int8
    )
    return Outputs(
        packs={
            "names": {
                "entity_keys": NameIndex.keys(table.column("entity_id").to_pylist()),
                "keys": keys_array(keys),
                "vectors": vectors,
            }
        },
        counts={"vectors_made": computed, "vectors_reused": len(names) - computed},
    )


def _encodes(part: Part[EncoderSettings], expected: Expected) -> EncoderTexts:
    """The texts without a vector."""
    texts = part.table("names", "name").column("name").to_pylist()
    return texts_to_send(part, unknown_texts(texts, _reusable_vectors(part)))


def estimate(part: Part[EncoderSettings], expected: Expected) -> Estimate:
    """The exact number of name vectors to compute."""
    keys = [row_key(name) for name in part.table("names", "name").column("name").to_pylist()]
    computed = len(missing_texts(keys, _reusable_vectors(part).holds(keys)))
    return Estimate(counts={"vectors_made": computed, "vectors_reused": len(keys) - computed})


def _reusable_vectors(part: Part[Any]) -> Vectors:
    return Vectors((pack["keys"], pack["vectors"]) for pack in part.reusable_packs())


STAGE = Stage(
    "embed_names",
    version=2,
    rows_version=1,
    compute=_compute,
    settings=EncoderSettings,
    libraries=("numpy",),
    estimate=estimate,
    encodes=_encodes,
    inputs=(Input("names", NAMES, output="named"),),
    outputs=(Output("names", NAME_VECTORS, artifact="names/{label}"),),
    priority=5,
    uses_encoder=True,
)
