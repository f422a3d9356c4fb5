"""The whole configuration: its sections in the order of `indexmill init`, and the constraints between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from indexmill.retrieve.method_registry import METHODS
from indexmill.store.bucket import place_of
from indexmill.store.location import DEFAULT_STORE, store_location
from schemas.config.families import FamilySection, FamilySettings
from schemas.config.models import EmbedSettings, EndpointSettings, LlmSettings, Price, RecogniseSettings
from schemas.config.run_settings import GateSettings, RunSettings
from schemas.config.settings_section import Settings
from schemas.config.stages import ExtractSettings, ResolveSettings, ShardSettings, SplitSettings
from schemas.corpus import CorpusSettings


class Configuration(Settings):
    """All settings of `indexmill.yaml`."""

    store: Path | str = Field(
        Path(DEFAULT_STORE),
        description="the folder of the index, or its URL in an object store: s3://BUCKET/PREFIX, gs:// or az://",
    )
    corpus: CorpusSettings | None = Field(None, description="the documents of the index; `--corpus` overrides it")
    split: SplitSettings = SplitSettings()
    shards: ShardSettings = ShardSettings()
    recognise: RecogniseSettings = RecogniseSettings()
    extract: ExtractSettings = ExtractSettings()
    resolve: ResolveSettings = ResolveSettings()
    embed: EmbedSettings = EmbedSettings()
    families: FamilySettings = FamilySettings()
    llm: LlmSettings = LlmSettings()
    gates: GateSettings = GateSettings()
    run: RunSettings = RunSettings()
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="the price of a million tokens of a language model or of an endpoint's encoder, by its name: "
        "`name: {input_per_million: 0.15, output_per_million: 0.60, currency: USD}`; plan and --max-cost need it for "
        "a paid model",
    )

    @field_validator("prices")
    @classmethod
    def _in_one_currency(cls, value: dict[str, Price]) -> dict[str, Price]:
        currencies = sorted({price.currency for price in value.values()})
        if len(currencies) > 1:
            raise ValueError(f"prices in {' and '.join(currencies)} cannot be added up; use a single currency")
        return value

    @field_validator("store", mode="before")
    @classmethod
    def _somewhere(cls, value: object) -> object:
        return place_of(store_location(value)) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _gates_ask_what_is_built(self) -> Configuration:
        for name in self.gates.methods if self.gates.questions is not None else ():
            if not METHODS[name].always and not getattr(self.families, name).enabled:
                raise ValueError(f"gates.methods names {name!r}, but families.{name} is not enabled")
        return self

    @model_validator(mode="after")
    def _recogniser_has_a_model(self) -> Configuration:
        if self.recognise.asks_llm and self.llm.backend == "extractive":
            raise ValueError(
                "recognise.recogniser is 'llm', and llm.backend is 'extractive', which is not a language model: set "
                "llm.backend to openai and llm.model to a model's name, or the recogniser to 'rules'"
            )
        return self

    @model_validator(mode="after")
    def _budget_has_a_price(self) -> Configuration:
        models = [self.llm.model] if self.llm.backend != "extractive" else []
        models += [self.embed.model] if self.embed.asks else []
        for model in models if self.llm.budget.cost is not None else ():
            if model not in self.prices:
                raise ValueError(
                    f"llm.budget.cost is set, but `prices` has no price for {model!r}: give its price per million "
                    "tokens, or a budget in tokens"
                )
        return self

    @property
    def endpoints(self) -> tuple[EndpointSettings, ...]:
        """The sections that can name an endpoint."""
        return self.llm, self.embed

    @property
    def extracts(self) -> bool:
        """True if entities are extracted from passages: enabled explicitly, or needed by an enabled family."""
        return self.extract.enabled or self.describes or any(family.needs_extraction for family in self._enabled)

    @property
    def describes(self) -> bool:
        """True if extracted entities are described: enabled explicitly, or needed by an enabled family."""
        return self.resolve.description.enabled or any(family.needs_descriptions for family in self._enabled)

    @property
    def writes(self) -> bool:
        """True if a language model, if there is one, writes texts from other texts."""
        families = self.families
        writing = (families.lsh_tree, families.community_tree, families.heterograph)
        return self.describes or any(family.enabled for family in writing)

    @property
    def _enabled(self) -> list[FamilySection]:
        return [family for _, family in self.families if isinstance(family, FamilySection) and family.enabled]

    def published(self) -> dict[str, Any]:
        """Return the settings that shape the index, as the manifest records them."""
        sections = {"split", "shards", "recognise", "extract", "embed", "families"}
        sections |= {"resolve"} if self.describes else set()
        shaping = self.model_dump(mode="json", include=sections)
        shaping["llm"] = self.llm.shaping()
        shaping["embed"] = self.embed.shaping()  # the model's digest is in the models' fingerprints
        if self.recognise.published_name is None:
            shaping["recognise"].pop("recogniser")
        if self.corpus is not None and self.corpus.access is not None:
            shaping["corpus"] = {"access": self.corpus.access.model_dump(mode="json")}
        return shaping
