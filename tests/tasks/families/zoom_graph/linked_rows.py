"""Rows that resemble each other in groups, for tests of links."""

from __future__ import annotations

import numpy as np

from indexmill.retrieve.grid import on_grid
from tasks.families.zoom_graph.choose import LinkedRows


def vectors(count: int, seed: int, dimension: int = 24) -> np.ndarray:
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((count // 8 + 1, dimension))
    made = centres[draw.integers(0, len(centres), count)] + 0.8 * draw.standard_normal((count, dimension))
    return on_grid((made / np.linalg.norm(made, axis=1)[:, None]).astype(np.float32)).astype(np.int16)


def names(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).integers(0, 1 << 64, count, dtype=np.uint64)


def rows(count: int, seed: int, dimension: int = 24) -> LinkedRows:
    return LinkedRows.of(names(count, seed), vectors(count, seed, dimension))
