"""Positions of a graph's nodes by forces between all nodes and along edges (ForceAtlas2, Jacomy et al. 2014).

Nodes repel each other by the product of their degrees (plus one) divided by their distance, edges attract in proportion
to the distance, and gravity keeps disconnected nodes near. Finally, distances from the centre are evened out, so that a
distant group leaves room for the others. The time grows with the square of the number of nodes, so the nodes with the
most edges are placed first; then the others start at the centre of their neighbours and move a little.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.float64]
Edges = npt.NDArray[np.int64]

_STAGES = ((500, 200, 1.0), (1_000, 60, 0.3), (1 << 62, 50, 0.2))
"""For each stage: the maximum nodes, by descending degree; the number of steps; the share of the usual first stride."""

_BLOCK = 64
"""Rows of distances in memory at once. So few stay in a processor's cache and on one thread of BLAS: products this thin
take four times as long on two threads, and sums on one thread do not depend on the machine's number of them."""

_GRAVITY = 0.02  # the gravity on a node of mass 1 at distance 1; it grows with both

_EVEN = 0.6
"""The share of a node's distance from the middle by rank, which fills a disc evenly; the rest is by its position."""

_GOLDEN = math.pi * (3 - math.sqrt(5))


def node_positions(count: int, edges: Edges) -> Positions:
    """Return positions of nodes, ``(count, 2)`` from -1 to 1; deterministic. edges: ``(n_edges, 2)`` node numbers."""
    if not count:
        return np.zeros((0, 2))
    ends = edges.reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    degrees = np.bincount(ends.ravel(), minlength=count)
    mass = degrees.astype(np.float32) + 1
    order = np.argsort(-degrees, kind="stable")
    placed = np.zeros(count, dtype=np.bool_)
    positions = np.zeros((count, 2), dtype=np.float32)
    for most, steps, heat in _STAGES:
        chosen = np.sort(order[:most])
        fresh = ~placed
        fresh[order[most:]] = False
        positions[fresh] = _beside(positions, ends, placed, fresh, count) if placed.any() else _spiral(int(fresh.sum()))
        placed[chosen] = True
        number = np.full(count, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        inner = number[ends[placed[ends].all(axis=1)]]
        positions[chosen] = _moved(positions[chosen], inner, mass[chosen], steps, heat)
        if len(chosen) == count:
            break
    return _scaled(positions)


def _spiral(count: int) -> npt.NDArray[np.float32]:
    """Place nodes on a spiral of even density, with the first in the centre."""
    order = np.arange(count, dtype=np.float64)
    radius = 10 * np.sqrt(order + 0.5)
    return np.stack([radius * np.cos(order * _GOLDEN), radius * np.sin(order * _GOLDEN)], axis=1).astype(np.float32)


def _beside(
    positions: npt.NDArray[np.float32],
    ends: Edges,
    placed: npt.NDArray[np.bool_],
    fresh: npt.NDArray[np.bool_],
    count: int,
) -> npt.NDArray[np.float32]:
    """Place new nodes a small step away from the centre of their placed neighbours."""
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[fresh[both[:, 0]] & placed[both[:, 1]]]
    neighbours = np.bincount(both[:, 0], minlength=count)
    middle: Positions = np.stack(
        [np.bincount(both[:, 0], positions[both[:, 1], axis], count) for axis in (0, 1)], axis=1
    )
    middle = middle / np.maximum(neighbours, 1)[:, None].astype(np.float64)
    middle[neighbours == 0] = 2 * positions[placed].max()
    turn = np.arange(count) * _GOLDEN
    step = 3 + np.arange(count) % 7
    return (middle + np.stack([np.cos(turn), np.sin(turn)], axis=1) * step[:, None])[fresh].astype(np.float32)


def _moved(
    positions: npt.NDArray[np.float32], ends: Edges, mass: npt.NDArray[np.float32], steps: int, heat: float
) -> npt.NDArray[np.float32]:
    """Move the nodes for some steps. heat: the factor of their initial speed and of their maximum stride."""
    count = len(positions)
    if count < 2:
        return positions
    before = np.zeros_like(positions)
    speed = np.full(count, heat, dtype=np.float32)
    span = 10 * math.sqrt(count)
    for step in range(steps):
        force = _repulsion(positions, mass)
        pull = positions[ends[:, 1]] - positions[ends[:, 0]]
        for axis in (0, 1):
            force[:, axis] += np.bincount(ends[:, 0], pull[:, axis], count).astype(np.float32)
            force[:, axis] -= np.bincount(ends[:, 1], pull[:, axis], count).astype(np.float32)
        force -= _GRAVITY * mass[:, None] * positions
        force /= mass[:, None]
        # A node that swings back and forth slows down, others speed up ("swinging" and "traction" in the paper).
        along = (force * before).sum(axis=1)
        speed = np.clip(np.where(along < 0, speed * 0.6, speed * 1.15), 0.01, 2.0).astype(np.float32)
        length = np.maximum(np.linalg.norm(force, axis=1), 1e-6)
        limit = span * 0.1 * (1 - step / steps) * heat + 0.01
        stride = np.minimum(speed, limit / length)
        positions = positions + force * stride[:, None]
        before = force
    return positions


def _repulsion(positions: npt.NDArray[np.float32], mass: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the force of all nodes on each node: products of masses over distances, one matrix product per block."""
    strength = np.float32(40.0)
    squares = (positions * positions).sum(axis=1)
    weighed = np.concatenate([positions * mass[:, None], mass[:, None]], axis=1)
    force = np.empty_like(positions)
    for low in range(0, len(positions), _BLOCK):
        block = positions[low : low + _BLOCK]
        near = block @ positions.T
        near *= -2
        near += squares
        near += squares[low : low + _BLOCK, None]
        np.maximum(near, 1.0, out=near)
        np.reciprocal(near, out=near)
        summed = near @ weighed
        force[low : low + _BLOCK] = block * summed[:, 2:] - summed[:, :2]
    force *= strength * mass[:, None]
    return force


def _scaled(positions: npt.NDArray[np.float32]) -> Positions:
    """Scale positions around 0 to within -1 and 1, in steps of 0.0001."""
    scaled = positions.astype(np.float64)
    scaled -= np.median(scaled, axis=0)
    radius = np.linalg.norm(scaled, axis=1)
    reach = np.log1p(radius / (float(np.median(radius)) or 1.0))
    order = radius.argsort(kind="stable").argsort(kind="stable")
    even = np.sqrt((order + 1) / len(radius))
    radii = (1 - _EVEN) * reach / (float(reach.max()) or 1.0) + _EVEN * even
    scaled *= (radii / np.maximum(radius, 1e-9))[:, None]
    scaled -= (scaled.min(axis=0) + scaled.max(axis=0)) / 2
    largest = float(np.abs(scaled).max()) or 1.0
    return np.asarray(np.round(scaled / largest, 4) + 0.0)
