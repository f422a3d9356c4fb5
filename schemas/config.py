"""The configuration: every setting of a build, validated, with the reason for its default.

Two kinds of settings live here. Those that shape the index (`split`, `shards`, `recognise`, `extract`, ...) are
written into the manifest and into the keys of the parts they shape. Those that say where and how a run works
(`store`, `corpus.paths`, `run`) never reach a published byte.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from indexmill.command.options import DEFAULT_STORE, anchored, store_folder
from indexmill.errors import ConfigurationError
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.heterograph.parameters import HeterographParameters
from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.families.tri_graph.parameters import TriGraphParameters
from indexmill.families.zoom_graph.parameters import ZoomGraphParameters
from indexmill.mistakes import WrongSettings, found, mistakes, unknown
from indexmill.models.secrets import redacted
from indexmill.retrieve.fused import FusedParameters
from indexmill.retrieve.passage_vectors import DenseParameters
from indexmill.retrieve.registry import METHODS
from indexmill.retrieve.term_index import Bm25Parameters
from schemas.corpus import CorpusSettings, as_tuple

__all__ = [
    "Bm25Settings",
    "BudgetSettings",
    "CommunityTreeSettings",
    "Configuration",
    "DenseSettings",
    "DescriptionSettings",
    "EmbedSettings",
    "ExtractSettings",
    "FamilySettings",
    "FusedSettings",
    "GateSettings",
    "HeterographSettings",
    "LlmSettings",
    "LshTreeSettings",
    "Price",
    "RecogniseSettings",
    "ResolveSettings",
    "RunSettings",
    "SameAsSettings",
    "ShardSettings",
    "SplitSettings",
    "TriGraphSettings",
    "ZoomGraphSettings",
    "load_configuration",
]


_KEY = re.compile(r"(^|[_-])(api[_-]?)?(key|secret|token|password)$", re.IGNORECASE)


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _holds_no_key(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if isinstance(name, str) and name not in cls.model_fields and _KEY.search(name):
                raise ValueError(
                    f"{name}: a key does not belong in the configuration, which is copied and recorded: put it into "
                    "the environment variable that llm.api_key_env names (OPENAI_API_KEY by default), or into a file "
                    "that only you may read (llm.api_key_file), or have it fetched (llm.token_provider); and if this "
                    "file was shared, have the key replaced"
                )
        return value


class SplitSettings(_Settings):
    """How documents are cut into passages. Sizes are tokens of the embedder's own tokenizer."""

    tokens: int = Field(256, ge=16, le=8192, description="size of a passage, title and special tokens included")
    overlap: int = Field(
        0,
        ge=0,
        description="tokens of whole sentences that a passage repeats from the one before; none by default: passages "
        "end where sentences do and carry the title, while what overlaps is embedded, and its names counted, twice",
    )
    title_in_passage: bool = Field(True, description="embed the document's title before each of its passages")
    language: Annotated[str, _written("[a-z]{2}", "the two letters of a language, such as en")] = Field(
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


class ShardSettings(_Settings):
    """How many documents or entities make a part: a part is made, kept and published as one."""

    document_tokens: int = Field(256_000, ge=1_000, description="a shard splits above this many estimated tokens")
    entities: int = Field(16_384, ge=64, description="an entity shard splits above this many entities")


class RecogniseSettings(_Settings):
    """Which recogniser finds the entities of a document."""

    recogniser: str = Field(
        "rules",
        min_length=1,
        description="'rules'; 'llm', which asks the model that `llm` names; or the name or path of a spaCy pipeline",
    )

    @property
    def asks_llm(self) -> bool:
        """Whether the recogniser is a language model."""
        return self.recogniser == "llm"

    @property
    def published_name(self) -> str | None:
        """The recogniser's name; None for a path, which says where a machine keeps what the fingerprint identifies."""
        return None if _looks_like_a_path(self.recogniser) else self.recogniser


class ExtractSettings(_Settings):
    """Whether passages are taken apart into units, entities and relations: by the model of `llm`, or without."""

    enabled: bool = Field(
        False, description="also where no family needs it; where one does, it is done whatever this says"
    )


class SameAsSettings(_Settings):
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


class DescriptionSettings(_Settings):
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


class ResolveSettings(_Settings):
    """How entities are put together from what is extracted of them; nothing of it counts where nothing is."""

    description: DescriptionSettings = DescriptionSettings()
    same_as: SameAsSettings = SameAsSettings()


class EmbedSettings(_Settings):
    """Which encoder makes the vectors, and how."""

    model: str = Field("all-MiniLM-L6-v2", min_length=1, description="a path, or the name of an installed model")
    backend: Literal["openvino", "torch"] = Field("openvino", description="what runs the model")
    precision: Literal["auto", "bf16", "f32"] = Field("auto", description="auto: bf16 where the processor has it")
    sentences: Literal["pooled", "separate"] = Field(
        "pooled", description="pooled: from the passage's own pass, free; separate: a pass of its own, twice the work"
    )
    allow_hub: bool = Field(False, description="fetch the model from the hub when it is not installed")


_Values = dict[str, float | int | bool | str]


def _known(known: type[Any]) -> AfterValidator:
    """Retrieval settings of a family, each as the dataclass `known` says; refuses one that it does not have."""

    def checked(value: _Values) -> _Values:
        names = [field.name for field in dataclasses.fields(known)]
        wrong = {name: unknown(name, names) for name in value if name not in names}
        adapter = TypeAdapter(known)
        try:
            whole = adapter.validate_python({name: value[name] for name in value if name in names})
        except ValidationError as error:
            below = (line.partition(": ") for line in mistakes(error, adapter.json_schema()))
            wrong |= {name: said for name, _, said in below}
        if wrong:
            raise WrongSettings(wrong)
        return {name: getattr(whole, name) for name in value}

    return AfterValidator(checked)


def _written(pattern: str, expected: str, *, shown: bool = True) -> AfterValidator:
    """A text that is written like this pattern, which ``expected`` says in words; shown: whether it is repeated."""

    def checked(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}" + (f", found {found(value)}" if shown else ""))
        return value

    return AfterValidator(checked)


class _Family(_Settings):
    needs_extraction: ClassVar[bool] = False  # whether it is made from what the stage `extract` makes
    needs_descriptions: ClassVar[bool] = False  # whether it is made from what the stage `describe` makes

    enabled: bool = True


class TriGraphSettings(_Family):
    """Settings of the tri_graph family that shape its artifacts (LinearRAG, section 3.1)."""

    parameters: Annotated[_Values, _known(TriGraphParameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )


class DenseSettings(_Settings):
    """Settings of the nearest passages, which every snapshot has."""

    parameters: Annotated[_Values, _known(DenseParameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )


class Bm25Settings(_Family):
    """Settings of lexical retrieval; it is always there unless it is disabled."""

    title_weight: int = Field(
        3, ge=1, le=100, description="how often a title counts in each of its passages, where split.title_in_passage"
    )
    parameters: Annotated[_Values, _known(Bm25Parameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )


class FusedSettings(_Settings):
    """How the methods are combined; it makes no artifact."""

    parameters: Annotated[_Values, _known(FusedParameters)] = Field(
        default_factory=dict,
        description="the weight of each method and the pool, where they differ from ours; `evaluate --fit` finds them",
    )


class ZoomGraphSettings(_Family):
    """Settings of the zoom_graph family that shape its artifacts (ZoomRAG, section 3.1)."""

    threshold: float = Field(
        3.0, ge=0.0, le=10.0, description="standard deviations above a row's mean of exp(cos) that a link exceeds"
    )
    cap: int = Field(64, ge=1, le=4096, description="most links that a row chooses; those that chose it come on top")
    exact_rows: int = Field(
        65_536, ge=0, description="above so many rows, means and deviations are estimated instead of added up"
    )
    entity_links: bool = Field(
        False, description="link names that resemble each other too; the paper does not, and recall is worse with them"
    )
    parameters: Annotated[_Values, _known(ZoomGraphParameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )

    def links(self) -> dict[str, Any]:
        """What shapes the links."""
        return {"threshold": self.threshold, "cap": self.cap, "exact_rows": self.exact_rows}


class LshTreeSettings(_Family):
    """Settings of the lsh_tree family that shape its artifacts (EraRAG, section III)."""

    smallest: int = Field(6, ge=2, le=4096, description="nodes of a segment at least (the paper's S_min)")
    largest: int = Field(12, ge=3, le=8192, description="nodes of a segment at most (S_max)")
    layers: int = Field(5, ge=1, le=16, description="layers of summaries at most (L)")
    summary_tokens: int = Field(100, ge=16, le=2048, description="tokens of a summary, about")
    seed: int = Field(0, ge=0, lt=2**32, description="of the hyperplanes")
    group: int = Field(512, ge=1, le=65_536, description="segments whose summaries make one part, at most")
    parameters: Annotated[_Values, _known(LshTreeParameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )

    @model_validator(mode="after")
    def _halves_fit(self) -> LshTreeSettings:
        if self.largest < 2 * self.smallest - 1:
            raise ValueError(
                f"largest {self.largest} is below 2 x smallest - 1 = {2 * self.smallest - 1}: a segment that overflows "
                "could not be halved"
            )
        return self


class CommunityTreeSettings(_Family):
    """Settings of the community_tree family that shape its artifacts (ArchRAG, section 3.1)."""

    needs_extraction: ClassVar[bool] = True
    needs_descriptions: ClassVar[bool] = True

    enabled: bool = Field(False, description="it needs the extraction, and is worth most with a language model")
    augmentation: Literal["codicil", "knn", "none"] = Field(
        "codicil", description="how links by content are added: nearest neighbours, of all links the best or all"
    )
    clustering: Literal["leiden", "spectral", "scan", "node2vec"] = Field(
        "leiden", description="leiden alone goes on from the communities of the version before"
    )
    levels: int = Field(4, ge=1, le=8, description="levels of communities at most")
    fewest: int = Field(5, ge=2, le=1_000_000, description="nodes of a level that another is built over")
    grain: int = Field(400, ge=0, description="nodes for each step of Leiden's resolution; 0: plain modularity")
    largest: int = Field(50, ge=0, description="members of a community at most; 0: no bound")
    neighbours: int = Field(10, ge=0, le=256, description="nearest nodes that each is linked to by content (k)")
    threshold: float = Field(0.6, ge=-1, le=1, description="cosine that a link by content reaches, with knn")
    alpha: float = Field(0.5, ge=0, le=1, description="weight of shared neighbours beside content, with codicil")
    seed: int = Field(0, ge=0, lt=2**31, description="of the clustering")
    report_tokens: int = Field(300, ge=16, le=4096, description="tokens of a report's summary, about")
    input_tokens: int = Field(
        3_000, ge=200, le=200_000, description="tokens of the members and relations that a report is made of, about"
    )
    group: int = Field(512, ge=1, le=65_536, description="communities whose reports make one part, at most")
    m: int = Field(16, ge=1, le=128, description="links of a node in its level of C-HNSW at least (M); twice at most")
    parameters: Annotated[_Values, _known(CommunityTreeParameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )


class HeterographSettings(_Family):
    """Settings of the heterograph family that shape its artifacts (NodeRAG, section 2)."""

    needs_extraction: ClassVar[bool] = True

    enabled: bool = Field(False, description="it needs the extraction, and is worth most with a language model")
    neighbours: int = Field(
        24, ge=0, le=256, description="nearest nodes by vector that each is linked to; 0 for no such links"
    )
    units: int = Field(20, ge=0, le=1024, description="units that one text is made of, at most")
    relations: int = Field(20, ge=0, le=1024, description="relations that one text is made of, at most")
    attributes: int = Field(10, ge=0, le=1024, description="attributes that the elements of a community are made of")
    input_tokens: int = Field(
        3_000, ge=64, le=200_000, description="tokens of all that one text is made of, about; the first is always read"
    )
    attribute_tokens: int = Field(200, ge=16, le=2048, description="tokens of an attribute, about")
    element_tokens: int = Field(150, ge=16, le=2048, description="tokens of a high-level element, about")
    elements: int = Field(
        5, ge=1, le=64, description="high-level elements of a community, at most; one without a model"
    )
    fewest: int = Field(
        2, ge=1, le=1_000_000, description="units, relations and attributes of a community that elements are made of"
    )
    grain: int = Field(2_000, ge=0, description="nodes for each step of Leiden's resolution; 0: plain modularity")
    largest: int = Field(300, ge=0, description="nodes of a community at most; 0: no bound")
    group: int = Field(512, ge=1, le=65_536, description="communities whose elements make one part, at most")
    seed: int = Field(0, ge=0, lt=2**31, description="of the clustering, and of which nodes are read where not all are")
    parameters: Annotated[_Values, _known(HeterographParameters)] = Field(
        default_factory=dict, description="retrieval settings written into the snapshot, where they differ from ours"
    )

    @model_validator(mode="after")
    def _texts_are_made_of_something(self) -> HeterographSettings:
        if not self.units + self.relations:
            raise ValueError("units and relations are both 0: texts would be made of nothing; allow some of either")
        return self


class FamilySettings(_Settings):
    """The index families of a snapshot, and how they are combined."""

    fused: FusedSettings = FusedSettings()
    dense: DenseSettings = DenseSettings()
    bm25: Bm25Settings = Bm25Settings()
    tri_graph: TriGraphSettings = TriGraphSettings()
    zoom_graph: ZoomGraphSettings = ZoomGraphSettings()
    lsh_tree: LshTreeSettings = LshTreeSettings()
    community_tree: CommunityTreeSettings = CommunityTreeSettings()
    heterograph: HeterographSettings = HeterographSettings()


class GateSettings(_Settings):
    """What a corpus and its index have to hold to be published; nothing of this reaches the index."""

    questions: Path | None = Field(
        None, description="JSON Lines of {id, question, gold_ids}; recall on them is measured before publishing"
    )
    methods: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        ("fused",), min_length=1, description="the retrieval methods whose recall is measured"
    )
    k: int = Field(5, ge=1, le=1000, description="recall is of the first k documents")
    tolerance: float = Field(
        0.02, ge=0, le=1, description="recall that a method may lose against the version before; more is refused"
    )
    minimum: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="recall below which nothing is published, whatever the version before had"
    )
    max_shrink: float = Field(
        0.2,
        ge=0,
        le=1,
        description="the share of documents that one build may take away without --allow-shrink: a night's deletions "
        "are a few in a hundred, a mount or an export that failed takes a whole source",
    )

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(METHODS))
        if unknown:
            raise ValueError(f"there is no method {unknown[0]!r}; there are {', '.join(METHODS)}")
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _minimum_of_something(self) -> GateSettings:
        if self.minimum is not None and self.questions is None:
            raise ValueError("minimum is the recall on questions, and there are none: set gates.questions, too")
        return self


class RunSettings(_Settings):
    """How a run works; nothing of this reaches the index."""

    workers: Annotated[int, Field(ge=1)] | None = Field(None, description="worker processes; default: the cores")
    lease_seconds: int = Field(120, ge=10, description="a lease not renewed for this long may be taken over")
    strict: bool = Field(False, description="a refused row ends the run with exit code 2")
    max_failed_share: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published when more of the rows than this are refused, and more than ten: exit code 3",
    )
    max_stand_ins: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published when a language model did not write more of a stage's texts than this, and "
        "more than ten or all of them: exit code 3",
    )
    wave_shards: Annotated[int, Field(ge=1)] | None = Field(
        None, description="shards in a wave of `backfill`; default: as many as hold about four million tokens"
    )


class Price(_Settings):
    """What the tokens of a language model cost; `plan` and `--max-cost` reckon with it."""

    input_per_million: float = Field(ge=0, allow_inf_nan=False, description="price of a million tokens of prompts")
    output_per_million: float = Field(ge=0, allow_inf_nan=False, description="price of a million tokens of answers")
    currency: Annotated[str, _written("[A-Z]{3}", "the three capitals of a currency, such as USD")] = Field(
        "USD", description="ISO 4217; the same for all models"
    )
    batch_factor: float = Field(
        1.0, ge=0, le=1, description="what is paid of these prices for tokens of llm.batch: 0.5 for half of them"
    )


class BudgetSettings(_Settings):
    """What a run may spend on language models; reaching it ends the run with exit code 4, and the next goes on."""

    tokens: Annotated[int, Field(ge=0)] | None = Field(None, description="of prompts and answers together")
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="in the currency of `prices`, which must name the model"
    )


class LlmSettings(_Settings):
    """The language model of extraction, descriptions, summaries and reports. Its key is no setting: see api_key_env."""

    backend: Literal["extractive", "openai"] = Field(
        "extractive",
        description="extractive: no model, the central sentences; nothing leaves this machine. openai: an endpoint "
        "that speaks OpenAI's protocol (OpenAI, Azure, vLLM, Ollama, a gateway); the corpus's texts are sent to it",
    )
    model: str | None = Field(None, min_length=1, description="the model's name at the endpoint")
    base_url: str | None = Field(
        None, description="the endpoint, such as http://localhost:8000/v1; default: https://api.openai.com/v1"
    )
    api_key_env: str = Field(
        "OPENAI_API_KEY",
        description="the name of the environment variable that holds the key; the key itself never stands in this "
        "file. With a base_url and without the variable, none is sent",
    )
    api_key_file: Path | None = Field(
        None, description="a file that holds the key and nothing else, in place of the variable; read whenever needed"
    )
    token_provider: (
        Annotated[str, _written(r"\w+(\.\w+)*:\w+", "module:function, such as my_package:token", shown=False)] | None
    ) = Field(
        None,
        description="module:function of an installed package that returns a key, or a coroutine of one, in place of "
        "the variable; called for every request, so that it may hand out short-lived tokens",
    )
    ca_file: Path | None = Field(None, description="certificates to trust (PEM), in place of the system's")
    proxy: str | None = Field(None, description="the URL of a proxy; default: HTTPS_PROXY and NO_PROXY, as everywhere")
    structured: Literal["auto", "json_schema", "json_object", "text"] = Field(
        "auto", description="how the form of an answer is asked for; auto: json_schema, then what the endpoint has"
    )
    temperature: float | None = Field(0.0, ge=0, le=2, description="null for models that take none")
    prompts: Path | None = Field(None, description="a folder with prompts that replace ours, file by file")
    timeout_seconds: float = Field(60, gt=0, description="for one answer, the whole of it")
    deadline_seconds: float = Field(900, gt=0, description="for one request with all its retries")
    requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="of the whole run, however many workers; default: no limit but the endpoint's own"
    )
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="of prompts and answers, of the whole run"
    )
    concurrency: int = Field(16, ge=1, le=1024, description="calls that one worker keeps in flight")
    budget: BudgetSettings = BudgetSettings()
    batch: bool = Field(False, description="`backfill` asks by the endpoint's Batch API: cheaper, and slower")
    batch_smallest: int = Field(
        100, ge=1, description="fewer questions at a time are asked directly: they are not worth a wait of hours"
    )
    batch_largest: int = Field(
        50_000, ge=1, le=50_000, description="questions in one batch; fewer where the endpoint's queue is short"
    )

    @field_validator("api_key_env")
    @classmethod
    def _is_a_variable(cls, value: str) -> str:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", value):
            raise ValueError("expected the name of an environment variable, such as OPENAI_API_KEY; not the key itself")
        return value

    @field_validator("base_url", "proxy")
    @classmethod
    def _is_a_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        schemes = ("http", "https") if info.field_name == "base_url" else ("http", "https", "socks5", "socks5h")
        try:
            found = None if value is None else urlsplit(value)
            whole = found is None or (found.scheme in schemes and bool(found.hostname) and found.port != 0)
        except ValueError:
            whole = False
        if not whole:
            raise ValueError(f"expected a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return value

    @field_serializer("base_url", "proxy", when_used="json")
    def _without_password(self, value: str | None) -> str | None:
        """What is recorded of a URL: runs keep their settings in the store."""
        return None if value is None else redacted(value)

    @model_validator(mode="after")
    def _openai_has_a_model(self) -> LlmSettings:
        if self.backend == "openai" and self.model is None:
            raise ValueError("backend openai needs a model: set llm.model")
        return self

    @model_validator(mode="after")
    def _one_place_for_the_key(self) -> LlmSettings:
        if self.api_key_file is not None and self.token_provider is not None:
            raise ValueError("api_key_file and token_provider are two places for one key: give one of them")
        return self

    def shaping(self) -> dict[str, Any]:
        """What shapes the answers."""
        if self.backend == "extractive":
            return {"backend": self.backend}
        return {"backend": self.backend, "model": self.model, "temperature": self.temperature}


class Configuration(_Settings):
    """Everything `indexmill.yaml` may say."""

    store: Path = Field(Path(DEFAULT_STORE), description="the folder that holds the index")
    corpus: CorpusSettings | None = Field(None, description="what the index is built from; `--corpus` overrides it")
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
        description="what a million tokens of a language model cost, by its name: `name: {input_per_million: 0.15, "
        "output_per_million: 0.60, currency: USD}`; plan and --max-cost need it where a model is paid for",
    )

    @field_validator("prices")
    @classmethod
    def _in_one_currency(cls, value: dict[str, Price]) -> dict[str, Price]:
        currencies = sorted({price.currency for price in value.values()})
        if len(currencies) > 1:
            raise ValueError(f"prices in {' and '.join(currencies)} cannot be added up; give all in one currency")
        return value

    @field_validator("store", mode="before")
    @classmethod
    def _in_a_folder(cls, value: object) -> object:
        return store_folder(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _gates_ask_what_is_built(self) -> Configuration:
        for name in self.gates.methods if self.gates.questions is not None else ():
            if not METHODS[name].always and not getattr(self.families, name).enabled:
                raise ValueError(f"gates.methods names {name!r}, and families.{name} is not enabled")
        return self

    @model_validator(mode="after")
    def _recogniser_has_a_model(self) -> Configuration:
        if self.recognise.asks_llm and self.llm.backend == "extractive":
            raise ValueError(
                "recognise.recogniser is 'llm', and llm.backend is 'extractive', which is no model that could be "
                "asked: set llm.backend to openai and llm.model to a model's name, or the recogniser to 'rules'"
            )
        return self

    @model_validator(mode="after")
    def _budget_has_a_price(self) -> Configuration:
        model = self.llm.model
        if self.llm.backend != "extractive" and self.llm.budget.cost is not None and model not in self.prices:
            raise ValueError(
                f"llm.budget.cost is set, and `prices` has none for {model!r}: give its price per million tokens, or "
                "a budget in tokens"
            )
        return self

    @property
    def extracts(self) -> bool:
        """Whether passages are taken apart: it is asked for, or what is made needs it."""
        return self.extract.enabled or self.describes or any(family.needs_extraction for family in self._made)

    @property
    def describes(self) -> bool:
        """Whether extracted entities are described: it is asked for, or a family that is made needs it."""
        return self.resolve.description.enabled or any(family.needs_descriptions for family in self._made)

    @property
    def _made(self) -> list[_Family]:
        """The settings of the families that are made."""
        return [family for _, family in self.families if isinstance(family, _Family) and family.enabled]

    def published(self) -> dict[str, Any]:
        """The settings that shape the index, as the manifest records them."""
        sections = {"split", "shards", "recognise", "extract", "embed", "families"}
        sections |= {"resolve"} if self.describes else set()
        shaping = self.model_dump(mode="json", include=sections)
        shaping["llm"] = self.llm.shaping()
        shaping["embed"].pop("allow_hub")
        shaping["embed"].pop("model")  # where the model was found; its digest is in the models' fingerprints
        if self.recognise.published_name is None:
            shaping["recognise"].pop("recogniser")
        return shaping


def load_configuration(path: Path | None, overrides: dict[str, Any] | None = None) -> Configuration:
    """The configuration of a YAML file (none: the defaults), with overrides laid over it.

    `overrides` is nested like the file. Relative paths in the file, and the store where it names none, are taken from
    the file's folder; a model or recogniser is a path if it is written like one and lies there. Raises
    ConfigurationError naming the file and, one a line, each setting that is wrong.
    """
    content: Any = {}
    if path is not None:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError as error:
            raise ConfigurationError(f"{path}: no such configuration file; `indexmill init` writes one") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{path}: cannot be read as YAML: {redacted(str(error))}") from None
        if not isinstance(content, dict):
            raise ConfigurationError(f"{path}: expected settings by name, found {type(content).__name__}")
        _anchor_paths(content, path.parent)
    try:
        return Configuration.model_validate(_merged(content, overrides or {}))
    except ValidationError as error:
        where = path if path is not None else "the settings given"
        wrong = mistakes(error, Configuration.model_json_schema())
        listed = wrong[0] if len(wrong) == 1 else "\n  ".join([f"{len(wrong)} settings are wrong", *wrong])
        raise ConfigurationError(f"{where}: {listed}") from error


def _anchor_paths(content: dict[str, Any], folder: Path) -> None:
    """Make the file's relative paths relative to the file, wherever the command is run."""
    store = content.setdefault("store", DEFAULT_STORE)
    if isinstance(store, str):
        with contextlib.suppress(ValueError):  # the model says so again, with the setting's name
            content["store"] = store_folder(store, folder)
    corpus = content.get("corpus")
    if isinstance(corpus, dict):
        paths = corpus.get("paths")
        if isinstance(paths, str):
            corpus["paths"] = anchored(paths, folder)
        elif isinstance(paths, list):
            corpus["paths"] = [anchored(path, folder) if isinstance(path, str) else path for path in paths]
    for section, setting in (
        ("gates", "questions"),
        ("llm", "api_key_file"),
        ("llm", "ca_file"),
        ("llm", "prompts"),
    ):
        settings = content.get(section)
        if isinstance(settings, dict) and isinstance(value := settings.get(setting), str):
            settings[setting] = anchored(value, folder)
    for section, setting in (("embed", "model"), ("recognise", "recogniser")):
        settings = content.get(section)
        if not isinstance(settings, dict) or not isinstance(value := settings.get(setting), str):
            continue
        if _looks_like_a_path(value) and Path(anchored(value, folder)).exists():
            settings[setting] = anchored(value, folder)


def _looks_like_a_path(name: str) -> bool:
    """Whether a model's name is written as a path; one of the hub, `owner/model`, is too, and only a look can tell."""
    return os.sep in name or name.startswith((".", "~"))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged
