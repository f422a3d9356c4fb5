"""What the processes of a run see of the environment: a secret only where it is needed.

Nothing that a run starts needs what Prefect is told, and only the workers of a run whose stages ask a language model
need keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a process is started by these before anything else is imported
    from schemas.config import LlmSettings

__all__ = ["secret_variables", "without", "worker_environment"]

_SECRET = re.compile(r"(^|_)(API_?)?(KEY|SECRET|TOKEN|PASSWORD)$", re.IGNORECASE)


def secret_variables(llm: LlmSettings | None = None) -> frozenset[str]:
    """The variables of this process's environment that hold, or may hold, a secret.

    These are the one that `llm.api_key_env` names, those whose names end as those of keys do, and Prefect's, some of
    which hold passwords.
    """
    named = set() if llm is None else {llm.api_key_env}
    return frozenset(
        name for name in os.environ if name in named or name.startswith("PREFECT_") or _SECRET.search(name)
    )


def without(names: Collection[str]) -> dict[str, str]:
    """The environment of this process without some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}


def worker_environment(llm: LlmSettings | None) -> dict[str, str]:
    """The environment of the workers of a run. llm: None where no stage asks a language model."""
    if llm is None or llm.backend == "extractive":
        return without(secret_variables(llm))
    return without([name for name in os.environ if name.startswith("PREFECT_")])
