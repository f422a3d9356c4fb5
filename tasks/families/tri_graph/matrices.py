"""Stage `tri_graph`: the entity / sentence / passage graph as sparse matrices (LinearRAG, section 3.1, eqs. 1 and 2).

Rows are numbered over the whole corpus: passages and sentences shard after shard in the order of their labels,
entities in the order of their ids. The pack `matrices`: indexmill.families.tri_graph.schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.tri_graph.schema import MATRICES
from indexmill.retrieve.matrices import Sparse
from schemas.tables import ENTITIES, MENTIONS, PASSAGES, SENTENCES
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, NoSettings, Output, Outputs, Part, Stage
from tasks.stages.resolve.mention_links import mentioned

__all__ = ["STAGE", "counts", "drive"]


def drive(run: Run) -> None:
    """Build the entity / sentence / passage graph (LinearRAG)."""
    run.make(STAGE, [PartSpec(WHOLE, run.inputs(STAGE, WHOLE), NoSettings())])


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """The sizes of a built graph, as the manifest states them."""
    return {
        "entities": len(pack["strengths"]),
        "sentences": len(pack["sentence_passage"]),
        "passages": len(pack["contents.indptr"]) - 1,
        "mention_links": len(pack["mentions.indices"]),
        "content_links": len(pack["contents.indices"]),
    }


def _compute(part: Part[NoSettings]) -> Outputs:
    found = mentioned(part)
    matrices = found.matrices()
    arrays: dict[str, NDArray[Any]] = {
        "entity_keys": found.entity_keys,
        "sentence_passage": found.sentence_passage,
        "strengths": matrices.strengths,
        "documents": matrices.spread(np.arange(len(found.entity_keys))),
    }
    for name in ("mentions", "mentioned_in", "contents", "contained_in"):
        matrix: Sparse = getattr(matrices, name)
        arrays[f"{name}.indptr"], arrays[f"{name}.indices"] = matrix.indptr, matrix.indices
        if matrix.counts is not None:
            arrays[f"{name}.counts"] = matrix.counts
    return Outputs(packs={"matrices": arrays})


STAGE = Stage(
    "tri_graph",
    version=3,
    compute=_compute,
    settings=NoSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("passages", PASSAGES, each=True),
        Input("sentences", SENTENCES, each=True),
        Input("mentions", MENTIONS, each=True),
        Input("entities", ENTITIES, each=True),
    ),
    outputs=(Output("matrices", MATRICES, artifact="tri_graph/matrices"),),
)
