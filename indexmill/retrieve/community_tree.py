"""What a question is given of a tree of communities (ArchRAG, section 3.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

__all__ = ["CommunityTreeParameters"]


@dataclass(frozen=True, slots=True)
class CommunityTreeParameters:
    """The settings of retrieval, of the snapshot or of one call. k_level: nodes that are taken from each level."""

    k_level: Annotated[int, Field(ge=1)] = 5
