"""The protocol of evaluation: every method over every set and variant, in one table.

    python -m benchmarks.protocol DATA WORK [--sets NAMES] [--methods NAMES] [--quick] [--resume]

DATA is the folder of question sets (`benchmarks.sets` says what is made of it), WORK where corpora, stores and results
go. WORK/NAME is built with `indexmill build` where it holds no version; NAME in a folder that `--stores` names is used
as it is. `--build` brings the stores of WORK up to date with the code and with `--precision`. community_tree and
heterograph cost more and are built with `--families all`.

What every method found for every question is kept in WORK/results/NAME/METHOD.jsonl, in the lines of `indexmill
evaluate --output`. `--tables` prints the tables again from there, `--resume` asks only what is missing there, of the
same version and settings, and `--baseline` compares with the results of an earlier run. `--set tri_graph.damping=0.85`
tries a setting on all sets, of the method and of the default, which combines it. Choose settings on `--half even` and
report `--half odd`.

The first table has recall at 5 and 10 documents and, of every method, the mean difference to the default method with an
interval of 95 %: the 2.5th and 97.5th percentile of 2,000 resamples of the questions. Where the default is more than
0.005 below the best of the others, it says so. The second counts what is found in hits of so many tokens, read in
order; a hit that does not fit is passed over. `--readme` prints the README's table instead, and writes its figures to
docs/measurements/recall.json (`benchmarks.readme_table`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import indexmill
from benchmarks.bootstrap import difference
from benchmarks.budgets import cut, of_hits, recalled
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.readme_table import DEFAULT, DEPTHS, FIGURES, TITLES, Column, column, table, write_columns
from benchmarks.sets import SETS, Files, evidence_recall
from indexmill.command.options import parameters_by_method
from indexmill.errors import BadInput, IndexmillError
from indexmill.evaluate.recall import evaluate, read_questions
from indexmill.results import NO_EVIDENCE, QuestionResult, read_results, write_results
from indexmill.retrieve.registry import METHODS
from indexmill.snapshot import Snapshot

BUDGETS = (500, 1_000, 2_000)
BELOW = 0.005
"""How far the default may be below the best of the others."""

COSTLY = ("community_tree", "heterograph")

Results = Mapping[str, Mapping[str, Sequence[QuestionResult]]]
"""By set and method, in the order of the questions."""


def published(store: Path) -> tuple[str, ...]:
    """The methods of a store's newest version; none where there is no version."""
    try:
        with indexmill.open(store) as snapshot:
            return snapshot.methods
    except IndexmillError:
        return ()


def store_of(name: str, files: Files, chosen: argparse.Namespace) -> Path:
    """The store of a set, built where there is none, where it lacks a family, or where `--build` says so."""
    given = None if chosen.stores is None else chosen.stores / name
    if given is not None and published(given):
        return Path(given)
    store: Path = chosen.work / name
    wanted = COSTLY if chosen.families == "all" else ()
    if chosen.build or not published(store) or set(wanted) - set(published(store)):
        configuration = chosen.work / f"families-{chosen.families}.yaml"
        settings = {
            "families": {family: {"enabled": True} for family in wanted},
            "embed": {"precision": chosen.precision},
        }
        configuration.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "indexmill", "build", "--store", str(store), "--corpus", str(files.corpus)]
        print(f"{name}: building {store}", file=sys.stderr, flush=True)
        subprocess.run([*command, "--config", str(configuration)], check=True, stdout=sys.stderr)
    return store


def measure(name: str, files: Files, store: Path, chosen: argparse.Namespace) -> None:
    """Ask a set's questions by every method, and keep what it found; with `--resume` where it is not kept already."""
    folder = chosen.work / "results" / name
    questions = read_questions(files.questions)
    with indexmill.open(store) as snapshot:
        methods = [one for one in snapshot.methods if chosen.methods is None or one in chosen.methods]
        told = {"store": str(store.resolve()), "version": snapshot.version, "settings": sorted(chosen.settings)}
        about = folder / "about.json"
        is_same = about.exists() and json.loads(about.read_text()) == told
        if not is_same or not chosen.resume:
            for old in folder.glob("*.jsonl") if not is_same else [folder / f"{one}.jsonl" for one in methods]:
                old.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        about.write_text(json.dumps(told))
        missing = [one for one in methods if not (folder / f"{one}.jsonl").exists()]
        if not missing:
            return
        given = settings_of(snapshot, chosen.settings)
        vectors = snapshot.encode([one.question for one in questions])
        for method in missing:
            parameters = {method: given[method]} if method in given else {}
            found = evaluate(snapshot, questions, [method], DEPTHS, vectors, parameters=parameters, tokens=max(BUDGETS))
            write_results(folder / f"{method}.jsonl", found.methods[method].each)
            print(f"{name}: {method}", file=sys.stderr, flush=True)


