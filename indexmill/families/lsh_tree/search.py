"""A tree of summaries over passages, and what a question is given of it (EraRAG, section III.D, Algorithm 2).

The search is collapsed: passages and summaries of every layer are one flat set, and the k nearest to the question are
the candidates. Two patterns fix how many of each kind there are, p the ratio:

    detailed      ceil(p k) passages,   then  k - ceil(p k) summaries
    summarised    ceil(p k) summaries,  then  k - ceil(p k) passages

The paper writes pk and k - pk; the favoured kind gets the fraction. Where one kind has too few, the other fills up.

A token budget is spent on the candidates in turn, the nearest first, under a pattern those of the favoured kind before
the others. One that does not fit into what is left of it is passed over and the next is tried: one long text would
otherwise keep out the shorter ones that follow, or everything where it comes first. Nothing beyond the k candidates
takes its place, so a budget only leaves out, and does not reach for far texts because they are short.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.retrieve.matrices import Rows

__all__ = ["Nodes", "candidates"]


class Nodes(NamedTuple):
    """Nodes of the tree in some order, and how near each is to the question."""

    rows: Rows
    scores: npt.NDArray[np.float32]


def candidates(passages: Nodes, summaries: Nodes, k: int, setting: LshTreeParameters) -> Nodes:
    """The k candidates in the order in which a budget is spent on them.

    passages, summaries: the k nearest of each kind, best first; fewer where there are fewer.
    """
    if setting.pattern == "collapsed":
        merged = _joined(passages, summaries)
        order = np.argsort(-merged.scores, kind="stable")[:k]  # of equal ones passages first, each kind as it stands
        return Nodes(merged.rows[order], merged.scores[order])
    detailed = setting.pattern == "detailed"
    favoured, others = (passages, summaries) if detailed else (summaries, passages)
    share = math.ceil(round(setting.ratio * k, 9))  # 0.7 * 10 is a little more than 7
    share = max(min(share, len(favoured.rows)), min(k - len(others.rows), len(favoured.rows)))
    rest = k - share
    return _joined(
        Nodes(favoured.rows[:share], favoured.scores[:share]), Nodes(others.rows[:rest], others.scores[:rest])
    )


def _joined(first: Nodes, second: Nodes) -> Nodes:
    return Nodes(np.concatenate([first.rows, second.rows]), np.concatenate([first.scores, second.scores]))
