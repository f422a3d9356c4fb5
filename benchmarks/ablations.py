"""Measure what each heuristic contributes: every method without one of its parts, over all sets and variants.

    python -m benchmarks.ablations DATA WORK --stores DIR [--sets NAMES] [--methods NAMES] [--step N]

DATA, WORK, NAMES and DIR are as for `benchmarks.protocol`. Nothing is built: a retrieval setting switches each part
off (`LEFT_OUT`). The first line of a method is its unchanged recall at 5 and 10 documents. Each line after it is the
loss (-) or gain (+) without one part: the change in the mean of both recalls, over the even and over the odd questions.
A star marks a 95 % interval over all questions that excludes zero (`benchmarks.bootstrap`). The last column counts the
sets where the method is clearly worse and clearly better without the part. A part that helps on no set is useless.

`--step 4` uses a quarter of the questions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import indexmill
from benchmarks.bootstrap import MeanDifference, difference
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.protocol import DEPTHS, names
from benchmarks.sets import SETS
from indexmill.evaluate.recall import Question, evaluate, read_questions
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.snapshot import Snapshot

Settings = Mapping[str, object]

LIKE_QUERIES = RetrievalOptions(principals=UNRESTRICTED, encode_names=True)

LEFT_OUT: Mapping[str, Mapping[str, Settings]] = {
    "bm25": {
        "titles as a field": {"title": 0.0},
        "leaving out common words": {"common_words": True},
    },
    "dense": {"titles": {"title": 0.0}},
    "tri_graph": {
        "rarity": {"rarity": False},
        "residual query, next hop": {"bridge_residual": 0.0},
        "residual query, ranking": {"rank_residual": 0.0},
        "agreement": {"agreement": 0.0},
        "relative similarity": {"relative": False, "activation_threshold": 0.3},
        "nearest names": {"nearest_name": 2.0},
        "bound on wide entities": {"widest_entity": 100_000},
        "nearest passages": {"dense_passages": 1},
        "activation": {"activation": False},
        "the walk": {"pagerank": False},
    },
    "zoom_graph": {
        "weight of the title": {"title_weight": 1.0},
        "weight of the question's names": {"question_weight": 1.0},
        "look-ahead": {"look_ahead": 2.0},
        "residual query": {"open_share": 0.0},
        "agreement": {"agreement": 0.0},
        "nearest names": {"nearest_name": 2.0},
        "bound on wide entities": {"widest_entity": 100_000},
    },
    "lsh_tree": {
        "second round": {"carried": 0.0},
        "less weight of the first round": {"first_round": 1.0},
    },
    "community_tree": {
        "names": {"name_weight": 0.0, "hop_weight": 0.0},
        "hop": {"hop_weight": 0.0},
        "weight of subjects": {"mention_weight": 1.0},
        "spread over passages": {"spread": 0.0},
        "communities": {"community_weight": 0.0},
        "similarity": {"similarity_weight": 0.0},
    },
    "heterograph": {
        "bridges": {"bridge": 1.0},
        "power of bridges": {"bridge_power": 1.0},
        "residual query, bridges": {"bridge_residual": 0.0},
        "residual query, ranking": {"rank_residual": 0.0},
        "agreement": {"agreement": 0.0},
        "entries by vector": {"entry_weight": 0.0},
        "texts by words and vectors": {"text_weight": 0.0},
        "the same where nothing is named": {"unnamed_text_weight": 0.0},
    },
    "fused": {
        "coverage": {"known": 0.0, "doubt": 0.0},
        "agreement": {"agreed": 0.0, "doubt": 1.0},
        "tri_graph": {"tri_graph": 0.0},
        "zoom_graph": {"zoom_graph": 0.0},
        "lsh_tree": {"lsh_tree": 0.0},
        "community_tree": {"community_tree": 0.0},
        "dense": {"dense": 0.0},
        "bm25": {"bm25": 0.0},
        "second passages": {"second": 0.0},
    },
}
"""By method and part: the settings that switch the part off."""

Recalls = npt.NDArray[np.float64]
"""``(n_questions, n_depths)``: the recall of each question at each depth of the protocol."""


class RecallChange(NamedTuple):
    """The change in mean recall, over all depths, when a part is switched off: for even, odd and all questions."""

    even: float
    odd: float
    whole: MeanDifference

    @classmethod
    def of(cls, without: Recalls, whole: Recalls) -> RecallChange:
        """Compare recalls without a part and unchanged recalls, both ``(n_questions, n_depths)`` in the same order."""
        means, others = without.mean(axis=1), whole.mean(axis=1)
        each = means - others
        return cls(float(each[::2].mean()), float(each[1::2].mean()), difference(means.tolist(), others.tolist()))

    def __str__(self) -> str:
        return f"{self.even:+.3f} / {self.odd:+.3f}{'*' if self.whole.is_clear else ''}"


class AblationTable(NamedTuple):
    """The figures of one method: the unchanged recalls by set, and the changes by switched-off part and set."""

    recalls: dict[str, Recalls]
    changes: dict[str, dict[str, RecallChange]]


def left_out_of(method: str, methods: Sequence[str]) -> Mapping[str, Settings]:
    """Return the settings that switch off each part of a method. Parts that are methods must be in ``methods``."""
    parts = LEFT_OUT.get(method, {})
    return {part: settings for part, settings in parts.items() if part not in LEFT_OUT or part in methods}


def measure(snapshot: Snapshot, name: str, questions: Sequence[Question], tables: Mapping[str, AblationTable]) -> None:
    """Evaluate a question set with each table's method, complete and without each part, and fill in the tables."""
    vectors = snapshot.encode([one.question for one in questions])

    def recalls(method: str, settings: Settings) -> Recalls:
        results = evaluate(
            snapshot, questions, [method], DEPTHS, vectors, parameters={method: settings}, options=LIKE_QUERIES
        )
        return np.array([[SETS[name].measure(one, k) for k in DEPTHS] for one in results.methods[method].each])

    for method, table in tables.items():
        if method in snapshot.methods:
            whole = table.recalls[name] = recalls(method, {})
            for part, settings in left_out_of(method, snapshot.methods).items():
                table.changes.setdefault(part, {})[name] = RecallChange.of(recalls(method, settings), whole)
            print(f"{name}: {method}", file=sys.stderr, flush=True)


