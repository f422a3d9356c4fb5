"""What the stages `attributes` and `elements` share: rows that are written of what an earlier stage read for them.

`made_of` hashes all that a text is made of, so the rows that an earlier part holds under it are copied, whoever owns
them now; a fallback is not. Vectors are found by their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.encoder import EncoderSettings
from tasks.families.heterograph.reading import Read, reads
from tasks.families.heterograph.tables import HETERO_SOURCES
from tasks.stages.write.text_writer import T
from tasks.stages.write.written_rows import SourcedRows, SourcedSettings

__all__ = ["ReadTexts", "TextSettings"]


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
