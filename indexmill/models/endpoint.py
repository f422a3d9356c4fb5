"""Validated settings of a model endpoint that readers call: a section's settings without those of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from indexmill.errors import ConfigurationError
from indexmill.mistakes import mistakes
from indexmill.models.chat import Structured


@dataclass(frozen=True)
class Endpoint:
    """A model and its endpoint, with the settings of ``LlmOptions``; None means a setting's default."""

    model: Annotated[str, Field(min_length=1)]
    base_url: str | None = None
    api_key_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] = "OPENAI_API_KEY"
    api_key_file: Path | None = None
    token_provider: str | None = None
    ca_file: Path | None = None
    proxy: str | None = None
    structured: Structured = "auto"
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0

    @property
    def backend(self) -> str:
        """The protocol of the endpoint."""
        return "openai"

    @classmethod
    def of(cls, settings: Mapping[str, Any], section: str = "llm") -> Endpoint:
        """Read an endpoint from settings, ignoring settings that an endpoint does not have.

        section: the section's name, for messages. Raises ConfigurationError for an invalid value.
        """
        names = {field.name for field in fields(cls)}
        adapter = TypeAdapter(cls)
        try:
            return adapter.validate_python({name: settings[name] for name in settings if name in names})
        except ValidationError as error:
            raise ConfigurationError("; ".join(mistakes(error, adapter.json_schema(), section))) from None
