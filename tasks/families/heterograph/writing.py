"""What the stages `attributes` and `elements` share: rows that are written of what an earlier stage read for them.

`made_of` hashes all that a text is made of, so the rows that an earlier part holds under it are copied, whoever owns
them now; a fallback is not. Vectors are found by their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.tables import HETERO_SOURCES
from storage.tables import read_table
from tasks.core.encoder import EncoderSettings
from tasks.core.stage import Part, worker_arg
from tasks.families.heterograph.reading import Read, reads
from tasks.families.heterograph.sources import by_owner
from tasks.stages.write.summarise import Extractive
from tasks.stages.write.text_writer import T, WriterSettings
from tasks.stages.write.written_rows import WrittenRows

__all__ = ["ReadTexts", "TextSettings"]


@dataclass(frozen=True, kw_only=True)
class TextSettings(EncoderSettings, WriterSettings):
    """writer: the fingerprint of the writer. sources: the digest of what prompts are about, where a model is asked."""

    writer: Mapping[str, Any]
    sources: str | None = worker_arg()


class ReadTexts(WrittenRows[TextSettings, Read, T]):
    """The rows of the texts of some owners, from the tables `read` and `made` of these."""

    def __init__(self, part: Part[TextSettings]) -> None:
        super().__init__(part)
        self.writer = self.settings.writer
        self.extractive = Extractive(self.writer["tokens"], self.settings.language)
        self.about: dict[str, list[str]] = {}  # by owner, once questions are asked

    def read(self) -> Iterator[Read]:
        """What each text is made of."""
        return reads(self.inputs.table("read"), self.inputs.table("made"))

    def key_of(self, item: Read) -> str:
        """The hash of all that a text is made of."""
        return item.made_of

    def load(self, items: Sequence[Read]) -> None:
        """Read what prompts are about."""
        if self.settings.sources is not None:
            table = read_table(self.inputs.store, self.settings.sources, HETERO_SOURCES)
            self.about = by_owner(table, [item.owner for item in items])
