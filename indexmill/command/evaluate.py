"""``indexmill evaluate``: measure how well methods find known evidence, and how well models answer from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from indexmill.command.model import answering_options, model_options
from indexmill.command.options import Options, common, numbers, parameters_by_method
from indexmill.command.retrieval import retrieval_of, retrieval_options
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput, ConfigurationError, DiskFull
from indexmill.extras import not_installed
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import load
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.text.counted import counted
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from indexmill.evaluate.recall import MethodResult


@click.command("evaluate")
@click.argument("questions", type=click.Path(path_type=Path))
@click.option(
    "--method",
    "-m",
    metavar="NAMES",
    help="Methods, separated by commas; by default all methods in the snapshot, or with --answer only the best.",
)
@click.option(
    "-k",
    "--k",
    "ks",
    metavar="NUMBERS",
    help="Measure recall at these depths, 5,10 by default; with --answer, --oracle and --judge: the hits to read, 5 by "
    "default.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="Fit the weights of fused retrieval to these questions and write them into the configuration.",
)
@click.option("--answer", is_flag=True, help="Have a language model answer the questions, and score the answers.")
@click.option(
    "--oracle", is_flag=True, help="Show how many right answers stand in the hits: what a perfect reader would answer."
)
@click.option(
    "--judge",
    metavar="A,B",
    help="Have a language model answer the questions by two methods, and judge which answers are better.",
)
@click.option(
    "--make-questions",
    metavar="DESCRIPTION",
    help="Have a language model write questions about a collection with this description into QUESTIONS, for --judge.",
)
@click.option("--judge-model", metavar="NAME", help="The model that judges; by default the one that answers.")
@model_options
@click.option(
    "--max-questions",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --answer, --oracle and --judge: the first N questions.",
)
@click.option("--dry-run", is_flag=True, help="With --answer and --judge: show calls, tokens and cost; ask no model.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="With --answer, --oracle and --judge: limit the hits that are read to T tokens.",
)
@answering_options
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help="With --answer and --judge: calls in flight at once; by default llm.concurrency of the configuration "
    "file, or 8.",
)
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --answer and --judge: cache the model's answers in FILE.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a JSON line per method and question: ranks of the gold documents, recall, hits and time.",
)
@click.option(
    "--misses",
    metavar="[N]",
    is_flag=False,
    flag_value=10,
    type=click.IntRange(min=1),
    help="Show questions with missed evidence, at most N per method, 10 by default, and the hits found instead.",
)
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Retrieve in N processes, such as one per core; 1 by default.",
)
@retrieval_options
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
    oracle: bool,
    **answering: Any,
) -> None:
    """Measure how well retrieval methods find known evidence, on the QUESTIONS of a JSON Lines file.

    A line is {"id", "question", "gold_ids"}, optionally with "type" and "answer"; gold_ids are the documents that
    contain the evidence. Recall@k is the share of them among the first k distinct documents, averaged over questions.

    --output results.jsonl stores the results of every method and question, enough to compute any table later. --misses
    shows where evidence is missed: the hits ranked above it often show why.

    Try a setting with --set before you publish it: `--method dense --set title=0.1`, or, for several methods, `--set
    dense.title=0.1 --set fused.pool=100`. Tune and test on different questions.

    --fit chooses weights on the even-numbered questions and tests them on the odd-numbered ones. If recall does not
    drop on the latter, the weights are written into the configuration file, and the next build publishes them.

    With --answer, the language model of the configuration, or --model, answers the questions. Each answer is compared
    with "answer", a string or a list of accepted strings: whether the answer contains it (accuracy), the share of its
    words that the answer contains (recall), exact match and F1. Every run pays for every question: try --dry-run first,
    and use --answers FILE, from which an interrupted run continues.

    With --oracle, no model is needed: it counts the questions whose "answer" stands in a hit, about the most that a
    model could answer from them. Answers "yes" and "no" do not count. Compare methods at equal cost: `--oracle -k 100
    --token-budget 1000`.

    All documents are read, regardless of access rights, unless --as names groups.

    With --judge A,B, the model answers by both methods and judges which answer covers more, is richer, helps more, and
    is clearer. The questions need neither gold_ids nor "answer"; --make-questions writes such questions.
    """
    mode = _mode(click.get_current_context())
    if mode == "make_questions" and make_questions is not None:
        from indexmill.command.evaluate_answers import make_questions_of

        make_questions_of(options, make_questions, questions, answering["max_questions"])
        return
    retrieval = retrieval_of(options, UNRESTRICTED)
    if mode in ("answer", "judge"):
        from indexmill.command.evaluate_answers import evaluate_answers_of

        evaluate_answers_of(options, questions, method, judge, "5" if ks is None else ks, retrieval, **answering)
        return
    if mode == "oracle":
        from indexmill.command.evaluate_answers import evaluate_oracle_of

        evaluate_oracle_of(options, questions, method, "5" if ks is None else ks, retrieval, **answering)
        return
    ks = "5,10" if ks is None else ks
    if mode == "fit":
        _fit(options, questions, ks)
        return
    from indexmill.command.misses import misses_of, shown_misses, titles_of
    from indexmill.evaluate.recall import evaluate, read_questions
    from indexmill.results import write_results
    from indexmill.retrieve.legibility import illegible_line

    methods = None if method is None else [name.strip() for name in method.split(",") if name.strip()]
    question_set = read_questions(questions)
    if output is not None and not output.parent.is_dir():
        raise BadInput(f"--output {output}: the folder {output.parent} does not exist")
    with options.open_snapshot(processes or 1) as snapshot:
        parameters = parameters_by_method(options.settings, list(dict.fromkeys(methods or snapshot.methods)))
        with Waiting(f"measuring {counted(len(question_set), 'question')}", only_terminals=True):
            evaluation = evaluate(
                snapshot, question_set, methods, numbers(ks), parameters=parameters, options=retrieval
            )
            titles = {} if misses is None else titles_of(snapshot)
        illegible = illegible_line(snapshot.manifest)
    if illegible:
        click.echo(illegible, err=True)
    if output is not None:
        write_results(
            output, (result for method_result in evaluation.methods.values() for result in method_result.each)
        )
    depths = sorted({k for result in evaluation.methods.values() for k in result.recall})
    misses_by_method = {}
    if misses is not None:
        misses_by_method = {
            name: misses_of(result.each, depths[0], misses, titles) for name, result in evaluation.methods.items()
        }
    if options.json:
        more: dict[str, Any] = {"parameters": parameters} if parameters else {}
        more |= {"output": str(output)} if output is not None else {}
        options.print_json(
            {**evaluation.to_dict(), **more, **({"misses": misses_by_method} if misses_by_method else {})}
        )
        return
    rows = [
        [
            name,
            *(f"{result.recall[k]:.4f}" for k in depths),
            "-" if result.tokens_per_question is None else f"{result.tokens_per_question:.0f}",
            f"{result.milliseconds_per_question:.2f}",
            f"{result.encode_milliseconds_per_question:.2f}",
        ]
        for name, result in evaluation.methods.items()
    ]
    click.echo(f"{counted(len(question_set), 'question')}, {options.snapshot_name(evaluation.version)}\n")
    click.echo(table(["method", *(f"recall@{k}" for k in depths), "tokens", "ms", "ms to encode"], rows))
    if by_type := _types_table(evaluation.methods, depths):
        click.echo("\n" + by_type)
    for family in METHODS.values():
        if family.statistics is not None and (statistics := evaluation.statistics.get(family.statistics.key)):
            click.echo("\n" + load(family.statistics.module).listing(statistics))
    for name, method_misses in misses_by_method.items():
        click.echo("\n" + shown_misses(name, method_misses, len(question_set), depths[-1]))
    if evaluation.unknown_gold_ids:
        of, verb = counted(evaluation.gold_ids, "gold document"), "is" if evaluation.unknown_gold_ids == 1 else "are"
        click.echo(f"{evaluation.unknown_gold_ids:,} of {of} {verb} not in the snapshot", err=True)


_SNAPSHOT = {"version", "alias", "run", "manifest"}
_RETRIEVAL = {"method", "where", "settings", "rerank", "rerank_model", "rerank_depth", "principals", "unrestricted"}
_RECALL = {"processes", "output", "misses"}
_MODEL = {"model", "base_url", "api_key_env", "max_output_tokens", "max_questions"}
_OPTIONS = [option for family in METHODS.values() for option in family.answering_options]
_ANSWERING = {
    *("judge_model", "dry_run", "token_budget", "concurrency", "answers"),
    *(option.parameter for option in _OPTIONS),
}
_MEANINGLESS = {
    "recall": _MODEL | _ANSWERING,
    "fit": _RETRIEVAL | _RECALL | _MODEL | _ANSWERING,
    "answer": _RECALL | {"judge_model"},
    "oracle": _RECALL
    | (_MODEL - {"max_questions"})
    | {
        *("judge_model", "dry_run", "concurrency", "answers"),
        *(option.parameter for option in _OPTIONS if not option.shapes_texts),
    },
    "judge": _RECALL | {"method"},
    "make_questions": _SNAPSHOT | _RETRIEVAL | _RECALL | _ANSWERING | {"ks"},
}
"""The parameters that have no effect in each mode. A mode is named by the option that selects it, or `recall`."""


def _mode(ctx: click.Context) -> str:
    """Choose the mode of the command; raises BadInput for several modes, and for options without effect in the mode."""
    given_options = {
        parameter.name: parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    }
    modes = [name for name in _MEANINGLESS if name in given_options]
    if len(modes) > 1:
        raise BadInput("--fit, --answer, --oracle, --judge and --make-questions are mutually exclusive: give only one")
    mode = modes[0] if modes else "recall"
    if meaningless := given_options.keys() & _MEANINGLESS[mode]:
        others = [f"--{name.replace('_', '-')}" for name in _MEANINGLESS if not meaningless & _MEANINGLESS[name]]
        applies = f"it applies only with {' or '.join(others)}"
        why = f"{given_options[mode]} does not accept that" if modes else applies
        raise BadInput(f"{', '.join(sorted(given_options[name] for name in meaningless))}: {why}")
    return mode


def _types_table(methods: Mapping[str, MethodResult], depths: Sequence[int]) -> str | None:
    """Format recall by question type, a line per type and method; None if there are fewer than two types."""
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
        question_set = read_questions(questions)
        with Waiting(f"fitting weights to {counted(len(question_set), 'question')}", only_terminals=True):
            fitted = fit(snapshot, question_set, numbers(ks))
    recorded = None
    if fitted.better:
        recorded = record_weights(options.configuration_path(), fitted.weights)
    if options.json:
        options.print_json({**fitted.to_dict(), "recorded": None if recorded is None else str(recorded)})
        return
    rows = [[name, f"{fitted.before[name]:g}", f"{fitted.weights[name]:g}"] for name in fitted.weights]
    click.echo(table(["method", "weight before", "after"], rows))
    for which, (before, after) in (("chosen on even", fitted.chosen_on), ("validated on odd", fitted.proven_on)):
        click.echo(f"{which}-numbered questions: mean recall {before:.4f} before, {after:.4f} after")
    if recorded is not None:
        click.echo(f"recorded in {recorded}; the next build publishes them")
    elif fitted.better:
        click.echo("no configuration file: write the weights under families.fused.parameters, or give --config")
    else:
        click.echo("the weights are unchanged: no others are better on both halves")


def record_weights(path: Path | None, weights: Mapping[str, float]) -> Path | None:
    """Write the weights of fused retrieval into a configuration file, without changing the rest of the file.

    Returns the file, or None if it does not exist. Raises ConfigurationError if the file cannot be rewritten,
    ModelUnavailable without ruamel.yaml.
    """
    if path is None or not path.is_file():
        return None
    try:
        import ruamel.yaml.error as yaml_errors
        from ruamel.yaml import YAML  # keeps comments and order; comes with the pipeline
    except ImportError as error:
        raise not_installed(f"{path}: writing it", "ruamel", error) from error
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    try:
        content = yaml.load(path.read_text(encoding="utf-8")) or {}
        section = content
        for name in ("families", "fused", "parameters"):
            if section.get(name) is None:
                section[name] = {}
            section = section[name]
        section.update(weights)
        draft = path.with_name(path.name + ".new")
        with draft.open("w", encoding="utf-8") as file:
            yaml.dump(content, file)
        draft.replace(path)
    except (OSError, AttributeError, ValueError, yaml_errors.YAMLError) as error:
        bad = ConfigurationError(f"{path}: the weights cannot be recorded: {error}")
        raise DiskFull.of(error, path) or bad from error
    return path
