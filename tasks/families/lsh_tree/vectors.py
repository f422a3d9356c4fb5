"""Stage `lsh_vectors`: the vectors of a group of summaries, by which questions find them (EraRAG, section III.D).

No layer waits for them, so they are made of all layers at once. A vector is found by its text in earlier parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indexmill.families.lsh_tree.schema import SUMMARY_VECTORS
from tasks.core.encoder_estimate import texts_to_come, texts_to_send
from tasks.core.estimate import EncoderTexts, Expected, Rows
from tasks.core.shards import id_hashes
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage, worker_arg
from tasks.families.lsh_tree.tables import LSH_SUMMARIES
from tasks.stages.embed.embed import Vectors, unknown_texts
from tasks.stages.write.written_rows import text_vectors

__all__ = ["STAGE", "SummaryVectorSettings"]


@dataclass(frozen=True, kw_only=True)
class SummaryVectorSettings(Settings):
    """encoder: the settings that determine vectors; opening: those that open it."""

    encoder: Mapping[str, Any]
    opening: Mapping[str, Any] = worker_arg()

    def row_space(self) -> Mapping[str, Any]:
        """The encoder: a vector is found by its text."""
        return self.encoder


def _compute(part: Part[SummaryVectorSettings]) -> Outputs:
    summaries = part.table("summaries", "node_id", "text")
    known = Vectors((pack["text_keys"], pack["vectors"]) for pack in map(part.pack_at, part.job.reuse))
    texts = summaries.column("text").to_pylist()
    arrays, _ = text_vectors(part, texts, known, part.settings.encoder["dimension"])
    return Outputs(packs={"summary_vectors": {"keys": id_hashes(summaries.column("node_id").to_pylist()), **arrays}})


def _encodes(part: Part[SummaryVectorSettings], expected: Expected) -> EncoderTexts:
    """The summaries without a vector, or bounds of their number where they are not written yet."""
    planned = expected.get("summaries")
    if planned is not None or "summaries" in expected:
        return texts_to_come(part, planned.fresh if isinstance(planned, Rows) else planned)
    known = Vectors((pack["text_keys"], pack["vectors"]) for pack in map(part.pack_at, part.job.reuse))
    return texts_to_send(part, unknown_texts(part.table("summaries", "text")["text"].to_pylist(), known))


STAGE = Stage(
    "lsh_vectors",
    version=1,
    compute=_compute,
    settings=SummaryVectorSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(Input("summaries", LSH_SUMMARIES),),
    outputs=(Output("summary_vectors", SUMMARY_VECTORS, artifact="summary_vectors/{label}"),),
    priority=6,
    uses_encoder=True,
    encodes=_encodes,
)
