"""Stage `embed_names`: the directions of the canonical names of an entity shard.

The pack `names` (indexmill.retrieve.shared_schema) has no row for an entity without a vector. Directions in earlier
parts are copied.
"""

from __future__ import annotations

import numpy as np

from indexmill.retrieve.directions import directions_of
from indexmill.retrieve.shared_schema import NAMES as NAME_VECTORS
from indexmill.text.canonical_names import NameIndex
from schemas.tables import NAMES
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.stages.embed.embed import TextVectors, embed_texts, keys_array


def drive(run: Run) -> None:
    """Embed the canonical names whose vectors no earlier part contains."""
    settings = run.opened_encoder.vector_settings
    shards = sorted(run.outputs("named").items())
    run.make(STAGE, [PartSpec(name.partition("/")[2], {"names": digest}, settings) for name, digest in shards])


def _compute(part: Part[EncoderSettings]) -> Outputs:
    table = part.table("names")
    names = table.column("name").to_pylist()
    embedder = encoder_of(part)
    vectors, keys, computed = embed_texts(
        names, lambda some: directions_of(embedder.encode(some)), _NAMES.reusable(part), embedder.dimension, np.int8
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


_NAMES = TextVectors(lambda part: part.table("names", "name").column("name").to_pylist(), keys="keys")

STAGE = Stage(
    "embed_names",
    version=2,
    rows_version=1,
    compute=_compute,
    libraries=("numpy",),
    estimate=_NAMES.estimate,
    encodes=_NAMES.encodes,
    inputs=(Input("names", NAMES, output="named"),),
    outputs=(Output("names", NAME_VECTORS, artifact="names/{label}"),),
    priority=5,
    uses_encoder=True,
)
