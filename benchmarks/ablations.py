"""What every heuristic gives: each method with one of its parts left out, over all sets and variants.

    python -m benchmarks.ablations DATA WORK --stores DIR [--sets NAMES] [--methods NAMES] [--step N]

DATA, WORK, the sets and the stores are those of `benchmarks.protocol`; nothing is built that is there, since every part
is left out by a setting of retrieval (`LEFT_OUT`). The first line of a method is its recall at 5 and 10 documents as it
is; each further line is what is lost (-) or won (+) without one part, in the mean over the even questions and over the
odd ones, at 5 and 10 together. A star says that the interval of 95 % of all questions leaves zero out
(`benchmarks.bootstrap`). The last column counts the sets where leaving it out is clearly worse and clearly better: a
part that is not worth more than it costs on the sets together does not pay.

--step takes every so many questions (of both halves alike).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import indexmill
from benchmarks import protocol
from benchmarks.bootstrap import Difference, difference
from benchmarks.machine import describe_machine
from benchmarks.sets import SETS, QuestionSet
from indexmill.evaluate import Question, evaluate, read_questions
from indexmill.snapshot import Snapshot

__all__ = ["LEFT_OUT", "left_out_of", "print_method"]

Settings = Mapping[str, object]

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
        "vectors in the second round": {"similarity": 0.0},
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
    },
}
"""By method, what is left out, and the settings that do it."""

Recalls = Sequence[float]
"""Of each question, the mean of its recall at the depths of the protocol."""


def left_out_of(method: str, held: Sequence[str]) -> Mapping[str, Settings]:
    """The parts of a method that can be left out of a snapshot with these methods."""
    parts = LEFT_OUT.get(method, {})
    return {part: given for part, given in parts.items() if part not in LEFT_OUT or part in held}


def recalls(
    snapshot: Snapshot, of_set: QuestionSet, questions: Sequence[Question], method: str, given: Settings
) -> dict[int, Recalls]:
    """The recall of each question at each depth, with some settings."""
    vectors = snapshot.encode([one.question for one in questions])
    found = evaluate(snapshot, questions, [method], protocol.DEPTHS, vectors, parameters={method: given})
    return {k: [of_set.measure(one, k) for one in found.methods[method].each] for k in protocol.DEPTHS}


def print_method(
    method: str, whole: Mapping[str, str], parts: Mapping[str, Mapping[str, tuple[str, Difference]]]
) -> None:
    """The table of one method: its recall by set, and by part and set what is lost without it."""
    print(f"\n| {method} | {' | '.join(whole)} | worse, better |\n|{' --- |' * (len(whole) + 2)}")
    print(f"| as it is | {' | '.join(whole.values())} | |")
    for part, by_set in parts.items():
        cells = [by_set[name][0] if name in by_set else "-" for name in whole]
        changes = [change for _, change in by_set.values()]
        worse, better = (sum(one.is_clear and (one.mean > 0) is won for one in changes) for won in (False, True))
        print(f"| without {part} | {' | '.join(cells)} | {worse}, {better} |", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(text: str) -> list[str]:
        return [one.strip() for one in text.split(",") if one.strip()]

    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--stores", type=Path, metavar="DIR", required=True, help="built stores, by name")
    parser.add_argument("--sets", type=names, default=[name for name, one in SETS.items() if not one.quick])
    parser.add_argument("--methods", type=names, default=list(LEFT_OUT))
    parser.add_argument("--step", type=int, default=1, help="every so many questions of each half")
    chosen = parser.parse_args(argv)
    whole: dict[str, dict[str, str]] = {method: {} for method in chosen.methods}
    parts: dict[str, dict[str, dict[str, tuple[str, Difference]]]] = {
        method: {part: {} for part in LEFT_OUT[method]} for method in chosen.methods
    }
    for name in chosen.sets:
        files = SETS[name].make(chosen.data, chosen.work / "data" / name)
        every = read_questions(files.questions)
        halves = (every[half :: 2 * chosen.step] for half in (0, 1))
        even, odd = (list(half) for half in halves)
        with indexmill.open(chosen.stores / name) as snapshot:
            for method in (one for one in chosen.methods if one in snapshot.methods):
                base = recalls(snapshot, SETS[name], [*even, *odd], method, {})
                whole[method][name] = " / ".join(f"{sum(base[k]) / len(base[k]):.3f}" for k in protocol.DEPTHS)
                for part, given in left_out_of(method, snapshot.methods).items():
                    without = recalls(snapshot, SETS[name], [*even, *odd], method, given)
                    both = [
                        [
                            sum(one[k][place] for k in protocol.DEPTHS) / len(protocol.DEPTHS)
                            for place in range(len(even) + len(odd))
                        ]
                        for one in (without, base)
                    ]
                    change = difference(*both)
                    cell = " / ".join(
                        f"{difference(both[0][some], both[1][some]).mean:+.3f}"
                        for some in (slice(len(even)), slice(len(even), None))
                    )
                    parts[method][part][name] = f"{cell}{'*' if change.is_clear else ''}", change
                print(f"{name}: {method}", file=sys.stderr, flush=True)
    print(describe_machine())
    for method in chosen.methods:
        print_method(method, whole[method], parts[method])


if __name__ == "__main__":
    main()
