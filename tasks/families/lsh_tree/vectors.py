"""Stage `lsh_vectors`: the vectors of a group of summaries, by which questions find them (EraRAG, section III.D).

No layer waits for vectors, so the vectors of all layers are made together. A text's vector is reused from an earlier
part that has the same text. Vectors are stored as float16, which halves their size and changes a cosine by at most
1e-4; copied vectors keep their bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import SUMMARY_VECTORS
from tasks.core.encoder import EncoderSettings
from tasks.core.encoder_estimate import texts_to_come, texts_to_send
from tasks.core.estimate import ZERO, EncoderTexts, Estimate, Expected, Range, new_rows
from tasks.core.shards import id_hashes
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.families.lsh_tree.tables import LSH_SUMMARIES
from tasks.stages.embed.embed import Vectors, unknown_texts
from tasks.stages.write.written_rows import text_vectors


def _earlier_vectors(part: Part[EncoderSettings]) -> Vectors:
    return Vectors((pack["text_keys"], pack["vectors"]) for pack in part.reusable_packs())


def _compute(part: Part[EncoderSettings]) -> Outputs:
    earlier_vectors = _earlier_vectors(part)
    labels = part.labels("summaries")
    tables = [part.table(f"summaries/{label}", "node_id", "text") for label in labels]
    texts = [text for table in tables for text in table["text"].to_pylist()]
    arrays, _ = text_vectors(part, texts, earlier_vectors, part.settings.dimension)
    packs: dict[str, dict[str, NDArray[Any]]] = {}
    first = 0
    for label, table in zip(labels, tables, strict=True):
        rows = slice(first, first + len(table))
        packs[f"summary_vectors/{label}"] = {
            "keys": id_hashes(table["node_id"].to_pylist()),
            "text_keys": arrays["text_keys"][rows],
            "vectors": arrays["vectors"][rows].astype(np.float16),
        }
        first = rows.stop
    return Outputs(packs=packs)


def estimate(part: Part[EncoderSettings], expected: Expected) -> Estimate:
    """Estimate the number of rows in each block."""
    names = {label: f"summaries/{label}" for label in part.labels("summaries")}
    return Estimate(
        rows={
            f"summary_vectors/{label}": expected.get(name) or Range.exactly(part.rows_of(name))
            for label, name in names.items()
        }
    )


def _encodes(part: Part[EncoderSettings], expected: Expected) -> EncoderTexts:
    """Return the summaries without a vector, and bounds of the number of summaries that are not written yet."""
    earlier_vectors = _earlier_vectors(part)
    names = [f"summaries/{label}" for label in part.labels("summaries")]
    texts = [text for name in names if name not in expected for text in part.table(name, "text")["text"].to_pylist()]
    planned = [expected[name] or ZERO for name in names if name in expected]
    to_come = texts_to_come(part, sum(map(new_rows, planned), ZERO))
    written = texts_to_send(part, unknown_texts(texts, earlier_vectors))
    return replace(written, unknown=to_come.unknown, longest=to_come.longest)


STAGE = Stage(
    "lsh_vectors",
    version=2,
    rows_version=1,
    compute=_compute,
    libraries=("numpy",),
    estimate=estimate,
    inputs=(Input("summaries", LSH_SUMMARIES, each=True),),
    outputs=(Output("summary_vectors", SUMMARY_VECTORS, artifact="summary_vectors/{label}", each=True),),
    priority=6,
    uses_encoder=True,
    encodes=_encodes,
)
