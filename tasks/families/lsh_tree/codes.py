"""Stage `lsh_codes`: the codes of a shard's passages (EraRAG, III.B), by which they are cut into segments.

Unchanged shards keep their codes, so their vectors are not read. No other stage of lsh_tree reads passages' vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indexmill.retrieve.shared_schema import VECTORS
from indexmill.store.pack_schema import Array, PackSchema, hashes
from schemas.tables import PASSAGES
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, concatenated
from tasks.families.lsh_tree.axes import DIRECTIONS
from tasks.families.lsh_tree.hyperplanes import Hyperplanes

CODES = PackSchema(
    "the codes of a shard's passages, in the order of `passages`",
    {
        "codes": Array("uint64", ("passages",), "the side of each hyperplane on which a vector is"),
        "digests": hashes("passages", "the digests of the embedded texts: see tasks.stages.embed.embed.row_key"),
    },
)


@dataclass(frozen=True, kw_only=True)
class HyperplaneSettings(StageSettings):
    """seed: the seed of the hyperplanes. dimension: the dimension of the vectors."""

    seed: int
    dimension: int


def planes_of(part: Part[Any], seed: int, dimension: int) -> Hyperplanes:
    """Return the hyperplanes given by a seed and the input `axes`."""
    return Hyperplanes(seed, dimension, part.pack("axes")["axes"])


def _compute(part: Part[HyperplaneSettings]) -> Outputs:
    vectors, passages = concatenated(part.packs("vectors")), part.rows_of("passages")
    if len(vectors["passages"]) != passages:
        raise ValueError(f"the shard {part.job.shard} has {len(vectors['passages'])} vectors for {passages} passages")
    planes = planes_of(part, part.settings.seed, part.settings.dimension)
    arrays = {"codes": planes.codes(vectors["passages"]), "digests": vectors["passage_keys"]}
    return Outputs(packs={"codes": arrays})


STAGE = Stage(
    "lsh_codes",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(Input("axes", DIRECTIONS), Input("passages", PASSAGES), Input("vectors", VECTORS, pieces=True)),
    outputs=(Output("codes", CODES),),
    priority=30,
)
