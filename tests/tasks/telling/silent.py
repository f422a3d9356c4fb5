"""A stage that asks no language model."""

from __future__ import annotations

from tasks.core.stage import Stage
from tests.tasks.telling import DOCUMENTS_ALONE, tell

STAGE = Stage("silent", 1, tell, inputs=DOCUMENTS_ALONE)
