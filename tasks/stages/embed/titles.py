"""Stage `embed_titles`: the vectors of the titles of a shard's documents, and which of them each passage is under.

    Want(<p>, {"documents", "passages"}, {"encoder": numbers}, {"opening"}, encoder=numbers)

The pack `titles` (indexmill.retrieve.shared_schema) says which document each passage is of, too, so that a reader needs
neither table. A title is cut as it is before a passage (`tasks.stages.split.split.title_prefix`). What an earlier part
holds of the same title is copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.shared_schema import TITLES
from schemas.tables import DOCUMENTS, PASSAGES
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, Range
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array, missing_texts, row_key
from tasks.stages.split.split import title_prefix

__all__ = ["STAGE", "embedded_title", "estimate", "passage_documents"]


def embedded_title(title: str) -> str:
    """What is embedded of a title; empty where there is nothing to embed."""
    return title_prefix(title).removesuffix("\n")


def passage_documents(inputs: Inputs) -> NDArray[np.int32]:
    """The row of each passage's document in the shard's table `documents`, `(n_passages,)`."""
    ids = inputs.table("documents", DOCUMENTS, "document_id")["document_id"].combine_chunks()
    owners = inputs.table("passages", PASSAGES, "document_id")["document_id"]
    rows: NDArray[np.int32] = pc.index_in(owners, ids).to_numpy().astype(np.int32)
    return rows


def _compute(inputs: Inputs) -> Outputs:
    titles = _titles(inputs)
    dimension = inputs.settings["encoder"]["dimension"]
    (titled,) = np.array([bool(title) for title in titles], dtype=np.bool_).nonzero()
    found, _, made = embed_texts(
        [titles[row] for row in titled.tolist()],
        lambda some: encoder_of(inputs).encode(some),
        _known(inputs),
        dimension,
    )
    vectors = np.zeros((len(titles), dimension), dtype=np.float32)
    vectors[titled] = found
    keys = keys_array([row_key(title) for title in titles])
    pack = {"text_keys": keys, "vectors": vectors, "passage_document": passage_documents(inputs)}
    return Outputs(
        packs={"titles": TITLES.conform(pack)},
        counts={"vectors_made": made, "vectors_reused": len(titled) - made},
    )


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """How many vectors of titles must be computed, to the vector."""
    titles = _titles(inputs)
    keys = [row_key(title) for title in titles if title]
    made = len(missing_texts(keys, _known(inputs).holds(keys)))
    passages = inputs.table("passages", PASSAGES, "document_id").num_rows
    lengths = {"own documents": len(titles), "own passages": passages}
    size = TITLES.size(lengths | {"dimensions": inputs.settings["encoder"]["dimension"]})
    return Estimate(
        bytes={"titles": Range.exactly(size)},
        rows={"titles": Range.exactly(max(len(titles), passages))},
        counts={"vectors_made": made, "vectors_reused": len(keys) - made},
    )


def _titles(inputs: Inputs) -> list[str]:
    titles = inputs.table("documents", DOCUMENTS, "title")["title"].to_pylist()
    return [embedded_title(title) for title in titles]


def _known(inputs: Inputs) -> Vectors:
    packs = [inputs.pack(digest) for digest in inputs.job.reuse]
    return Vectors((pack["text_keys"], pack["vectors"]) for pack in packs)


STAGE = Stage("embed_titles", version=1, compute=_compute, libraries=("numpy",), estimate=estimate)
