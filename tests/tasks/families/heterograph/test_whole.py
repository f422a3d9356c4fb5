"""All steps after one another, as stages will run them: the same for any order of rows and any hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow.compute as pc

from indexmill.families.heterograph.search import Heterograph
from tasks.families.heterograph.graph import graph_of_tables
from tests.tasks.families.heterograph.whole import corpus, digest, whole


def test_every_kind_of_node_and_edge_is_made() -> None:
    graph, _ = whole(corpus())
    counts = graph.counts()
    assert all(count for kind, count in counts.items() if kind not in ("same_as", "subject")), counts
    assert counts["T"] == counts["S"] / 3 == 60
    assert counts["H"] == counts["O"] == counts["overview"]
    assert counts["A"] == counts["attribute"] < counts["N"] / 2
    assert counts["edges"] == len(graph.links.indices) / 2


def test_the_order_of_rows_leaves_no_trace() -> None:
    assert digest(corpus().shuffled(1)) == digest(corpus())


def test_two_runs_under_different_hash_seeds_are_identical() -> None:
    found = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": seed, "POLARS_MAX_THREADS": seed}
        command = [sys.executable, "-m", "tests.tasks.families.heterograph.whole"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(run.stdout.strip())
    assert found == {digest(corpus())}


def test_a_question_reaches_texts_over_the_units_that_name_what_it_names() -> None:
    nodes, edges = whole(corpus())[0].tables()
    graph = graph_of_tables(nodes, edges.filter(pc.not_equal(edges["kind"], "near")))
    reader = Heterograph(graph.offsets, graph.links)
    entity = graph.rows("N").start
    (found,) = reader.retrieve([np.array([entity])], [np.array([], dtype=np.int64)])
    own = graph.of("mention")
    named = set(own[own[:, 1] == entity, 0].tolist())
    said = {text for text, unit in graph.of("text").tolist() if unit in named}
    best = [row for row, kind in zip(found.rows.tolist(), reader.kinds(found.rows), strict=True) if kind == "T"]
    assert set(best) <= said
    assert len(best) == min(len(said), 10) > 0
