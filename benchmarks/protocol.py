"""Run the evaluation protocol: every method over every set and variant, in one table.

    python -m benchmarks.protocol DATA WORK [--sets NAMES] [--methods NAMES] [--quick] [--resume]

DATA is the folder of question sets (see `benchmarks.sets`); corpora, stores and results go to WORK. `indexmill build`
builds WORK/NAME if it has no version; a store NAME in the folder of `--stores` is used as it is. `--build` brings the
stores of WORK up to date with the code and with `--precision`. `--families all` also builds community_tree and
heterograph, which cost more.

The results of every method are saved in WORK/results/NAME/METHOD.jsonl, in the format of `indexmill evaluate --output`.
`--tables` prints the tables from these files, `--resume` evaluates only methods without results for the same version
and settings, and `--baseline` compares with the results of an earlier run. `--set tri_graph.damping=0.85` tries a
setting on all sets, both in that method and in the default method, which combines it. Choose settings on `--half even`
and report `--half odd`.

The first table has recall at 5 and 10 documents and each method's mean difference from the default method, with a 95 %
interval: the 2.5th and 97.5th percentile of 2,000 resamples of the questions. It marks sets where the default is more
than 0.005 below the best other method. The second table has the recall within token budgets, over hits in order; a hit
that does not fit is skipped. `--readme` prints the README's table instead, and writes its figures to
docs/measurements/recall.json (`benchmarks.readme_table`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import indexmill
from benchmarks.bootstrap import difference
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.readme_table import DEFAULT, DEPTHS, FIGURES, TITLES, Column, column, table, write_columns
from benchmarks.sets import SETS, SetFiles, evidence_recall
from indexmill.command.options import parameters_by_method
from indexmill.errors import BadInput, IndexmillError
from indexmill.evaluate.recall import evaluate, read_questions
from indexmill.results import NO_EVIDENCE, QuestionResult, read_results, write_results
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.method_registry import METHODS
from indexmill.snapshot import Snapshot

BUDGETS = (500, 1_000, 2_000)
BELOW = 0.005  # recall by which the default may be below the best other method

COSTLY = ("community_tree", "heterograph")

Results = Mapping[str, Mapping[str, Sequence[QuestionResult]]]  # by set and method, in the order of the questions


def published(store: Path) -> tuple[str, ...]:
    """Return the methods of a store's newest version, or none if it has no version."""
    try:
        with indexmill.open(store) as snapshot:
            return snapshot.methods
    except IndexmillError:
        return ()


def store_of(name: str, files: SetFiles, chosen: argparse.Namespace) -> Path:
    """Return the store of a set; build it if it is missing, lacks a family, or `--build` is set."""
    existing = None if chosen.stores is None else chosen.stores / name
    if existing is not None and published(existing):
        return Path(existing)
    store: Path = chosen.work / name
    families = COSTLY if chosen.families == "all" else ()
    if chosen.build or not published(store) or set(families) - set(published(store)):
        configuration = chosen.work / f"families-{chosen.families}.yaml"
        settings = {
            "families": {family: {"enabled": True} for family in families},
            "embed": {"precision": chosen.precision},
        }
        configuration.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "indexmill", "build", "--store", str(store), "--corpus", str(files.corpus)]
        print(f"{name}: building {store}", file=sys.stderr, flush=True)
        subprocess.run([*command, "--config", str(configuration)], check=True, stdout=sys.stderr)
    return store


def measure(name: str, files: SetFiles, store: Path, chosen: argparse.Namespace) -> None:
    """Evaluate every method on a set's questions and save the results; with `--resume`, only missing results."""
    folder = chosen.work / "results" / name
    questions = read_questions(files.questions)
    with indexmill.open(store) as snapshot:
        methods = [one for one in snapshot.methods if chosen.methods is None or one in chosen.methods]
        description = {"store": str(store.resolve()), "version": snapshot.version, "settings": sorted(chosen.settings)}
        about = folder / "about.json"
        is_same = about.exists() and json.loads(about.read_text()) == description
        if not is_same or not chosen.resume:
            for old in folder.glob("*.jsonl") if not is_same else [folder / f"{one}.jsonl" for one in methods]:
                old.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        about.write_text(json.dumps(description))
        missing = [one for one in methods if not (folder / f"{one}.jsonl").exists()]
        if not missing:
            return
        by_method = settings_of(snapshot, chosen.settings)
        vectors = snapshot.encode([one.question for one in questions])
        for method in missing:
            parameters = {method: by_method[method]} if method in by_method else {}
            results = evaluate(
                snapshot, questions, [method], DEPTHS, vectors, parameters=parameters, tokens=max(BUDGETS)
            )
            write_results(folder / f"{method}.jsonl", results.methods[method].each)
            print(f"{name}: {method}", file=sys.stderr, flush=True)


