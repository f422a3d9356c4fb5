"""Places for the nodes of a graph: forces between all nodes and along edges (ForceAtlas2, Jacomy et al. 2014).

Nodes repel each other by the product of their degrees (plus one) over their distance, edges attract by the distance,
and gravity keeps what is not connected near. In the end distances from the middle are evened out, so that
a group that lies apart leaves the others their room. As the time grows with the square of the nodes, those with the
most edges find their places first, then all others move a little from the middle of their neighbours.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.float64]
Edges = npt.NDArray[np.int64]

_STAGES = ((500, 200, 1.0), (1_000, 60, 0.3), (1 << 62, 50, 0.2))
"""The nodes of each stage at most, those with the most edges first; how many steps they move; how far at first."""

_BLOCK = 64
"""Rows of distances that are in memory at once. So few stay in a processor's cache and on one thread of BLAS: products
this thin take four times as long on two, and a thread's sums do not depend on the machine's number of them."""

_GRAVITY = 0.02
"""Of a node of the mass 1 at the distance 1: it grows with both."""

_EVEN = 0.6
"""How much of a node's distance from the middle is by its rank, which fills a disc evenly; the rest is by its place."""

_GOLDEN = math.pi * (3 - math.sqrt(5))


def laid_out(count: int, edges: Edges) -> Places:
    """A place for each of ``count`` nodes: ``(count, 2)``, within -1 and 1, the same for the same graph.

    edges: ``(n_edges, 2)``, positions of nodes.
    """
    if not count:
        return np.zeros((0, 2))
    ends = edges.reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    degrees = np.bincount(ends.ravel(), minlength=count)
    mass = degrees.astype(np.float32) + 1
    order = np.argsort(-degrees, kind="stable")
    placed = np.zeros(count, dtype=np.bool_)
    places = np.zeros((count, 2), dtype=np.float32)
    for most, steps, heat in _STAGES:
        chosen = np.sort(order[:most])
        fresh = ~placed
        fresh[order[most:]] = False
        places[fresh] = _beside(places, ends, placed, fresh, count) if placed.any() else _spiral(int(fresh.sum()))
        placed[chosen] = True
        number = np.full(count, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        inner = number[ends[placed[ends].all(axis=1)]]
        places[chosen] = _moved(places[chosen], inner, mass[chosen], steps, heat)
        if len(chosen) == count:
            break
    return _scaled(places)


def _spiral(count: int) -> npt.NDArray[np.float32]:
    """Places on a spiral of even density, the first in the middle: where every layout begins."""
    order = np.arange(count, dtype=np.float64)
    radius = 10 * np.sqrt(order + 0.5)
    return np.stack([radius * np.cos(order * _GOLDEN), radius * np.sin(order * _GOLDEN)], axis=1).astype(np.float32)


def _beside(
    places: npt.NDArray[np.float32],
    ends: Edges,
    placed: npt.NDArray[np.bool_],
    fresh: npt.NDArray[np.bool_],
    count: int,
) -> npt.NDArray[np.float32]:
    """Places for fresh nodes: the middle of their placed neighbours, and a step of their own away from it."""
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[fresh[both[:, 0]] & placed[both[:, 1]]]
    known = np.bincount(both[:, 0], minlength=count)
    middle: Places = np.stack([np.bincount(both[:, 0], places[both[:, 1], axis], count) for axis in (0, 1)], axis=1)
    middle = middle / np.maximum(known, 1)[:, None].astype(np.float64)
    middle[known == 0] = 2 * places[placed].max()
    turn = np.arange(count) * _GOLDEN
    step = 3 + np.arange(count) % 7
    return (middle + np.stack([np.cos(turn), np.sin(turn)], axis=1) * step[:, None])[fresh].astype(np.float32)


def _moved(
    places: npt.NDArray[np.float32], ends: Edges, mass: npt.NDArray[np.float32], steps: int, heat: float
) -> npt.NDArray[np.float32]:
    """The places after some steps; heat: how far a node moves on the first one, as a share of the usual."""
    count = len(places)
    if count < 2:
        return places
    before = np.zeros_like(places)
    speed = np.full(count, heat, dtype=np.float32)
    span = 10 * math.sqrt(count)
    for step in range(steps):
        force = _repulsion(places, mass)
        pull = places[ends[:, 1]] - places[ends[:, 0]]
        for axis in (0, 1):
            force[:, axis] += np.bincount(ends[:, 0], pull[:, axis], count).astype(np.float32)
            force[:, axis] -= np.bincount(ends[:, 1], pull[:, axis], count).astype(np.float32)
        force -= _GRAVITY * mass[:, None] * places
        force /= mass[:, None]
        # A node that swings back and forth slows down, one that goes on speeds up: "swinging" and "traction" there.
        along = (force * before).sum(axis=1)
        speed = np.clip(np.where(along < 0, speed * 0.6, speed * 1.15), 0.01, 2.0).astype(np.float32)
        length = np.maximum(np.linalg.norm(force, axis=1), 1e-6)
        limit = span * 0.1 * (1 - step / steps) * heat + 0.01
        stride = np.minimum(speed, limit / length)
        places = places + force * stride[:, None]
        before = force
    return places


def _repulsion(places: npt.NDArray[np.float32], mass: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The force of all nodes on each: products of masses over distances, as one matrix product a block."""
    strength = np.float32(40.0)
    squares = (places * places).sum(axis=1)
    weighed = np.concatenate([places * mass[:, None], mass[:, None]], axis=1)
    force = np.empty_like(places)
    for low in range(0, len(places), _BLOCK):
        own = places[low : low + _BLOCK]
        near = own @ places.T
        near *= -2
        near += squares
        near += squares[low : low + _BLOCK, None]
        np.maximum(near, 1.0, out=near)
        np.reciprocal(near, out=near)
        summed = near @ weighed
        force[low : low + _BLOCK] = own * summed[:, 2:] - summed[:, :2]
    force *= strength * mass[:, None]
    return force


def _scaled(places: npt.NDArray[np.float32]) -> Places:
    """Places around 0 and within -1 and 1, in steps of 0.0001."""
    found = places.astype(np.float64)
    found -= np.median(found, axis=0)
    radius = np.linalg.norm(found, axis=1)
    reach = np.log1p(radius / (float(np.median(radius)) or 1.0))
    order = radius.argsort(kind="stable").argsort(kind="stable")
    even = np.sqrt((order + 1) / len(radius))
    wanted = (1 - _EVEN) * reach / (float(reach.max()) or 1.0) + _EVEN * even
    found *= (wanted / np.maximum(radius, 1e-9))[:, None]
    found -= (found.min(axis=0) + found.max(axis=0)) / 2
    largest = float(np.abs(found).max()) or 1.0
    return np.asarray(np.round(found / largest, 4) + 0.0)
