"""``indexmill evaluate``: how well a snapshot's methods find known evidence, and how well questions are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from indexmill.command.model import answering_options, asking
from indexmill.command.options import Options, common, numbers, parameters_by_method
from indexmill.command.retrieval import principals_of, reranking_of, retrieving
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput, ConfigurationError, DiskFull
from indexmill.extras import not_installed
from indexmill.retrieve.family import load
from indexmill.retrieve.registry import METHODS
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.text.counted import counted
from indexmill.text.table import table

if TYPE_CHECKING:
    from indexmill.evaluate.recall import MethodResult


@click.command("evaluate")
@click.argument("questions", type=click.Path(path_type=Path))
@click.option(
    "--method",
    "-m",
    metavar="NAMES",
    help="Methods, separated by commas; by default all that the snapshot holds, with --answer the best of them.",
)
@click.option(
    "-k",
    "--k",
    "ks",
    metavar="NUMBERS",
    help="Measure recall at these depths, 5,10 by default; with --answer and --judge: read so many hits, 5 by default.",
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
    help="Have a language model write questions for --judge, about a collection with this description, into QUESTIONS.",
)
@click.option("--judge-model", metavar="NAME", help="The model that judges; by default the one that answers.")
@asking
@click.option(
    "--max-questions", metavar="N", type=click.IntRange(min=1), help="With --answer and --judge: the first N questions."
)
@click.option("--dry-run", is_flag=True, help="With --answer and --judge: show calls, tokens and cost; ask no model.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="With --answer and --judge: let the model read hits of T tokens at most.",
)
@answering_options
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help="With --answer and --judge: calls in flight at once, 8 by default.",
)
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --answer and --judge: keep the model's answers in FILE, and do not ask for those already there.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a JSON line for every method and question: ranks of the gold documents, recall, hits and time.",
)
@click.option(
    "--misses",
    metavar="[N]",
    is_flag=False,
    flag_value=10,
    type=click.IntRange(min=1),
    help="Show questions with missed evidence, at most N for each method, 10 by default, and what was found instead.",
)
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Retrieve in N processes, such as one for each core; in one by default.",
)
@retrieving
@common
def command(
    options: Options,
    questions: Path,
    method: str | None,
    ks: str | None,
    processes: int | None,
    output: Path | None,
    misses: int | None,
    make_questions: str | None,
    judge: str | None,
    fit: bool,
    answer: bool,
    **answering: Any,
) -> None:
    """Measure how well retrieval methods find known evidence, on the QUESTIONS of a JSON Lines file.

    A line is {"id", "question", "gold_ids"}, and optionally {"type", "answer"}: gold_ids are the documents that hold
    the evidence. Recall@k is the share of them among the first k distinct documents, averaged over the questions.

    --output results.jsonl keeps what every method found for every question, from which any table can be made later.
    --misses shows where evidence is missed: what ranks above it often says why.

    Try a setting with --set before you publish it: `--method dense --set title=0.1`, or, for several methods, `--set
    dense.title=0.1 --set fused.pool=100`. Choose it on other questions than those that prove it.

    With --fit, weights are chosen on the even-numbered questions and proven on the odd-numbered ones. If they do no
    worse there, they are written into the configuration file, and the next build publishes them.

    With --answer, the language model of the configuration, or --model, answers the questions. Each answer is compared
    with "answer", a text or a list of texts any of which is right: whether the answer contains it (accuracy), the share
    of its words that the answer contains (recall), exact match and F1. Every run pays for every question: see --dry-run
    first, and --answers FILE, from which an interrupted run continues.

    All documents are read, whoever may read them, unless --as says as whom.

    With --judge A,B, the model answers by both methods and says which answer covers more, is richer, helps more, and is
    clearer. Neither gold_ids nor "answer" is needed, and --make-questions writes such questions.
    """
    mode = _mode(click.get_current_context())
    if mode == "make_questions" and make_questions is not None:
        from indexmill.command.evaluate_answers import make_questions_of

        make_questions_of(options, make_questions, questions, answering["max_questions"])
        return
    by = reranking_of(options)
    if mode in ("answer", "judge"):
        from indexmill.command.evaluate_answers import evaluate_answers_of

        evaluate_answers_of(options, questions, method, judge, "5" if ks is None else ks, by, **answering)
        return
    ks = "5,10" if ks is None else ks
    if mode == "fit":
        _fit(options, questions, ks)
        return
    from indexmill.command.misses import misses_of, shown_misses, titles_of
    from indexmill.evaluate.recall import evaluate, read_questions
    from indexmill.results import write_results

    methods = None if method is None else [name.strip() for name in method.split(",") if name.strip()]
    asked = read_questions(questions)
    if output is not None and not output.parent.is_dir():
        raise BadInput(f"--output {output}: there is no folder {output.parent}")
    with options.open_snapshot(processes or 1) as snapshot:
        given = parameters_by_method(options.settings, list(dict.fromkeys(methods or snapshot.methods)))
        how = {**by._asdict(), "where": options.where or None, "principals": principals_of(options, UNRESTRICTED)}
        with Waiting(f"measuring {counted(len(asked), 'question')}", only_terminals=True):
            found = evaluate(snapshot, asked, methods, numbers(ks), parameters=given, **how)
            titles = {} if misses is None else titles_of(snapshot)
    if output is not None:
        write_results(output, (one for result in found.methods.values() for one in result.each))
    depths = sorted({k for result in found.methods.values() for k in result.recall})
    missed = {}
    if misses is not None:
        missed = {name: misses_of(one.each, depths[0], misses, titles) for name, one in found.methods.items()}
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
    click.echo(f"{counted(len(asked), 'question')}, {options.snapshot_name(found.version)}\n")
    click.echo(table(["method", *(f"recall@{k}" for k in depths), "tokens", "ms", "ms to encode"], rows))
    if by_type := _types_table(found.methods, depths):
        click.echo("\n" + by_type)
    for family in METHODS.values():
        if family.statistics is not None and (told := found.statistics.get(family.statistics.key)):
            click.echo("\n" + load(family.statistics.module).listing(told))
    for name, one in missed.items():
        click.echo("\n" + shown_misses(name, one, len(asked), depths[-1]))
    if found.unknown_gold_ids:
        of, verb = counted(found.gold_ids, "gold document"), "is" if found.unknown_gold_ids == 1 else "are"
        click.echo(f"{found.unknown_gold_ids:,} of {of} {verb} not in the snapshot", err=True)


_SNAPSHOT = {"version", "alias", "run", "manifest"}
_RETRIEVAL = {"method", "where", "settings", "rerank", "rerank_model", "rerank_depth", "principals", "unrestricted"}
_RECALL = {"processes", "output", "misses"}
_MODEL = {"model", "base_url", "api_key_env", "max_output_tokens", "max_questions"}
_ANSWERING = {
    *("judge_model", "dry_run", "token_budget", "concurrency", "answers"),
    *(one.parameter for family in METHODS.values() for one in family.answering_options),
}
_REFUSED = {
    "recall": _MODEL | _ANSWERING,
    "fit": _RETRIEVAL | _RECALL | _MODEL | _ANSWERING,
    "answer": _RECALL | {"judge_model"},
    "judge": _RECALL | {"method"},
    "make_questions": _SNAPSHOT | _RETRIEVAL | _RECALL | _ANSWERING | {"ks"},
}
"""The parameters that have no meaning, by what the command does: the option that says so, or recall."""


def _mode(ctx: click.Context) -> str:
    """What the command does; raises BadInput for options that have no meaning for that, or several of them."""
    given = {
        one.name: one.opts[0]
        for one in ctx.command.params
        if one.name and ctx.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
    }
    modes = [name for name in _REFUSED if name in given]
    if len(modes) > 1:
        raise BadInput("--fit, --answer, --judge and --make-questions each do something else: give one of them")
    mode = modes[0] if modes else "recall"
    if refused := sorted(given[name] for name in given.keys() & _REFUSED[mode]):
        why = f"{given[mode]} does not take that" if modes else "without --answer or --judge no question is answered"
        raise BadInput(f"{', '.join(refused)}: {why}")
    return mode


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


def _fit(options: Options, questions: Path, ks: str) -> None:
    from indexmill.evaluate.fit import fit
    from indexmill.evaluate.recall import read_questions

    with options.open_snapshot() as snapshot:
        asked = read_questions(questions)
        with Waiting(f"fitting weights to {counted(len(asked), 'question')}", only_terminals=True):
            found = fit(snapshot, asked, numbers(ks))
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
        bad = ConfigurationError(f"{path}: the weights cannot be recorded: {error}")
        raise DiskFull.of(error, path) or bad from error
    return path
