"""Settings of the models: recogniser, encoder, language model and its prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_serializer, field_validator, model_validator

from indexmill.models.secrets import redacted
from schemas.config.base import Settings, looks_like_a_path, written

_DEFAULT_ENCODER = "all-MiniLM-L6-v2"


class RecogniseSettings(Settings):
    """Which recogniser finds the entities of a document."""

    recogniser: str = Field(
        "rules",
        min_length=1,
        description="'rules'; 'llm', which asks the model that `llm` names; or the name or path of a spaCy pipeline",
    )

    @property
    def asks_llm(self) -> bool:
        """True if the recogniser is a language model."""
        return self.recogniser == "llm"

    @property
    def published_name(self) -> str | None:
        """The recogniser's name; None for a path, which varies by machine; the fingerprint identifies it."""
        return None if looks_like_a_path(self.recogniser) else self.recogniser


class EndpointSettings(Settings):
    """How a model behind an endpoint of OpenAI's protocol is asked. Its key is no setting: see api_key_env."""

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
        Annotated[str, written(r"\w+(\.\w+)*:\w+", "module:function, such as my_package:token", shown=False)] | None
    ) = Field(
        None,
        description="module:function of an installed package that returns a key, or a coroutine of one, in place of "
        "the variable; called for every request, so that it may hand out short-lived tokens",
    )
    ca_file: Path | None = Field(None, description="certificates to trust (PEM), in place of the system's")
    proxy: str | None = Field(None, description="the URL of a proxy; default: HTTPS_PROXY and NO_PROXY, as everywhere")
    timeout_seconds: float = Field(60, gt=0, description="for one answer, the whole of it")
    deadline_seconds: float = Field(900, gt=0, description="for one request with all its retries")
    requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="of the whole run, however many workers; default: no limit but the endpoint's own"
    )
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="of what is sent and what is answered, of the whole run"
    )
    concurrency: int = Field(16, ge=1, le=1024, description="calls that one worker keeps in flight")

    @property
    def asks(self) -> bool:
        """True if the settings choose an endpoint."""
        return getattr(self, "backend", None) == "openai"

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
        """The URL without its password, since runs record their settings in the store."""
        return None if value is None else redacted(value)

    @model_validator(mode="after")
    def _one_place_for_the_key(self) -> Self:
        if self.api_key_file is not None and self.token_provider is not None:
            raise ValueError("api_key_file and token_provider are two places for one key: give one of them")
        return self


class _Encoder(Settings):
    """Declares the fields that come first in the section."""

    model: str = Field(
        _DEFAULT_ENCODER,
        min_length=1,
        description="a path, or the name of an installed model; with openai, its name at the endpoint",
    )
    backend: Literal["openvino", "torch", "openai"] = Field(
        "openvino",
        description="what runs the model; torch runs any of sentence-transformers, also on a GPU. openai: an endpoint "
        "that speaks OpenAI's protocol (OpenAI, Azure, vLLM, Ollama); the corpus's texts are sent to it, and paid for",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where torch runs the model; auto: on a GPU where there is one"
    )
    precision: Literal["auto", "bf16", "f32", "int8"] = Field(
        "auto",
        description="auto: bf16 where the processor has it; with torch on a GPU alone. int8: quantised products, for "
        "OpenVINO; the build needs nncf",
    )
    query_prompt: str | None = Field(
        None, max_length=2000, description="what the model reads before a question; default: what the model says"
    )
    document_prompt: str | None = Field(
        None, max_length=2000, description="what it reads before a passage, a title or a name; default: as above"
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="cut vectors to so many numbers, for a Matryoshka model; an endpoint is asked for so many; "
        "default: all that it gives",
    )
    sentences: Literal["pooled", "separate"] = Field(
        "pooled",
        description="pooled: from the passage's own pass, free; separate: a pass of its own, twice the work, and the "
        "way of every model whose pooling is not the mean",
    )
    allow_hub: bool = Field(False, description="fetch the model from the hub when it is not installed")


_OF_ENDPOINT = frozenset(EndpointSettings.model_fields) | {"batch_texts", "batch_tokens", "tokenizer", "max_tokens"}
"""The settings of an encoder that only an endpoint has."""