def print_table(method: str, table: AblationTable) -> None:
    """Print a column for each set and a line for each part."""
    sets = list(table.recalls)
    print(f"\n| {method} | {' | '.join(sets)} | worse, better |\n|{' --- |' * (len(sets) + 2)}")
    means = (" / ".join(f"{mean:.3f}" for mean in of_set.mean(axis=0)) for of_set in table.recalls.values())
    print(f"| as it is | {' | '.join(means)} | |")
    for part, changes in table.changes.items():
        cells = [str(changes[name]) if name in changes else "-" for name in sets]
        worse = sum(change.whole.high < 0 for change in changes.values())
        better = sum(change.whole.low > 0 for change in changes.values())
        print(f"| without {part} | {' | '.join(cells)} | {worse}, {better} |")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__)

    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--stores", type=Path, metavar="DIR", required=True, help="built stores, by name of the set")
    parser.add_argument("--sets", type=names, default=[name for name, one in SETS.items() if not one.quick])
    parser.add_argument("--methods", type=names, default=list(LEFT_OUT))
    parser.add_argument("--step", type=int, default=1, metavar="N", help="use every N-th question of each half")
    chosen = parser.parse_args(argv)
    for option, requested, available in (("sets", chosen.sets, SETS), ("methods", chosen.methods, LEFT_OUT)):
        if unknown := sorted(set(requested) - set(available)):
            parser.error(f"unknown {option}: {', '.join(unknown)}; choose from {', '.join(available)}")
    tables = {method: AblationTable({}, {}) for method in chosen.methods}
    for name in chosen.sets:
        files = SETS[name].make(chosen.data, chosen.work / "data" / name)
        every = read_questions(files.questions)
        questions = [one for place, one in enumerate(every) if place // 2 % chosen.step == 0]
        with indexmill.open(chosen.stores / name) as snapshot:
            measure(snapshot, name, questions, tables)
    print(describe_machine())
    for method, table in tables.items():
        if table.recalls:
            print_table(method, table)


if __name__ == "__main__":
    main()
