"""The inputs of a build or a plan."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.config import Configuration
from storage.protocol import Store
from tasks.core.executor import Executor
from tasks.core.part_runner import Parent
from tasks.core.report import Progress


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """The store, the settings, the workers and the options of a run.

    cold: whether to make every part again. allow_shrink, allow_rights_change: whether to disable the gate for the
    corpus's size, or for access. full: whether to read all files, and all rows of sources with a cursor, as in a first
    build. retry_refused: whether to make parts with fallbacks again.
    """

    store: Store
    configuration: Configuration
    executor: Executor
    run_id: str
    parent: Parent | None = None
    progress: Progress
    cold: bool = False
    allow_shrink: bool = False
    allow_rights_change: bool = False
    full: bool = False
    retry_refused: bool = False
