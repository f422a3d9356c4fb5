"""The flows of `infra/prefect.yaml`, importable wherever the pipeline is installed."""

from __future__ import annotations

import indexmill_pipeline  # noqa: F401 - finds the flows
from flows.deployed import backfill, refresh

__all__ = ["backfill", "refresh"]
