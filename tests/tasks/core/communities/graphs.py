"""Small graphs that the tests of communities share."""

from __future__ import annotations

import numpy as np

from tasks.core.communities.graph import Graph, Weighted, graph_of

DIMENSION = 16


def vector_of(name: str, cluster: int | None = None) -> np.ndarray:
    """A unit vector that is a function of the name, near the centre of its cluster if it has one."""
    number = int.from_bytes(name.encode(), "big") % 2**31
    vector = np.random.default_rng(number).standard_normal(DIMENSION)
    if cluster is not None:
        vector = 0.5 * vector + 2 * np.random.default_rng(10**6 + cluster).standard_normal(DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def vectors_of(names: list[str]) -> np.ndarray:
    """The vectors (n, d) of names."""
    return np.array([vector_of(name) for name in names], dtype=np.float32).reshape(len(names), DIMENSION)


def weighted_of(size: int, *links: tuple[int, int] | tuple[int, int, float]) -> Weighted:
    """A weighted graph of links (a, b) or (a, b, weight) with a < b."""
    ordered = sorted((*link, 1.0)[:3] for link in links)
    edges = np.array([link[:2] for link in ordered], dtype=np.int64).reshape(-1, 2)
    return Weighted(size, edges, np.array([link[2] for link in ordered], dtype=np.float64))


def clique(*nodes: int) -> list[tuple[int, int]]:
    return [(one, other) for one in nodes for other in nodes if one < other]


def random_graph(size: int, links: int, seed: int) -> Weighted:
    generator = np.random.default_rng(seed)
    pairs = {(min(a, b), max(a, b)) for a, b in generator.integers(size, size=(links, 2)).tolist() if a != b}
    return weighted_of(size, *((a, b, float(generator.integers(1, 100)) / 100) for a, b in sorted(pairs)))


def two_triangles() -> Weighted:
    """0-1-2 and 3-4-5, joined by 2-3."""
    return weighted_of(6, *clique(0, 1, 2), *clique(3, 4, 5), (2, 3))


def planted(names: list[str], groups: int, *, seed: int = 0, inside: int = 5, across: int = 1) -> Graph:
    """Nodes in groups by their names: each has about `inside` links in its group and `across` to anywhere."""
    group = np.array([int(name) % groups for name in names])
    generator = np.random.default_rng(seed)
    links = []
    for row, name in enumerate(names):
        own = np.random.default_rng([seed, int(name)])
        same = np.flatnonzero(group == group[row])
        links += [(row, int(to)) for to in same[own.integers(len(same), size=inside)]]
        links += [(row, int(to)) for to in generator.integers(len(names), size=across)]
    vectors = np.stack([vector_of(name, int(name) % groups) for name in names])
    return graph_of(names, vectors, np.array(links, dtype=np.int64))
