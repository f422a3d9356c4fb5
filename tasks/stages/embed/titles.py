"""Stage `embed_titles`: the directions of the titles of a shard's documents.

The pack `titles` also has the document of each passage, so that a reader needs no table. A title is truncated in the
same way as a title embedded with a passage (`tasks.stages.split.split.title_prefix`). Vectors in earlier parts are
copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.directions import directions_of
from indexmill.retrieve.shared_schema import TITLES
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.stage import Output, Outputs, Part, Stage, shared_tables
from tasks.stages.embed.embed import TextVectors, embed_texts, keys_array, row_key
from tasks.stages.split.split import title_prefix


def embedded_title(title: str) -> str:
    """Return the part of a title that is embedded; empty for an empty title."""
    return title_prefix(title).removesuffix("\n")


def passage_documents(part: Part[Any]) -> NDArray[np.int32]:
    """Return the row of each passage's document in the shard's table `documents`, `(n_passages,)`."""
    ids = part.table("documents", "document_id")["document_id"].combine_chunks()
    owners = part.table("passages", "document_id")["document_id"]
    rows: NDArray[np.int32] = pc.index_in(owners, ids).to_numpy().astype(np.int32)
    return rows


def _compute(part: Part[EncoderSettings]) -> Outputs:
    titles = _titles(part)
    dimension = part.settings.dimension
    (titled,) = np.array([bool(title) for title in titles], dtype=np.bool_).nonzero()
    title_vectors, _, computed = embed_texts(
        [titles[row] for row in titled.tolist()],
        lambda some: directions_of(encoder_of(part).encode(some)),
        _TITLED.reusable(part),
        dimension,
        np.int8,
    )
    vectors = np.zeros((len(titles), dimension), dtype=np.int8)
    vectors[titled] = title_vectors
    keys = keys_array([row_key(title) for title in titles])
    return Outputs(
        packs={"titles": {"text_keys": keys, "vectors": vectors, "passage_document": passage_documents(part)}},
        counts={"vectors_made": computed, "vectors_reused": len(titled) - computed},
    )


def _titles(part: Part[Any]) -> list[str]:
    titles = part.table("documents", "title")["title"].to_pylist()
    return [embedded_title(title) for title in titles]


_TITLED = TextVectors(lambda part: [title for title in _titles(part) if title])

STAGE = Stage(
    "embed_titles",
    version=2,
    rows_version=1,
    compute=_compute,
    libraries=("numpy",),
    estimate=_TITLED.estimate,
    encodes=_TITLED.encodes,
    inputs=shared_tables("documents", "passages"),
    outputs=(Output("titles", TITLES, artifact="titles/{label}"),),
    moves_with_documents=True,
    uses_encoder=True,
)
