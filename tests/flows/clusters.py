"""Dask clusters of tests, of which several run at once on a machine."""

from __future__ import annotations

ANY_PORT = "127.0.0.1:0"
"""Where a scheduler's HTTP server listens: without a `dashboard_address` Dask takes port 8787; two warn."""
