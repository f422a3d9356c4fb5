"""Stage `lsh_codes`: the codes of a shard's passages (EraRAG, III.B), and all else that cutting them into segments needs.

The codes of the shards that a night leaves alone are there, and nobody reads their vectors for them. This is the one
place where lsh_tree reads vectors of passages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.shared_schema import VECTORS
from indexmill.store.pack_schema import Array, PackSchema, hashes
from schemas.tables import PASSAGES
from tasks.core.estimate import Estimate, Expected, Range
from tasks.core.groups import id_bytes
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage
from tasks.families.lsh_tree.axes import DIRECTIONS
from tasks.families.lsh_tree.blocks import document_paths
from tasks.families.lsh_tree.hyperplanes import Hyperplanes

__all__ = ["CODES", "STAGE", "CodeSettings", "estimate", "planes_of"]

CODES = PackSchema(
    "the passages of a shard as lsh_tree cuts them",
    {
        "ids": hashes("passages", "the passage ids"),
        "digests": hashes("passages", "of the embedded texts: see tasks.stages.embed.embed.row_key"),
        "codes": Array("uint64", ("passages",), "on which side of each hyperplane the vectors lie"),
        "paths": Array("uint64", ("passages",), "the first bits of the documents' paths in the trie of shards"),
    },
)


@dataclass(frozen=True, kw_only=True)
class CodeSettings(Settings):
    """seed: of the hyperplanes. dimension: of the vectors."""

    seed: int
    dimension: int


def planes_of(part: Part[Any], seed: int, dimension: int) -> Hyperplanes:
    """The hyperplanes of a seed and of the input `axes`."""
    return Hyperplanes(seed, dimension, part.pack("axes")["axes"])


def _compute(part: Part[CodeSettings]) -> Outputs:
    passages = part.table("passages", "passage_id", "document_id")
    vectors = part.pack("vectors")
    planes = planes_of(part, part.settings.seed, part.settings.dimension)
    arrays: dict[str, NDArray[Any]] = {
        "ids": id_bytes(passages["passage_id"]),
        "digests": np.array(vectors["passage_keys"]),
        "codes": planes.codes(vectors["passages"]),
        "paths": document_paths(passages["document_id"].combine_chunks()),
    }
    return Outputs(packs={"codes": arrays})


def estimate(part: Part[CodeSettings], expected: Expected) -> Estimate:
    """The number of passages."""
    return Estimate(rows={"codes": expected.get("passages") or Range.exactly(part.rows_of("passages"))})


STAGE = Stage(
    "lsh_codes",
    version=1,
    compute=_compute,
    settings=CodeSettings,
    libraries=("numpy",),
    estimate=estimate,
    inputs=(Input("axes", DIRECTIONS), Input("passages", PASSAGES), Input("vectors", VECTORS)),
    outputs=(Output("codes", CODES),),
    priority=30,
)
