"""Options that several families take."""

from __future__ import annotations

from indexmill.families.base import Option

__all__ = ["TOKEN_BUDGET"]

TOKEN_BUDGET = Option("token_budget", "Hits of T tokens at most; what does not fit is left out.", metavar="T", least=1)
