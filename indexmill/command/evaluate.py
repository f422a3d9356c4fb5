"""``indexmill evaluate``: how well a snapshot's methods find known evidence, and how well questions are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.model import asking, filtering
from indexmill.command.options import (
    Options,
    candidate,
    common,
    filtered,
    numbers,
    opened,
    parameters_by_method,
    pinned,
    settable,
)
from indexmill.command.reranker import reranking, reranking_of
from indexmill.errors import BadInput, ConfigurationError, DiskFull
from indexmill.extras import not_installed
from indexmill.retrieve.family import load
from indexmill.retrieve.registry import METHODS
from indexmill.text.counted import counted
from indexmill.text.table import table

if TYPE_CHECKING:
    from indexmill.evaluate.recall import MethodResult

__all__ = ["command", "record_weights"]


@click.command("evaluate")
@click.argument("questions", type=click.Path(path_type=Path))
@click.option(
    "--method",
    "-m",
    metavar="NAMES",
    help="Methods, separated by commas; all that the snapshot holds by default, with --answer the best of them.",
)
@click.option(
    "-k",
    "--k",
    "ks",
    metavar="NUMBERS",
    help="Where recall is taken, 5,10 by default; with --answer and --judge how many hits are read, 5 by default.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="Find the weights of fused retrieval on these questions and record them in the configuration.",
)
@click.option("--answer", is_flag=True, help="Have a language model answer the questions, and score the answers.")
@click.option(
    "--judge",
    metavar="A,B",
    help="Have a language model answer the questions by two methods, and say which answers are better.",
)
@click.option(
    "--make-questions",
    metavar="DESCRIPTION",
    help="Have a language model write questions for --judge into QUESTIONS, about a collection that is so described.",
)
@click.option("--judge-model", metavar="NAME", help="The model that says so; by default the one that answers.")
@asking
@click.option(
    "--max-questions", metavar="N", type=click.IntRange(min=1), help="With --answer and --judge: the first N questions."
)
@click.option("--dry-run", is_flag=True, help="With --answer and --judge: say what it would take, and ask no model.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="With --answer and --judge: read hits of T tokens at most.",
)
@filtering
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help="With --answer and --judge: calls in flight at a time, 8 by default.",
)
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --answer and --judge: keep the model's answers in FILE, and ask for none that is there already.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a line of JSON for every method and question: gold ranks, recall, hits and time.",
)
@click.option(
    "--misses",
    metavar="[N]",
    is_flag=False,
    flag_value=10,
    type=click.IntRange(min=1),
    help="Show questions whose evidence is missed, at most N of each method, 10 by default, and what is found instead.",
)
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Retrieve in so many processes, such as one for each core; in one by default.",
)
@reranking
@settable
@filtered
@candidate
@pinned
@common
def command(
    options: Options,
    questions: Path,
    method: str | None,
    ks: str | None,
    processes: int | None,
    output: Path | None,
    misses: int | None,
    fit: bool,
    answer: bool,
    judge: str | None,
    make_questions: str | None,
    rerank: str | None,
    rerank_model: str | None,
    rerank_depth: int | None,
    settings: tuple[str, ...],
    where: tuple[str, ...],
    version: str | None,
    alias: str | None,
    run: str | None,
    **answering: Any,
) -> None:
    """How well retrieval methods do on the QUESTIONS of a JSON Lines file.

    A line is {"id", "question", "gold_ids"}, and optionally {"type", "answer"}: gold_ids are the documents that hold
    the evidence. Recall@k is the part of them among the first k distinct documents, averaged over the questions.

    --output results.jsonl keeps what every method found for every question, so that a table of any kind can be made of
    it later. --misses shows where evidence is missed: what ranks above it often says why.

    A setting is tried with --set before it is published: `--method dense --set title=0.1`, of several methods `--set
    dense.title=0.1 --set fused.pool=100`. Choose it on other questions than those that prove it.

    With --fit, weights are chosen on the even-numbered questions and proven on the odd-numbered ones. Those that do no
    worse there go into the configuration file, and with the next build into the snapshot.

    With --answer, the language model of the configuration, or --model, answers the questions. Each answer is held
    against "answer", a text or a list of texts any of which is right: whether that stands in it (accuracy), the part of
    its words that do (recall), exact match and F1. Each question is paid for each time: see --dry-run first, and
    --answers FILE, from which a run that was ended goes on.

    With --judge A,B, the model answers by both methods and says which answer covers more, is richer, helps more, and is
    clearer. Neither gold_ids nor "answer" is needed, and --make-questions writes such questions.
    """
    if sum([fit, answer, judge is not None, make_questions is not None]) > 1:
        raise BadInput("--fit, --answer, --judge and --make-questions each do something else: give one of them")
    reranker = {"--rerank": rerank, "--rerank-model": rerank_model, "--rerank-depth": rerank_depth}
    unread: dict[str, object] = {"--method": method, "--where": where, "--set": settings, **reranker} if fit else {}
    if make_questions is not None:
        unread = {"--method": method, "-k": ks, "--where": where, "--set": settings}
        unread |= {"--snapshot": version, "--alias": alias, "--run": run, **reranker}
    if fit or answer or judge is not None or make_questions is not None:
        unread |= {"--processes": processes, "--output": output, "--misses": misses}
    if named := sorted(name for name, value in unread.items() if value):
        does = "--fit" if fit else "--answer" if answer else "--judge" if judge is not None else "--make-questions"
        raise BadInput(f"{', '.join(named)}: {does} does not take that")
    if make_questions is not None:
        from indexmill.command.evaluate_answers import make_questions_of

        make_questions_of(options, make_questions, questions, **answering)
        return
    by = reranking_of(rerank, rerank_model, rerank_depth)
    if answer or judge is not None:
        from indexmill.command.evaluate_answers import evaluate_answers_of

        snapshot = opened(options, version, alias, run)
        depth = "5" if ks is None else ks
        evaluate_answers_of(options, snapshot, run, questions, method, judge, depth, where, settings, by, **answering)
        return
    if named := sorted(f"--{name.replace('_', '-')}" for name, value in answering.items() if value):
        raise BadInput(f"{', '.join(named)}: without --answer or --judge no question is answered")
    ks = "5,10" if ks is None else ks
    if fit:
        _fit(options, questions, ks, version, alias, run)
        return
    from indexmill.command.misses import misses_of, shown_misses, titles_of
    from indexmill.evaluate.recall import evaluate, read_questions
    from indexmill.results import write_results

    methods = None if method is None else [name.strip() for name in method.split(",") if name.strip()]
    asked = read_questions(questions)
    if output is not None and not output.parent.is_dir():
        raise BadInput(f"--output {output}: there is no folder {output.parent}")
    with opened(options, version, alias, run, processes or 1) as snapshot:
        given = parameters_by_method(settings, list(dict.fromkeys(methods or snapshot.methods)))
        found = evaluate(snapshot, asked, methods, numbers(ks), where=where or None, parameters=given, **by._asdict())
        titles = {} if misses is None else titles_of(snapshot)
    if output is not None:
        write_results(output, (one for result in found.methods.values() for one in result.each))
    depths = sorted({k for result in found.methods.values() for k in result.recall})
    missed = {
        name: misses_of(result.each, depths[0], misses, titles)
        for name, result in found.methods.items()
        if misses is not None
    }
    if options.json:
        more: dict[str, Any] = {"parameters": given} if given else {}
        more |= {"output": str(output)} if output is not None else {}
        options.print_json({**found.to_dict(), **more, **({"misses": missed} if missed else {})})
        return
    rows = [
        [
            name,
            *(f"{result.recall[k]:.4f}" for k in depths),
            "-" if result.tokens_per_question is None else f"{result.tokens_per_question:.0f}",
            f"{result.milliseconds_per_question:.2f}",
            f"{result.encode_milliseconds_per_question:.2f}",
        ]
        for name, result in found.methods.items()
    ]
    unnumbered = "exported snapshot" if run is None else f"candidate of run {run}"
    which = unnumbered if found.version is None else f"version {found.version}"
    click.echo(f"{counted(len(asked), 'question')}, {which}\n")
    click.echo(table(["method", *(f"recall@{k}" for k in depths), "tokens", "ms", "ms to encode"], rows))
    if by_type := _types_table(found.methods, depths):
        click.echo("\n" + by_type)
    for family in METHODS.values():
        if family.statistics is not None and (told := found.statistics.get(family.statistics.key)):
            click.echo("\n" + load(family.statistics.module).listing(told))
    for name, one in missed.items():
        click.echo("\n" + shown_misses(name, one, len(asked), depths[-1]))
    if found.unknown_gold_ids:
        of = counted(found.gold_ids, "gold document")
        click.echo(f"{found.unknown_gold_ids} of {of} are not in the snapshot", err=True)


def _types_table(methods: Mapping[str, MethodResult], depths: Sequence[int]) -> str | None:
    """Recall by question type, a line for each type and method; None where there are no types to tell apart."""
    types = sorted({kind for result in methods.values() for kind in result.types})
    if len(types) < 2:
        return None
    rows = []
    for kind in types:
        for name, result in methods.items():
            questions, recalls = result.types[kind]
            rows.append([kind, questions, name, *(f"{recalls[k]:.4f}" for k in depths)])
    return table(["type", "questions", "method", *(f"recall@{k}" for k in depths)], rows)


def _fit(options: Options, questions: Path, ks: str, version: str | None, alias: str | None, run: str | None) -> None:
    from indexmill.evaluate.fit import fit
    from indexmill.evaluate.recall import read_questions

    with opened(options, version, alias, run) as snapshot:
        found = fit(snapshot, read_questions(questions), numbers(ks))
    recorded = None
    if found.better:
        recorded = record_weights(options.configuration_path(), found.weights)
    if options.json:
        options.print_json({**found.to_dict(), "recorded": None if recorded is None else str(recorded)})
        return
    rows = [[name, f"{found.before[name]:g}", f"{found.weights[name]:g}"] for name in found.weights]
    click.echo(table(["method", "weight before", "after"], rows))
    for which, (before, after) in (("chosen on even", found.chosen_on), ("proven on odd", found.proven_on)):
        click.echo(f"{which}-numbered questions: mean recall {before:.4f} before, {after:.4f} after")
    if recorded is not None:
        click.echo(f"recorded in {recorded}; the next build publishes them")
    elif found.better:
        click.echo("no configuration file: put the weights under families.fused.parameters, or give --config")
    else:
        click.echo("the weights stay: no others do better on both halves")


def record_weights(path: Path | None, weights: Mapping[str, float]) -> Path | None:
    """Write the weights of fused retrieval into a configuration file, leaving the rest of it as it is.

    Returns the file, None where there is none. Raises ConfigurationError where it cannot be
    rewritten, ModelUnavailable without ruamel.yaml.
    """
    if path is None or not path.is_file():
        return None
    try:
        import ruamel.yaml.error as yaml_errors
        from ruamel.yaml import YAML  # keeps comments and order; the pipeline's
    except ImportError as error:
        raise not_installed(f"{path}: writing it", "ruamel", error) from error
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    try:
        content = yaml.load(path.read_text(encoding="utf-8")) or {}
        place = content
        for name in ("families", "fused", "parameters"):
            if place.get(name) is None:
                place[name] = {}
            place = place[name]
        place.update(weights)
        draft = path.with_name(path.name + ".new")
        with draft.open("w", encoding="utf-8") as file:
            yaml.dump(content, file)
        draft.replace(path)
    except (OSError, AttributeError, ValueError, yaml_errors.YAMLError) as error:
        if (full := DiskFull.of(error, path)) is not None:
            raise full from error
        raise ConfigurationError(f"{path}: the weights cannot be recorded: {error}") from error
    return path