class EmbedSettings(EndpointSettings, _Encoder):
    """Which encoder makes the vectors, and how; the settings from base_url on are of an endpoint."""

    batch_texts: int = Field(128, ge=1, le=2048, description="the most texts of one request to the endpoint")
    batch_tokens: int = Field(
        30_000, ge=1, description="the most tokens of one request, as the tokenizer counts them; one text may have more"
    )
    tokenizer: str = Field(
        _DEFAULT_ENCODER,
        min_length=1,
        description="what counts and cuts the texts for an endpoint: the path of a tokenizer.json or of a model, or "
        "the name of an installed one",
    )
    max_tokens: Annotated[int, Field(ge=128)] | None = Field(
        None, description="what the endpoint's model reads of a text, in these tokens; default: what the tokenizer says"
    )

    @model_validator(mode="after")
    def _endpoint_has_a_model(self) -> Self:
        if self.backend == "openai" and self.model == _DEFAULT_ENCODER and "model" not in self.model_fields_set:
            raise ValueError("backend openai needs a model: set embed.model to its name at the endpoint")
        return self

    def shaping(self) -> dict[str, Any]:
        """The settings that shape vectors beside the models' fingerprints, JSON-ready.

        Prompts, the dimension and the device are in the fingerprints. The settings named here are those that always
        were in a manifest, so that it stays the same.
        """
        return self.model_dump(mode="json", include={"backend", "precision", "sentences"})

    @staticmethod
    def of_encoder(dumped: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that choose the encoder, among those that `model_dump` returns: no address, key or limit."""
        return {name: value for name, value in dumped.items() if name not in _OF_ENDPOINT}


class Price(Settings):
    """What the tokens of a language model cost; `plan` and `--max-cost` reckon with it."""

    input_per_million: float = Field(ge=0, allow_inf_nan=False, description="price of a million tokens of prompts")
    output_per_million: float = Field(ge=0, allow_inf_nan=False, description="price of a million tokens of answers")
    currency: Annotated[str, written("[A-Z]{3}", "the three capitals of a currency, such as USD")] = Field(
        "USD", description="ISO 4217; the same for all models"
    )
    batch_factor: float = Field(
        1.0, ge=0, le=1, description="what is paid of these prices for tokens of llm.batch: 0.5 for half of them"
    )


class BudgetSettings(Settings):
    """What a run may spend on language models; reaching it ends the run with exit code 4, and the next goes on."""

    tokens: Annotated[int, Field(ge=0)] | None = Field(None, description="of prompts and answers together")
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="in the currency of `prices`, which must name the model"
    )


class _NamedModel(Settings):
    """Declares the fields that come first in the section."""

    backend: Literal["extractive", "openai"] = Field(
        "extractive",
        description="extractive: no model, the central sentences; nothing leaves this machine. openai: an endpoint "
        "that speaks OpenAI's protocol (OpenAI, Azure, vLLM, Ollama, a gateway); the corpus's texts are sent to it",
    )
    model: str | None = Field(None, min_length=1, description="the model's name at the endpoint")


class LlmSettings(EndpointSettings, _NamedModel):
    """The language model of extraction, descriptions, summaries and reports. Its key is no setting: see api_key_env."""

    structured: Literal["auto", "json_schema", "json_object", "text"] = Field(
        "auto", description="how the form of an answer is asked for; auto: json_schema, then what the endpoint has"
    )
    temperature: float | None = Field(0.0, ge=0, le=2, description="null for models that take none")
    prompts: Path | None = Field(None, description="a folder with prompts that replace ours, file by file")
    budget: BudgetSettings = BudgetSettings()
    batch: bool = Field(False, description="`backfill` asks by the endpoint's Batch API: cheaper, and slower")
    batch_smallest: int = Field(
        100, ge=1, description="fewer questions at a time are asked directly: they are not worth a wait of hours"
    )
    batch_largest: int = Field(
        50_000, ge=1, le=50_000, description="questions in one batch; fewer where the endpoint's queue is short"
    )

    @model_validator(mode="after")
    def _openai_has_a_model(self) -> LlmSettings:
        if self.backend == "openai" and self.model is None:
            raise ValueError("backend openai needs a model: set llm.model")
        return self

    def shaping(self) -> dict[str, Any]:
        """The settings that shape the answers."""
        if self.backend == "extractive":
            return {"backend": self.backend}
        return {"backend": self.backend, "model": self.model, "temperature": self.temperature}