def settings_of(snapshot: Snapshot, settings: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the `--set` settings by method; the default method also gets those of the methods it combines."""
    by_method = parameters_by_method(settings, snapshot.methods)
    for method, parameters in list(by_method.items()):
        handed = {f"{method}.{name}": value for name, value in parameters.items() if method != DEFAULT}
        try:
            snapshot.retriever(DEFAULT).with_parameters(handed)
        except BadInput:
            continue  # the default method does not combine this one
        by_method[DEFAULT] = {**handed, **by_method.get(DEFAULT, {})}
    return {method: parameters for method, parameters in by_method.items() if parameters}


def read(folder: Path, sets: Sequence[str], methods: Sequence[str] | None) -> Results:
    """Read the saved results by set and method. Methods are in the order of the registry: the default comes first."""
    results: dict[str, dict[str, list[QuestionResult]]] = {}
    for name in sets:
        paths = {method: folder / name / f"{method}.jsonl" for method in METHODS}
        by_method = {
            method: read_results(path)
            for method, path in paths.items()
            if path.exists() and (methods is None or method in methods)
        }
        if by_method:
            results[name] = by_method
    return results


def half_of(results: Results, half: str) -> Results:
    """Return the results of questions at even or odd positions in their file; all for `all`."""
    part = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}[half]
    return {name: {method: each[part] for method, each in of_set.items()} for name, of_set in results.items()}


def _values(name: str, results: Sequence[QuestionResult], k: int) -> list[float]:
    measured = SETS[name].measure if name in SETS else evidence_recall
    return [measured(one, k) for one in results]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def print_recall(results: Results) -> None:
    """Print each method's recall on every set, its difference from the default's, and milliseconds per question."""
    rows = []
    for name, of_set in results.items():
        values = {method: {k: _values(name, each, k) for k in DEPTHS} for method, each in of_set.items()}
        for method, recalls in values.items():
            cells = []
            for k in DEPTHS:
                cells.append(f"{_mean(recalls[k]):.3f}")
                if method != DEFAULT:
                    comparison = str(difference(recalls[k], values[DEFAULT][k])) if DEFAULT in values else "-"
                else:
                    others = {rival: _mean(every[k]) for rival, every in values.items() if rival != DEFAULT}
                    best = max(others, key=lambda rival: others[rival], default=None)
                    short = 0.0 if best is None else others[best] - _mean(recalls[k])
                    comparison = f"**{short:.3f} below {best}**" if short > BELOW + 1e-9 else ""
                cells.append(comparison)
            rows.append([name, method, *cells, f"{_mean([one.milliseconds for one in of_set[method]]):.1f}"])
    header = ["set", "method"]
    for k in DEPTHS:
        header += [f"recall@{k}", f"to {DEFAULT}"]
    print_table([*header, "ms"], rows)


def print_matrix(results: Results) -> None:
    """Print recall at both depths compactly: a line for each set, a column for each method."""
    methods = [one for one in METHODS if any(one in of_set for of_set in results.values())]
    rows = [
        [name]
        + [
            " / ".join(f"{_mean(_values(name, of_set[method], k)):.3f}" for k in DEPTHS) if method in of_set else "-"
            for method in methods
        ]
        for name, of_set in results.items()
    ]
    print_table(["set", *methods], rows)


def within(result: QuestionResult, budget: int) -> float:
    """Return the share of a question's gold documents in the evidence hits that fit into a token budget."""
    shown = [result.hits[place] for place in fitting([hit.tokens or 0 for hit in result.hits], budget)]
    documents = {document for hit in shown if hit.kind not in NO_EVIDENCE for document in hit.document_ids}
    return len(documents.intersection(result.gold_ids)) / len(result.gold_ids)


def print_budgets(results: Results) -> None:
    """Print the recall within equal token budgets, the best of each set in bold."""
    rows = []
    for name, of_set in results.items():
        by_method = {
            method: [round(_mean([within(one, budget) for one in each]), 3) for budget in BUDGETS]
            for method, each in of_set.items()
        }
        best = [max(column) for column in zip(*by_method.values(), strict=True)]
        for method, means in by_method.items():
            cells = [f"**{mean:.3f}**" if mean == top else f"{mean:.3f}" for mean, top in zip(means, best, strict=True)]
            rows.append([name, method, *cells])
    print_table(["set", "method", *(f"{budget:,} tokens" for budget in BUDGETS)], rows)


def print_baseline(results: Results, before: Results) -> None:
    """Print the changes since an earlier run, on the questions of both runs."""
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
    print_table([*header, "ms"], rows)


def readme_columns(results: Results, chosen: argparse.Namespace) -> dict[str, Column]:
    """Return the README's columns of the measured sets, each with the command that measures it again."""
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
    return [one.strip() for one in text.split(",") if one.strip()]


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `store_of`."""
    parser.add_argument("--stores", type=Path, metavar="DIR", help="existing stores to use, by name of the set")
    parser.add_argument("--build", action="store_true", help="bring the stores of WORK up to date first")
    parser.add_argument("--families", choices=("usual", "all"), default="usual")
    parser.add_argument("--precision", choices=("auto", "f32", "bf16", "int8"), default="auto", help="of the encoder")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)

    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--sets", type=names, help=f"comma-separated names, of {', '.join(SETS)}")
    parser.add_argument("--methods", type=names, help="comma-separated names; by default all methods of a store")
    parser.add_argument("--quick", action="store_true", help="only Cranfield and cuts of 800 documents")
    parser.add_argument("--resume", action="store_true", help="keep results of the same version and settings")
    parser.add_argument("--tables", action="store_true", help="print the tables of saved results; evaluate nothing")
    add_store_options(parser)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="METHOD.NAME=VALUE")
    parser.add_argument(
        "--half", choices=("all", "even", "odd"), default="all", help="half of the questions, by position"
    )
    parser.add_argument(
        "--matrix", action="store_true", help="print a short table first, with a column for each method"
    )
    parser.add_argument("--readme", action="store_true", help="print the README's table, and save its figures")
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="the folder WORK/results of an earlier run")
    chosen = parser.parse_args(argv)
    if unknown := sorted(set(chosen.sets or ()) - set(SETS)):
        parser.error(f"unknown sets: {', '.join(unknown)}; choose from {', '.join(SETS)}")
    if unknown := sorted(set(chosen.methods or ()) - set(METHODS)):
        parser.error(f"unknown methods: {', '.join(unknown)}; choose from {', '.join(METHODS)}")
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
