"""Stage `tri_graph`: the entity / sentence / passage graph as sparse matrices (LinearRAG, section 3.1, eqs. 1 and 2).

Rows are numbered over the whole corpus: passages and sentences shard after shard in the order of their labels,
entities in the order of their ids. The arrays of the pack `matrices` are these, each matrix by rows and by columns:

    mentions.indptr, .indices             sentences x entities
    mentioned_in.indptr, .indices         entities x sentences
    contents.indptr, .indices, .counts    passages x entities, with occurrences
    contained_in.indptr, .indices, .counts
    entity_keys                           (n_entities,) the start of each entity id, to find it by
    strengths                             (n_entities,) the occurrences of an entity in all passages
    documents                             (n_entities,) in how many documents an entity is
    sentence_passage                      (n_sentences,) the passage of each sentence
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Sparse
from indexmill.store.packs import pack_size
from schemas.tables import ENTITIES, MENTIONS, PASSAGES, SENTENCES
from tasks.core.estimate import Estimate, Range
from tasks.core.part_runner import Want
from tasks.core.run import Run
from tasks.core.stage import ARRAYS, WHOLE, Input, Inputs, NoSettings, Output, Outputs, Stage
from tasks.stages.resolve.mention_links import links, mentioned

__all__ = ["STAGE", "counts", "drive", "estimate"]


def drive(run: Run) -> None:
    """Build the entity / sentence / passage graph (LinearRAG)."""
    run.make(STAGE, [Want(WHOLE, run.inputs(STAGE, WHOLE), NoSettings())])


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """The sizes of a built graph, as the manifest states them."""
    return {
        "entities": len(pack["strengths"]),
        "sentences": len(pack["sentence_passage"]),
        "passages": len(pack["contents.indptr"]) - 1,
        "mention_links": len(pack["mentions.indices"]),
        "content_links": len(pack["contents.indices"]),
    }


def _compute(inputs: Inputs[NoSettings]) -> Outputs:
    found = mentioned(inputs)
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


def estimate(inputs: Inputs[NoSettings], expected: Mapping[str, Range]) -> Estimate:
    """The size of the matrices: bounds of the links of sentences, all else exact. No LLM."""
    found = links(inputs)
    entities, passages, sentences = (inputs.rows(name) for name in ("entities", "passages", "sentences"))

    def size(mentions: int) -> int:
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
            "entity_keys": (np.uint64, (entities,)),
            "sentence_passage": (np.int32, (sentences,)),
            "strengths": (np.int64, (entities,)),
            "documents": (np.int64, (entities,)),
        }
        for name, rows, count in (
            ("mentions", sentences, mentions),
            ("mentioned_in", entities, mentions),
            ("contents", passages, found.passages),
            ("contained_in", entities, found.passages),
        ):
            arrays[f"{name}.indptr"] = (np.int64, (rows + 1,))
            arrays[f"{name}.indices"] = (np.int32, (count,))
            if name.startswith("cont"):
                arrays[f"{name}.counts"] = (np.int32, (count,))
        return pack_size(arrays)

    return Estimate(
        bytes={"matrices": Range(size(found.mentions.low), size(found.mentions.high))},
        rows={"matrices": Range.exactly(entities)},
    )


STAGE = Stage(
    "tri_graph",
    version=3,
    compute=_compute,
    settings=NoSettings,
    libraries=("numpy",),
    estimate=estimate,
    inputs=(
        Input("passages", PASSAGES, each=True),
        Input("sentences", SENTENCES, each=True),
        Input("mentions", MENTIONS, each=True),
        Input("entities", ENTITIES, each=True),
    ),
    outputs=(Output("matrices", ARRAYS, artifact="tri_graph/matrices"),),
)
