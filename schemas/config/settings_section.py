"""The base class and validators of the configuration's sections."""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from indexmill.mistakes import shown_value

_KEY = re.compile(r"(^|[_-])(api[_-]?)?(key|secret|token|password)$", re.IGNORECASE)


class Settings(BaseModel):
    """A section of the configuration. Rejects a setting that looks like an API key, and says where keys belong."""

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


def written(pattern: str, expected: str, *, shown: bool = True) -> AfterValidator:
    """Return a validator that strings match a pattern. expected: the pattern in words. shown: errors quote it."""

    def checked(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}" + (f", found {shown_value(value)}" if shown else ""))
        return value

    return AfterValidator(checked)


def looks_like_a_path(name: str) -> bool:
    """Return True if a model's name looks like a path. Hub names may, too, so check whether the path exists."""
    return os.sep in name or name.startswith((".", "~"))
