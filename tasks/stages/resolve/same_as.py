"""Stage `same_as`: extracted entities with nearly the same name, for families that need a language model.

A name is compared with the names of the nearest vectors. Two names are nearly the same if their vectors and their
letters are similar enough and their marks are equal (`tasks.stages.resolve.name_similarity`). Up to `_EXACT` names are
searched exhaustively; if there are more, each name is compared with those in the nearest lists of a k-means
(`tasks.core.neighbours`). Pairs are always computed from the whole set, so they do not depend on earlier builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.retrieve.grid import UNIT, on_grid
from schemas.tables import DESCRIBED, SAME_AS, conform
from tasks.core.neighbours import Lists, ListSettings
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, Output, Outputs, Part, Stage, StageSettings
from tasks.stages.embed.embed import TEXT_VECTORS
from tasks.stages.resolve.name_similarity import likenesses, marks, plain_name

_EXACT = 32_768  # maximum names for an exhaustive search


def same_as(
    ids: Sequence[str],
    names: Sequence[str],
    vectors: NDArray[np.float32],
    *,
    cosine: float,
    likeness: float,
    neighbours: int,
) -> pa.Table:
    """Return the pairs of entities whose names are nearly the same (schema SAME_AS).

    ids: ascending. names: canonical. vectors: (n, d) float32 of the names, on the grid (`on_grid`). neighbours: the
    number of nearest names, by vector, with which each name is compared; ties go to the lower ids.
    """
    order = np.arange(len(ids))  # ids are hashes, so any subset is a random sample
    lists = Lists(vectors, order, ListSettings(exact=_EXACT))
    nearest = lists.nearest(vectors, min(neighbours, max(len(ids) - 1, 1)), alone=True)
    rows = np.repeat(order, nearest.rows.shape[1])
    others, products = nearest.rows.ravel().astype(np.int64), nearest.products.ravel()
    near = (others >= 0) & (products >= np.ceil(cosine * UNIT))
    low, high = np.minimum(rows[near], others[near]), np.maximum(rows[near], others[near])
    keys, first = np.unique(low * len(ids) + high, return_index=True)
    products = products[near][first]
    low, high = np.divmod(keys, max(len(ids), 1))
    plain = {row: plain_name(names[row]) for row in np.unique(np.concatenate([low, high])).tolist()}
    marked = {row: marks(name) for row, name in plain.items()}
    pairs = list(zip(low.tolist(), high.tolist(), strict=True))
    may = np.array([marked[low_row] == marked[high_row] for low_row, high_row in pairs], dtype=bool)
    alike = np.zeros(len(pairs), dtype=np.float32)
    compared = [pair for pair, may_be in zip(pairs, may, strict=True) if may_be]
    alike[may] = likenesses([(plain[low_row], plain[high_row]) for low_row, high_row in compared])
    chosen = may & (alike >= np.float32(likeness))
    columns = {
        "entity_id": [ids[row] for row in low[chosen].tolist()],
        "other_id": [ids[row] for row in high[chosen].tolist()],
        "cosine": np.minimum(products[chosen] / UNIT, 1.0).astype(np.float32),
        "likeness": alike[chosen],
    }
    return conform(pa.table(columns), SAME_AS)


@dataclass(frozen=True, kw_only=True)
class SameAsStageSettings(StageSettings):
    """The parameters of `same_as`. dimension: the dimension of the vectors."""

    cosine: float
    likeness: float
    neighbours: int
    dimension: int


def drive(run: Run) -> None:
    """Find the extracted entities whose names are nearly the same."""
    bounds = run.configuration.resolve.same_as.model_dump(exclude={"enabled"})
    settings = SameAsStageSettings(**bounds, dimension=run.opened_encoder.numbers["dimension"])
    run.make(STAGE, [PartSpec(WHOLE, run.inputs(STAGE, WHOLE), settings)])


def _compute(part: Part[SameAsStageSettings]) -> Outputs:
    settings = part.settings
    rows = part.tables("described", "entity_id", "name")
    packs = [on_grid(pack["vectors"]) for pack in part.packs("name_vectors")]
    pairs = same_as(
        rows.column("entity_id").to_pylist(),
        rows.column("name").to_pylist(),
        np.concatenate([np.empty((0, settings.dimension), dtype=np.float32), *packs]),
        cosine=settings.cosine,
        likeness=settings.likeness,
        neighbours=settings.neighbours,
    )
    return Outputs(tables={"same_as": pairs}, counts={"same_as": len(pairs)})


STAGE = Stage(
    "same_as",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("described", DESCRIBED, each=True),
        Input("name_vectors", TEXT_VECTORS, each=True),
    ),
    outputs=(Output("same_as", SAME_AS, artifact="same_as"),),
)
