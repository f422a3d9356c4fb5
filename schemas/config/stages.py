"""Settings of the stages that families share: how documents are cut, and how entities are put together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.config.base import Settings, written


class SplitSettings(Settings):
    """How documents are cut into passages. Sizes are tokens of the embedder's own tokenizer."""

    tokens: int = Field(256, ge=16, le=8192, description="size of a passage, title and special tokens included")
    overlap: int = Field(
        0,
        ge=0,
        description="tokens of whole sentences that a passage repeats from the one before; none by default: passages "
        "end where sentences do and carry the title, while what overlaps is embedded, and its names counted, twice",
    )
    title_in_passage: bool = Field(True, description="embed the document's title before each of its passages")
    language: Annotated[str, written("[a-z]{2}", "the two letters of a language, such as en")] = Field(
        "en", description="whose abbreviations do not end a sentence"
    )
    markup: Literal["auto", "markdown", "html", "none"] = Field(
        "auto",
        description="what texts are written in; markup is not embedded, counted or searched for names. 'auto': "
        "Markdown where the source or the id ends in .md, else what several marks in a text tell; in doubt plain text",
    )

    @model_validator(mode="after")
    def _overlap_fits(self) -> SplitSettings:
        if self.overlap * 2 > self.tokens:
            raise ValueError(f"overlap {self.overlap} is more than half of tokens {self.tokens}")
        return self


class ShardSettings(Settings):
    """How many documents or entities make a part: a part is made, kept and published as one."""

    document_tokens: int = Field(128_000, ge=1_000, description="a shard splits above this many estimated tokens")
    entities: int = Field(1_024, ge=64, description="an entity shard splits above this many entities")


class ExtractSettings(Settings):
    """Whether passages are taken apart into units, entities and relations: by the model of `llm`, or without."""

    enabled: bool = Field(
        False, description="also where no family needs it; where one does, it is done whatever this says"
    )


class SameAsSettings(Settings):
    """Which entities are told to be nearly the same by their names, for families that need extraction."""

    enabled: bool = True
    cosine: float = Field(0.8, ge=-1, le=1, description="of the vectors of two names, at least")
    likeness: float = Field(
        0.8,
        ge=0,
        le=1,
        description="at least, of the letters of words that they do not share: 1 less edits by letters",
    )
    neighbours: int = Field(8, ge=1, le=256, description="names that each is compared with, the nearest by vector")


class DescriptionSettings(Settings):
    """How what the passages say of an entity, or of two that are related, becomes one description."""

    enabled: bool = Field(
        False, description="also where no family needs it; where one does, it is done whatever this says"
    )
    most_pieces: int = Field(
        8, ge=1, le=1024, description="so many different pieces are joined; the model of `llm` puts more into one text"
    )
    tokens: int = Field(200, ge=16, le=2048, description="tokens of a description, about")
    input_tokens: int = Field(
        2_000, ge=64, le=100_000, description="tokens of the pieces that the model reads for one description, about"
    )


class ResolveSettings(Settings):
    """How entities are put together from what is extracted of them; nothing of it counts where nothing is."""

    description: DescriptionSettings = DescriptionSettings()
    same_as: SameAsSettings = SameAsSettings()
