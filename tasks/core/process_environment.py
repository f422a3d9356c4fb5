"""What the processes of a run see of the environment: a secret only where it is needed.

Nothing that a run starts needs what Prefect is told, and only work of stages that ask a language model needs keys. What
reads files of others is given no variable that it has no use for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a process is started by these before anything else is imported
    from schemas.config import LlmSettings

__all__ = ["reader_environment", "secret_variables", "without", "worker_environment"]

_OF_A_READER = re.compile(
    r"PATH|HOME|USER|LOGNAME|TZ|TMPDIR|TEMP|TMP|LANG|LANGUAGE|LC_[A-Z]+|XDG_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|CONDA_PREFIX|PYTHON\w*|COVERAGE_\w+"
    r"|(OMP|OPENBLAS|MKL)_NUM_THREADS|MALLOC_\w+|ARROW_\w+"
)
"""Where Python and its libraries find things, and how they work."""

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


def reader_environment() -> dict[str, str]:
    """The environment of a process that reads corpus files: of this one's, only what Python and its libraries need."""
    secret = secret_variables()
    return {name: value for name, value in os.environ.items() if _OF_A_READER.fullmatch(name) and name not in secret}


def without(names: Collection[str]) -> dict[str, str]:
    """The environment of this process without some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}


def worker_environment(llm: LlmSettings | None) -> dict[str, str]:
    """The environment of workers, or of a process that tries documents. llm: None where no model is asked."""
    if llm is None or llm.backend == "extractive":
        return without(secret_variables(llm))
    return without([name for name in os.environ if name.startswith("PREFECT_")])