def settings_of(snapshot: Snapshot, settings: Sequence[str]) -> dict[str, dict[str, object]]:
    """`--set` by method; the default gets those of the methods that it combines, too."""
    found = parameters_by_method(settings, snapshot.methods)
    for method, given in list(found.items()):
        handed = {f"{method}.{name}": value for name, value in given.items() if method != DEFAULT}
        try:
            snapshot.retriever(DEFAULT).with_parameters(handed)
        except BadInput:
            continue  # it does not combine that method
        found[DEFAULT] = {**handed, **found.get(DEFAULT, {})}
    return {method: given for method, given in found.items() if given}


def read(folder: Path, sets: Sequence[str], methods: Sequence[str] | None) -> Results:
    """The results that are kept, the default method first, then in the order of the registry."""
    found: dict[str, dict[str, list[QuestionResult]]] = {}
    for name in sets:
        paths = {method: folder / name / f"{method}.jsonl" for method in METHODS}
        held = {
            method: read_results(path)
            for method, path in paths.items()
            if path.exists() and (methods is None or method in methods)
        }
        if held:
            found[name] = held
    return found


def half_of(results: Results, half: str) -> Results:
    """The questions at even or odd places of their file; all for `all`."""
    part = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}[half]
    return {name: {method: each[part] for method, each in of_set.items()} for name, of_set in results.items()}


def _values(name: str, results: Sequence[QuestionResult], k: int) -> list[float]:
    measured = SETS[name].measure if name in SETS else evidence_recall
    return [measured(one, k) for one in results]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def print_recall(results: Results) -> None:
    """Recall of every method on every set, beside the default's, and milliseconds for a question."""
    rows = []
    for name, of_set in results.items():
        values = {method: {k: _values(name, each, k) for k in DEPTHS} for method, each in of_set.items()}
        for method, its in values.items():
            cells = []
            for k in DEPTHS:
                cells.append(f"{_mean(its[k]):.3f}")
                if method != DEFAULT:
                    told = str(difference(its[k], values[DEFAULT][k])) if DEFAULT in values else "-"
                else:
                    others = {other: _mean(every[k]) for other, every in values.items() if other != DEFAULT}
                    best = max(others, key=lambda other: others[other], default=None)
                    short = 0.0 if best is None else others[best] - _mean(its[k])
                    told = f"**{short:.3f} below {best}**" if short > BELOW + 1e-9 else ""
                cells.append(told)
            rows.append([name, method, *cells, f"{_mean([one.milliseconds for one in of_set[method]]):.1f}"])
    header = ["set", "method"]
    for k in DEPTHS:
        header += [f"recall@{k}", f"to {DEFAULT}"]
    print("\n".join(_table([*header, "ms"], rows)))


def print_matrix(results: Results) -> None:
    """Recall at both depths in short: a line for each set, a column for each method."""
    methods = [one for one in METHODS if any(one in of_set for of_set in results.values())]
    rows = [
        [name]
        + [
            " / ".join(f"{_mean(_values(name, of_set[method], k)):.3f}" for k in DEPTHS) if method in of_set else "-"
            for method in methods
        ]
        for name, of_set in results.items()
    ]
    print("\n".join(_table(["set", *methods], rows)))


def within(result: QuestionResult, budget: int) -> float:
    """The part of a question's gold documents that a model reads of in hits of so many tokens."""
    shown = of_hits(result.hits)
    evidence = frozenset(one.kind for one in shown) - NO_EVIDENCE
    return recalled(result, cut(shown, budget), evidence)


def print_budgets(results: Results) -> None:
    """What is found at equal tokens, the best of each set in bold."""
    rows = []
    for name, of_set in results.items():
        found = {
            method: [round(_mean([within(one, budget) for one in each]), 3) for budget in BUDGETS]
            for method, each in of_set.items()
        }
        best = [max(column) for column in zip(*found.values(), strict=True)]
        for method, means in found.items():
            cells = [f"**{mean:.3f}**" if mean == top else f"{mean:.3f}" for mean, top in zip(means, best, strict=True)]
            rows.append([name, method, *cells])
    print("\n".join(_table(["set", "method", *(f"{budget:,} tokens" for budget in BUDGETS)], rows)))


