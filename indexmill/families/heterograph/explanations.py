"""Explanations of a walk on a heterograph: the score that neighbours passed to a node in the last step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexmill.families.heterograph.search import Entries, Heterograph, WalkSteps, shares
from indexmill.retrieve.columns import distinct, first_of_each
from indexmill.retrieve.matrices import Rows, Scores


class Through(NamedTuple):
    """The flows into the given nodes, sorted by node and descending amount, ties by row of the sender.

    places: each flow's node, as its position among these nodes, ascending. senders: rows. amounts: what each flow adds
    to the node's score.
    """

    places: Rows
    senders: Rows
    amounts: Scores


def through(
    graph: Heterograph,
    starts: Sequence[Entries],
    nodes: Sequence[Rows],
    how: WalkSteps,
    most: int,
) -> Iterator[Through]:
    """Yield, for each question, the largest flows into some nodes, from at most ``most`` neighbours of each.

    starts, how: see ``Heterograph.walk``. A node's score is the sum of the flows from all its neighbours, plus
    ``restart`` times its share if it is an entry.
    """
    none = np.empty(0, dtype=np.int64)
    if not how.steps:
        yield from [Through(none, none, np.empty(0))] * len(starts)
        return
    before = (scores for _, tile in graph.tiles(starts, how._replace(steps=how.steps - 1)) for scores in tile)
    for scores, rows in zip(before, nodes, strict=True):
        places, senders, kinds = graph.links_of(rows, how)
        sends = scores[senders] > 0
        if how.allowed is not None:
            sends &= how.allowed[rows][places]
        places, senders = places[sends], senders[sends]
        each = distinct(senders)
        owners, _, sender_kinds = graph.links_of(each, how)
        along = shares(owners, sender_kinds, len(each))
        column = 0 if kinds is None else kinds[sends]
        amounts = (1 - how.restart) * scores[senders] * along[each.searchsorted(senders), column]
        best = first_of_each(places, amounts, most)
        yield Through(places[best], senders[best], amounts[best])
