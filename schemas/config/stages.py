"""Settings of the stages that families share: splitting, shards, extraction and resolution."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.config.settings_section import Settings, written


class SplitSettings(Settings):
    """How documents are split into passages. Sizes are tokens of the embedder's tokenizer."""

    tokens: int = Field(256, ge=16, le=8192, description="size of a passage, title and special tokens included")
    overlap: int = Field(
        0,
        ge=0,
        description="tokens of whole sentences that a passage repeats from the previous one; none by default: passages "
        "end at sentences and include the title, and overlapping text is embedded, and its names counted, twice",
    )
    title_in_passage: bool = Field(True, description="embed the document's title before each of its passages")
    language: Annotated[str, written("[a-z]{2}", "the two letters of a language, such as en")] = Field(
        "en", description="the language whose abbreviations do not end a sentence, for documents in an unknown one"
    )
    markup: Literal["auto", "markdown", "html", "none"] = Field(
        "auto",
        description="the markup of texts, which is not embedded, counted or searched for names. 'auto': Markdown if "
        "the source or id ends in .md, otherwise what several signs in a text show; in doubt, plain text",
    )

    @model_validator(mode="after")
    def _overlap_fits(self) -> SplitSettings:
        if self.overlap * 2 > self.tokens:
            raise ValueError(f"overlap {self.overlap} is more than half of tokens {self.tokens}")
        return self


class ShardSettings(Settings):
    """The sizes of shards. A stage makes one part per shard, which is computed, stored and published as a unit."""

    document_tokens: int = Field(128_000, ge=1_000, description="a shard splits above this many estimated tokens")
    entities: int = Field(1_024, ge=64, description="an entity shard splits above this many entities")


class ExtractSettings(Settings):
    """Whether units, entities and relations are extracted from passages, by the model of `llm` or without a model."""

    enabled: bool = Field(False, description="extract even if no family needs it; if a family does, it is always done")


class SameAsSettings(Settings):
    """Which entities have nearly the same name, for families that need extraction."""

    enabled: bool = True
    cosine: float = Field(0.8, ge=-1, le=1, description="the minimum cosine of the vectors of two names")
    likeness: float = Field(
        0.8,
        ge=0,
        le=1,
        description="the minimum similarity of the words that they do not share: 1 minus the edits per letter",
    )
    neighbours: int = Field(
        8, ge=1, le=256, description="the number of nearest names by vector that each is compared with"
    )


class DescriptionSettings(Settings):
    """How the descriptions of an entity or relation from all passages are combined into one."""

    enabled: bool = Field(False, description="describe even if no family needs it; if a family does, it is always done")
    most_pieces: int = Field(
        8, ge=1, le=1024, description="up to this many different pieces are joined; the model of `llm` condenses more"
    )
    tokens: int = Field(200, ge=16, le=2048, description="the approximate tokens of a description")
    input_tokens: int = Field(
        2_000, ge=64, le=100_000, description="the approximate tokens of pieces that the model reads for a description"
    )


class ResolveSettings(Settings):
    """How extracted entities are described and matched; without extraction this has no effect."""

    description: DescriptionSettings = DescriptionSettings()
    same_as: SameAsSettings = SameAsSettings()
