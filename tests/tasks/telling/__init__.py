"""Stages that fail at each document, and tell which variables their process has."""

from __future__ import annotations

import os

from schemas.tables import DOCUMENTS
from tasks.core.stage import Input, Outputs, Part

DOCUMENTS_ALONE = (Input("documents", DOCUMENTS),)

NAMES = ("HARMLESS", "LLM_CRED", "OPENAI_API_KEY", "PREFECT_API_AUTH_STRING")


def tell(part: Part) -> Outputs:
    """Raise ValueError with the names of those variables that are there, unless there is no document."""
    if part.table("documents").num_rows:
        raise ValueError(" ".join(name for name in NAMES if name in os.environ))
    return Outputs()
