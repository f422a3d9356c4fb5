"""The code shared by `attributes` and `elements`: writing rows from the nodes that an earlier stage selected.

`made_of` hashes all inputs of a text, so rows with the same hash are copied from earlier parts, even if they belonged
to a different entity or community; fallbacks are not copied. Vectors are looked up by their texts.
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


@dataclass(frozen=True, kw_only=True)
class TextSettings(EncoderSettings, SourcedSettings):
    writer: Mapping[str, Any]

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return self.writer


class ReadTexts(SourcedRows[TextSettings, Read, T]):
    """The texts about entities or communities (the owners), written from the tables `read` and `made` of a part."""

    sources = HETERO_SOURCES

    def read(self) -> Iterator[Read]:
        return reads(self.inputs.table("read"), self.inputs.table("made"))

    def key_of(self, item: Read) -> str:
        return item.made_of

    def owner_of(self, item: Read) -> str:
        return item.owner
