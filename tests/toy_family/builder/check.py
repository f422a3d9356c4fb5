"""The checks of incipits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.families.incipits.schema import WORDS
from tasks.families.incipits.tables import INCIPITS

from tasks.core.checks import Check, refuse_if
from tasks.core.stage import Input, Part


def _check_shard(part: Part[Any], counts: Mapping[str, int]) -> dict[str, int]:
    rows = part.rows_of("incipits")
    refuse_if(rows != counts["passages"], f"incipits/{part.job.shard}: {rows} rows for {counts['passages']} passages")
    return {"incipits": rows}


def _check_whole(part: Part[Any], counts: Mapping[str, int]) -> dict[str, int]:
    most = int(part.pack("incipits/words")["passages"].max(initial=0))
    refuse_if(most > counts["incipits"], f"incipits: {most} of {counts['incipits']} passages begin with one word")
    return {}


CHECKS = (
    Check((Input("incipits", INCIPITS),), _check_shard),
    Check((Input("incipits/words", WORDS),), _check_whole, whole=True),
)
