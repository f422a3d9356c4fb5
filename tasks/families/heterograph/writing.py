"""What the stages `attributes` and `elements` share: rows that are written of what an earlier stage read for them.

`made_of` hashes all that a text is made of, so the rows that an earlier part holds under it are copied, whoever owns
them now; a fallback is not. Vectors are found by their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from indexmill.store.pack_schema import PackSchema
from schemas.tables import HETERO_SOURCES
from tasks.core.encoder import EncoderSettings
from tasks.core.estimate import Estimate, LlmUse, Range, Rows
from tasks.families.heterograph.reading import Read, reads
from tasks.stages.write.text_writer import T
from tasks.stages.write.written_rows import SourcedRows, SourcedSettings

__all__ = ["ReadTexts", "TextSettings"]

_LONGEST = 16
"""Bytes of a text for each token that is asked for: what is longer is cut."""
_REST_OF_ROW = 1024
"""Bytes of a row beside its text, at most."""


@dataclass(frozen=True, kw_only=True)
class TextSettings(EncoderSettings, SourcedSettings):
    """writer: the fingerprint of the writer."""

    writer: Mapping[str, Any]

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What determines the texts."""
        return self.writer


class ReadTexts(SourcedRows[TextSettings, Read, T]):
    """The rows of the texts of some owners, from the tables `read` and `made` of these."""

    sources = HETERO_SOURCES

    def read(self) -> Iterator[Read]:
        """What each text is made of."""
        return reads(self.inputs.table("read"), self.inputs.table("made"))

    def key_of(self, item: Read) -> str:
        """The hash of all that a text is made of."""
        return item.made_of

    def owner_of(self, item: Read) -> str:
        """The entity, or the community."""
        return item.owner

    def estimate_of(self, rows: Rows, use: tuple[LlmUse, ...]) -> Estimate:
        """Bounds of the sizes of so many rows, and of what a model is asked for them."""

        schema = self.inputs.stage.output(self.vectors).schema
        assert isinstance(schema, PackSchema)  # noqa: S101 - it is declared so

        def vectors(count: int) -> int:
            return schema.size({schema.tables[0]: count, "dimensions": self.settings.dimension})

        most = rows.high * (_LONGEST * self.writer["tokens"] + _REST_OF_ROW) + 16_384
        return Estimate(
            bytes={self.table: Range(0, most), self.vectors: Range(vectors(rows.low), vectors(rows.high))},
            rows={self.table: rows, self.vectors: rows},
            llm=use,
        )
