"""``indexmill evaluate``: how well a snapshot's methods find known evidence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from indexmill.command.options import Options, candidate, common, filtered, opened, pinned, table
from indexmill.errors import BadInput, ConfigurationError

__all__ = ["command", "communities_table", "record_weights"]


@click.command("evaluate")
@click.argument("questions", type=click.Path(path_type=Path))
@click.option(
    "--method", "-m", metavar="NAMES", help="Methods, separated by commas; all that the snapshot holds by default."
)
@click.option("-k", "--k", "ks", metavar="NUMBERS", default="5,10", show_default=True, help="Where recall is taken.")
@click.option(
    "--fit",
    is_flag=True,
    help="Find the weights of fused retrieval on these questions and record them in the configuration.",
)
@filtered
@candidate
@pinned
@common
def command(
    options: Options,
    questions: Path,
    method: str | None,
    ks: str,
    fit: bool,
    where: tuple[str, ...],
    version: int | None,
    alias: str | None,
    run: str | None,
) -> None:
    """Evidence recall of retrieval methods on the QUESTIONS of a JSON Lines file.

    A line is {"id", "question", "gold_ids"}, and optionally {"type"}: gold_ids are the documents that hold the
    evidence. Recall@k is the part of them among the first k distinct documents, averaged over the questions.

    With --fit, weights are chosen on the even-numbered questions and proven on the odd-numbered ones. Those that do no
    worse there go into the configuration file, and with the next build into the snapshot.
    """
    if fit:
        _fit(options, questions, ks, version, alias, run)
        return
    from indexmill.evaluate import evaluate, read_questions

    methods = None if method is None else [name.strip() for name in method.split(",") if name.strip()]
    asked = read_questions(questions)
    with opened(options, version, alias, run) as snapshot:
        found = evaluate(snapshot, asked, methods, _numbers(ks), where=where or None)
    if options.json:
        options.print_json(found.to_dict())
        return
    depths = sorted({k for result in found.methods.values() for k in result.recall})
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
    click.echo(f"{len(asked)} questions, {which}\n")
    click.echo(table(["method", *(f"recall@{k}" for k in depths), "tokens", "ms", "ms to encode"], rows))
    if found.communities:
        click.echo("\n" + communities_table(found.communities))
    if found.unknown_gold_ids:
        click.echo(f"{found.unknown_gold_ids} of {found.gold_ids} gold documents are not in the snapshot", err=True)


def communities_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    """How many communities each level has, and how good they are, as people read it."""
    rows = [
        [
            level,
            f"{one['communities']:,}",
            "-" if one["chi"] is None else f"{one['chi']:.3f}",
            "-" if one["sim"] is None else f"{one['sim']:.4f}",
        ]
        for level, one in levels.items()
    ]
    return table(["level", "communities", "CHI", "Sim"], rows)


def _fit(options: Options, questions: Path, ks: str, version: int | None, alias: str | None, run: str | None) -> None:
    from indexmill.evaluate import read_questions
    from indexmill.fit import fit

    with opened(options, version, alias, run) as snapshot:
        found = fit(snapshot, read_questions(questions), _numbers(ks))
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

    Returns the file, None where there is none. Raises ConfigurationError where it cannot be rewritten.
    """
    if path is None or not path.is_file():
        return None
    try:
        import ruamel.yaml.error as yaml_errors
        from ruamel.yaml import YAML  # keeps comments and order; the pipeline's
    except ImportError as error:
        raise ConfigurationError(f"{path}: writing it needs ruamel.yaml: pip install 'indexmill[pipeline]'") from error
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
        raise ConfigurationError(f"{path}: the weights cannot be recorded: {error}") from error
    return path


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise BadInput(f"-k is {text!r}; expected whole numbers separated by commas, such as 5,10") from error
    if not numbers:
        raise BadInput("-k is empty; expected whole numbers separated by commas, such as 5,10")
    return numbers
