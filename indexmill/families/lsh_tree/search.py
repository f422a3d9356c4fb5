"""Retrieval from a tree of summaries over passages (EraRAG, section III.D, Algorithm 2).

The search is collapsed: passages and summaries of every layer are one flat set, and the k nearest to the question are
the candidates. Two patterns fix how many of each kind there are, with the ratio p:

    detailed      ceil(p k) passages,   then  k - ceil(p k) summaries
    summarised    ceil(p k) summaries,  then  k - ceil(p k) passages

The paper writes pk and k - pk; we round up for the favoured kind. If one kind has too few, the other kind fills up.

A token budget is spent on the candidates in order: nearest first, and with a pattern the favoured kind first. A
candidate that does not fit into the remaining budget is skipped and the next is tried; otherwise one long text would
exclude all shorter texts after it. Skipped candidates are not replaced by nodes beyond the k nearest, so that a budget
never adds distant texts because they are short.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.retrieve.matrices import Rows


class ScoredNodes(NamedTuple):
    """Nodes of the tree in some order, and their similarities to the question."""

    rows: Rows
    scores: npt.NDArray[np.float32]

    def at(self, places: Rows | slice | list[int]) -> ScoredNodes:
        """Select the nodes at some positions."""
        return ScoredNodes(self.rows[places], self.scores[places])


def candidates(passages: ScoredNodes, summaries: ScoredNodes, k: int, setting: LshTreeParameters) -> ScoredNodes:
    """Choose k candidates, in the order in which a budget is spent. passages, summaries: the k nearest, best first."""
    if setting.pattern == "collapsed":
        merged = _joined(passages, summaries)
        order = np.argsort(-merged.scores, kind="stable")[:k]  # on ties passages first
        return merged.at(order)
    detailed = setting.pattern == "detailed"
    favoured, others = (passages, summaries) if detailed else (summaries, passages)
    share = math.ceil(round(setting.ratio * k, 9))  # 0.7 * 10 is a little more than 7
    share = max(min(share, len(favoured.rows)), min(k - len(others.rows), len(favoured.rows)))
    return _joined(favoured.at(slice(share)), others.at(slice(k - share)))


def _joined(first: ScoredNodes, second: ScoredNodes) -> ScoredNodes:
    return ScoredNodes(np.concatenate([first.rows, second.rows]), np.concatenate([first.scores, second.scores]))
