"""Settings of the models: recogniser, encoder, language model and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_serializer, field_validator, model_validator

from indexmill.models.secrets import redacted
from schemas.config.settings_section import Settings, looks_like_a_path, written

_DEFAULT_ENCODER = "all-MiniLM-L6-v2"


class RecogniseSettings(Settings):
    """The recogniser that finds the entities of a document."""

    recogniser: str = Field(
        "rules",
        min_length=1,
        description="'rules'; 'llm', which calls the model of `llm`; or the name or path of a spaCy pipeline",
    )

    @property
    def asks_llm(self) -> bool:
        """True if the recogniser is a language model."""
        return self.recogniser == "llm"

    @property
    def published_name(self) -> str | None:
        """The recogniser's name; None for a path, which differs between machines (the fingerprint identifies it)."""
        return None if looks_like_a_path(self.recogniser) else self.recogniser


class EndpointSettings(Settings):
    """How to call a model behind an endpoint of OpenAI's protocol. The key itself is no setting: see api_key_env."""

    base_url: str | None = Field(
        None, description="the endpoint, such as http://localhost:8000/v1; default: https://api.openai.com/v1"
    )
    api_key_env: str = Field(
        "OPENAI_API_KEY",
        description="the name of the environment variable that contains the key; never put the key into this file. "
        "With a base_url but without the variable, no key is sent",
    )
    api_key_file: Path | None = Field(
        None, description="a file that contains only the key, instead of the variable; read whenever needed"
    )
    token_provider: (
        Annotated[str, written(r"\w+(\.\w+)*:\w+", "module:function, such as my_package:token", shown=False)] | None
    ) = Field(
        None,
        description="module:function of an installed package that returns a key, or a coroutine that does, instead of "
        "the variable; called for every request, so it can return short-lived tokens",
    )
    ca_file: Path | None = Field(None, description="certificates to trust (PEM), instead of the system's")
    proxy: str | None = Field(None, description="the URL of a proxy; default: HTTPS_PROXY and NO_PROXY, as usual")
    timeout_seconds: float = Field(60, gt=0, description="time for one complete answer")
    deadline_seconds: float = Field(900, gt=0, description="time for one request with all its retries")
    requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="maximum for the whole run and all its workers; default: only the endpoint's own limit"
    )
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="maximum tokens of prompts and answers for the whole run"
    )
    concurrency: int = Field(16, ge=1, le=1024, description="maximum concurrent calls of one worker")

    @property
    def asks(self) -> bool:
        """True if the settings choose an endpoint."""
        return getattr(self, "backend", None) == "openai"

    @field_validator("api_key_env")
    @classmethod
    def _is_a_variable(cls, value: str) -> str:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", value):
            raise ValueError("expected the name of an environment variable, such as OPENAI_API_KEY, not the key itself")
        return value

    @field_validator("base_url", "proxy")
    @classmethod
    def _is_a_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        schemes = ("http", "https") if info.field_name == "base_url" else ("http", "https", "socks5", "socks5h")
        try:
            url = None if value is None else urlsplit(value)
            whole = url is None or (url.scheme in schemes and bool(url.hostname) and url.port != 0)
        except ValueError:
            whole = False
        if not whole:
            raise ValueError(f"expected a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return value

    @field_serializer("base_url", "proxy", when_used="json")
    def _without_password(self, value: str | None) -> str | None:
        """Return the URL without its password, since runs record their settings in the store."""
        return None if value is None else redacted(value)

    @model_validator(mode="after")
    def _one_place_for_the_key(self) -> Self:
        if self.api_key_file is not None and self.token_provider is not None:
            raise ValueError("api_key_file and token_provider are mutually exclusive: give only one")
        return self


class _Encoder(Settings):
    """The settings of the encoder itself, in a base class so that they come first in their section."""

    model: str = Field(
        _DEFAULT_ENCODER,
        min_length=1,
        description="a path, or the name of a model that a package carries; with openai, its name at the endpoint",
    )
    backend: Literal["openvino", "torch", "openai"] = Field(
        "openvino",
        description="library that runs the model; torch runs any sentence-transformers model, even on a GPU. openai: "
        "an endpoint of OpenAI's protocol (OpenAI, Azure, vLLM, Ollama); the corpus's texts are sent to it, at a price",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="the device on which torch runs the model; auto: a GPU if there is one"
    )
    precision: Literal["auto", "bf16", "f32", "int8"] = Field(
        "auto",
        description="auto: bf16 if the CPU supports it; with torch only on a GPU. int8: quantised products, for "
        "OpenVINO; the build needs nncf",
    )
    query_prompt: str | None = Field(
        None, max_length=2000, description="the text before a question; default: the model's own prompt"
    )
    document_prompt: str | None = Field(
        None, max_length=2000, description="the text before a passage, a title or a name; default: the model's own"
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="truncate vectors to this dimension, for a Matryoshka model; from an endpoint, the dimension to "
        "request; default: the model's own",
    )
    sentences: Literal["pooled", "separate"] = Field(
        "pooled",
        description="pooled: from the passage's pass, at no cost; separate: by a separate pass, twice the work; always "
        "used for a model whose pooling is not the mean",
    )
    allow_hub: bool = Field(False, description="download the model from the hub if it is not installed")


_OF_ENDPOINT = frozenset(EndpointSettings.model_fields) | {"batch_texts", "batch_tokens", "tokenizer", "max_tokens"}
"""The settings of an encoder that apply to endpoints only."""


class EmbedSettings(EndpointSettings, _Encoder):
    """The encoder that computes the vectors; the settings from base_url on are for an endpoint."""

    batch_texts: int = Field(128, ge=1, le=2048, description="maximum number of texts in one request to the endpoint")
    batch_tokens: int = Field(
        30_000, ge=1, description="maximum tokens of one request, as the tokenizer counts them; one text may exceed it"
    )
    tokenizer: str = Field(
        _DEFAULT_ENCODER,
        min_length=1,
        description="the tokenizer that counts and truncates texts for an endpoint: the path of a tokenizer.json or of "
        "a model, or the name of an installed one",
    )
    max_tokens: Annotated[int, Field(ge=128)] | None = Field(
        None, description="maximum tokens of a text for the endpoint's model; default: the tokenizer's own limit"
    )

    @model_validator(mode="after")
    def _endpoint_has_a_model(self) -> Self:
        if self.backend == "openai" and self.model == _DEFAULT_ENCODER and "model" not in self.model_fields_set:
            raise ValueError("backend openai needs a model: set embed.model to its name at the endpoint")
        return self

    def shaping(self) -> dict[str, Any]:
        """Return the settings that shape vectors, ready for JSON, except those that a model's fingerprint covers."""
        return self.model_dump(mode="json", include={"backend", "precision", "sentences"})

    @staticmethod
    def of_encoder(dumped: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings in a `model_dump` that choose the encoder, without those for endpoints only."""
        return {name: value for name, value in dumped.items() if name not in _OF_ENDPOINT}


class Price(Settings):
    """The price of the tokens of a language model, used by `plan` and `--max-cost`."""

    input_per_million: float = Field(ge=0, allow_inf_nan=False, description="price per million tokens of prompts")
    output_per_million: float = Field(ge=0, allow_inf_nan=False, description="price per million tokens of answers")
    currency: Annotated[str, written("[A-Z]{3}", "the three capital letters of a currency, such as USD")] = Field(
        "USD", description="ISO 4217; the same for all models"
    )
    batch_factor: float = Field(
        1.0, ge=0, le=1, description="the factor on these prices for tokens of llm.batch: 0.5 for half the price"
    )


class BudgetSettings(Settings):
    """What a run may spend on language models. At a limit, the run exits with code 4; the next run continues."""

    tokens: Annotated[int, Field(ge=0)] | None = Field(None, description="tokens of prompts and answers together")
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="in the currency of `prices`, which must name the model"
    )


class _NamedModel(Settings):
    """The back-end and the model's name, in a base class so that they come first in their section."""

    backend: Literal["extractive", "openai"] = Field(
        "extractive",
        description="extractive: no model, the central sentences; no text leaves this machine. openai: an endpoint of "
        "OpenAI's protocol (OpenAI, Azure, vLLM, Ollama, a gateway); the corpus's texts are sent to it",
    )
    model: str | None = Field(None, min_length=1, description="the model's name at the endpoint")


_INSTRUCTION_TOKENS = 900
"""The most tokens of the instructions and the schema of a prompt, and of a model's template."""

_LEAST_SOURCE_TOKENS = 128


class LlmSettings(EndpointSettings, _NamedModel):
    """The language model for extraction, descriptions, summaries and reports. For its key, see api_key_env."""

    structured: Literal["auto", "json_schema", "json_object", "text"] = Field(
        "auto", description="how an answer's form is requested; auto: json_schema, or what the endpoint supports"
    )
    temperature: float | None = Field(0.0, ge=0, le=2, description="null for models without it")
    context_tokens: Annotated[int, Field(ge=1024)] | None = Field(
        None,
        description="the model's context: prompts contain fewer source texts if it is small; default: what the "
        "endpoint says, as llama.cpp and vLLM do",
    )
    prompts: Path | None = Field(None, description="a folder with prompt files that replace the built-in prompts")
    budget: BudgetSettings = BudgetSettings()
    batch: bool = Field(False, description="`backfill` uses the endpoint's Batch API: cheaper, and slower")
    batch_smallest: int = Field(
        100, ge=1, description="fewer prompts than this are sent directly: they are not worth a wait of hours"
    )
    batch_largest: int = Field(
        50_000, ge=1, le=50_000, description="maximum prompts in one batch; fewer if the endpoint's queue is short"
    )

    @model_validator(mode="after")
    def _openai_has_a_model(self) -> LlmSettings:
        if self.backend == "openai" and self.model is None:
            raise ValueError("backend openai needs a model: set llm.model")
        return self

    def sources_room(self, texts: int = 1) -> int | None:
        """Return the tokens that each of some source texts may have in a prompt; None if the context is not known.

        A quarter of the context is for the answer, and a quarter of the rest is spare, since tokens are estimated.
        """
        if self.context_tokens is None:
            return None
        return max(int(0.75 * (0.75 * self.context_tokens - _INSTRUCTION_TOKENS)) // texts, _LEAST_SOURCE_TOKENS)

    def shaping(self) -> dict[str, Any]:
        """Return the settings that shape the answers."""
        if self.backend == "extractive":
            return {"backend": self.backend}
        return {"backend": self.backend, "model": self.model, "temperature": self.temperature}