def print_baseline(results: Results, before: Results) -> None:
    """What changed since an earlier run, on the questions that both asked."""
    rows = []
    for name, of_set in results.items():
        for method, each in of_set.items():
            earlier = {(one.id, one.question): one for one in before.get(name, {}).get(method, ())}
            pairs = [(one, earlier[one.id, one.question]) for one in each if (one.id, one.question) in earlier]
            if not pairs:
                continue
            cells = []
            for k in DEPTHS:
                now, then = (_values(name, [pair[place] for pair in pairs], k) for place in (0, 1))
                cells += [f"{_mean(then):.3f} to {_mean(now):.3f}", str(difference(now, then))]
            times = [_mean([pair[place].milliseconds for pair in pairs]) for place in (1, 0)]
            rows.append([name, method, *cells, f"{times[0]:.1f} to {times[1]:.1f}"])
    header = ["set", "method"]
    for k in DEPTHS:
        header += [f"recall@{k}", "difference"]
    print("\n".join(_table([*header, "ms"], rows)))


def readme_columns(results: Results, chosen: argparse.Namespace) -> dict[str, Column]:
    """The README's columns of the sets that were asked, each with the command that measures it again."""
    columns = {}
    for name in TITLES.keys() & results.keys():
        about = json.loads((chosen.work / "results" / name / "about.json").read_text())
        if about["settings"]:
            raise SystemExit(f"{name}: the results are of {', '.join(about['settings'])}, not of the default settings")
        recall = {method: [_mean(_values(name, each, k)) for k in DEPTHS] for method, each in results[name].items()}
        families = " --families all" if set(COSTLY) <= recall.keys() else ""
        command = f"python -m benchmarks.protocol DATA WORK{families} --sets {name} --readme"
        with indexmill.open(about["store"], version=about["version"]) as snapshot:
            columns[name] = column(command, snapshot, recall, len(results[name][DEFAULT]))
    return columns


def names(text: str) -> list[str]:
    """Names with commas between, as the options take them."""
    return [one.strip() for one in text.split(",") if one.strip()]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)

    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--sets", type=names, help=f"names with commas between, of {', '.join(SETS)}")
    parser.add_argument("--methods", type=names, help="names with commas between; all that a store holds by default")
    parser.add_argument("--quick", action="store_true", help="Cranfield and cuts of 800 documents")
    parser.add_argument("--resume", action="store_true", help="keep results of the same version and settings")
    parser.add_argument("--tables", action="store_true", help="print the tables of what is kept, and ask nothing")
    parser.add_argument("--stores", type=Path, metavar="DIR", help="use stores that are there, by name")
    parser.add_argument("--build", action="store_true", help="bring the stores of WORK up to date first")
    parser.add_argument("--families", choices=("usual", "all"), default="usual")
    parser.add_argument("--precision", choices=("auto", "f32", "bf16", "int8"), default="auto", help="of the encoder")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="METHOD.NAME=VALUE")
    parser.add_argument("--half", choices=("all", "even", "odd"), default="all", help="of the questions, by place")
    parser.add_argument("--matrix", action="store_true", help="a short table first, a column for each method")
    parser.add_argument("--readme", action="store_true", help="print the README's table, and keep its figures")
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="results of an earlier run, WORK/results of it")
    chosen = parser.parse_args(argv)
    if unknown := sorted(set(chosen.sets or ()) - set(SETS)):
        parser.error(f"there are no sets {', '.join(unknown)}; there are {', '.join(SETS)}")
    if unknown := sorted(set(chosen.methods or ()) - set(METHODS)):
        parser.error(f"there are no methods {', '.join(unknown)}; there are {', '.join(METHODS)}")
    if chosen.readme and (chosen.methods or chosen.settings or chosen.half != "all"):
        parser.error("--readme takes all methods, all questions and the default settings")
    if chosen.sets is None:
        chosen.sets = [name for name, one in SETS.items() if one.quick == chosen.quick or name == "cranfield"]
    return chosen


def main(argv: Sequence[str] | None = None) -> None:
    chosen = _arguments(argv)
    if not chosen.tables:
        chosen.work.mkdir(parents=True, exist_ok=True)
        for name in chosen.sets:
            files = SETS[name].make(chosen.data, chosen.work / "data" / name)
            measure(name, files, store_of(name, files, chosen), chosen)
    everything = read(chosen.work / "results", chosen.sets, chosen.methods)
    if not everything:
        raise SystemExit(f"{chosen.work / 'results'}: there are no results of {', '.join(chosen.sets)}")
    if chosen.readme:
        print("\n".join(table(write_columns(FIGURES, readme_columns(everything, chosen)))))
        return
    results = half_of(everything, chosen.half)
    which = "" if chosen.half == "all" else f", {chosen.half} questions"
    counts = ", ".join(f"{name} {len(next(iter(of_set.values()))):,}" for name, of_set in results.items())
    print(f"{describe_machine()}\nQuestions{which}: {counts}\n")
    if chosen.matrix:
        print_matrix(results)
        print()
    print_recall(results)
    print()
    print_budgets(results)
    if chosen.baseline is not None:
        print()
        print_baseline(results, half_of(read(chosen.baseline, chosen.sets, chosen.methods), chosen.half))


if __name__ == "__main__":
    main()
