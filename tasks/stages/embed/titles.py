"""Stage `embed_titles`: the directions of the titles of a shard's documents, and the document of each passage.

The pack `titles` also gives the document of each passage, so that a reader needs neither table. A title is cut in the
same way as before a passage (`tasks.stages.split.split.title_prefix`). Vectors that an earlier part holds are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.directions import directions_of
from indexmill.retrieve.shared_schema import TITLES
from schemas.tables import DOCUMENTS, PASSAGES
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.encoder_estimate import texts_to_send
from tasks.core.estimate import EncoderTexts, Estimate, Expected
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array, missing_texts, row_key, unknown_texts
from tasks.stages.split.split import title_prefix


def drive(run: Run) -> None:
    """Make the vectors of titles that no earlier part holds."""
    settings = EncoderSettings(**run.opened_encoder.settings)
    run.make(STAGE, [PartSpec(label, run.inputs(STAGE, label), settings) for label in run.labels])


def embedded_title(title: str) -> str:
    """The embedded part of a title; empty for an empty title."""
    return title_prefix(title).removesuffix("\n")


def passage_documents(part: Part[Any]) -> NDArray[np.int32]:
    """The row of each passage's document in the shard's table `documents`, `(n_passages,)`."""
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
        _reusable_vectors(part),
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


def _encodes(part: Part[EncoderSettings], expected: Expected) -> EncoderTexts:
    """The texts without a vector."""
    texts = [title for title in _titles(part) if title]
    return texts_to_send(part, unknown_texts(texts, _reusable_vectors(part)))


def estimate(part: Part[EncoderSettings], expected: Expected) -> Estimate:
    """The exact number of title vectors to compute."""
    keys = [row_key(title) for title in _titles(part) if title]
    computed = len(missing_texts(keys, _reusable_vectors(part).holds(keys)))
    return Estimate(counts={"vectors_made": computed, "vectors_reused": len(keys) - computed})


def _titles(part: Part[Any]) -> list[str]:
    titles = part.table("documents", "title")["title"].to_pylist()
    return [embedded_title(title) for title in titles]


def _reusable_vectors(part: Part[Any]) -> Vectors:
    return Vectors((pack["text_keys"], pack["vectors"]) for pack in part.reusable_packs())


STAGE = Stage(
    "embed_titles",
    version=2,
    rows_version=1,
    compute=_compute,
    settings=EncoderSettings,
    libraries=("numpy",),
    estimate=estimate,
    encodes=_encodes,
    inputs=(
        Input("documents", DOCUMENTS),
        Input("passages", PASSAGES),
    ),
    outputs=(Output("titles", TITLES, artifact="titles/{label}"),),
    moves_with_documents=True,
    uses_encoder=True,
)
