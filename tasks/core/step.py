"""The steps of a run: the nodes of its graph, as people see them in Prefect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.config import Configuration
from tasks.core.stage import Stage

__all__ = ["Step"]


def _always(_: Configuration) -> bool:
    return True


@dataclass(frozen=True)
class Step:
    """A node of the run's graph: it drives one stage or several, once the steps that it needs have ended.

    drive: runs it, given a Run. stages: those that it drives. after: steps that it follows for another reason than that
    it reads what they make. enabled: False where the settings leave it out; steps that need it do not wait for it then.
    of_shards: it makes a part of each shard, so that a backfill runs it wave by wave. needs: the steps that it waits
    for, which `tasks.core.order` derives.
    """

    name: str
    drive: Callable[[Any], None]
    stages: tuple[Stage[Any], ...] = ()
    after: tuple[str, ...] = ()
    enabled: Callable[[Configuration], bool] = _always
    of_shards: bool = False
    needs: tuple[str, ...] = ()
