"""``indexmill evaluate``: how well a snapshot's methods find known evidence."""

from __future__ import annotations

from pathlib import Path

import click

import indexmill
from indexmill.command.options import Options, common, filtered, pinned, table
from indexmill.errors import BadInput

__all__ = ["command"]


@click.command("evaluate")
@click.argument("questions", type=click.Path(path_type=Path))
@click.option(
    "--method", "-m", metavar="NAMES", help="Methods, separated by commas; all that the snapshot holds by default."
)
@click.option("-k", "--k", "ks", metavar="NUMBERS", default="5,10", show_default=True, help="Where recall is taken.")
@filtered
@pinned
@common
def command(
    options: Options,
    questions: Path,
    method: str | None,
    ks: str,
    where: tuple[str, ...],
    version: int | None,
    alias: str | None,
) -> None:
    """Evidence recall of retrieval methods on the QUESTIONS of a JSON Lines file.

    A line is {"id", "question", "gold_ids"}, and optionally {"type"}: gold_ids are the documents that hold the
    evidence. Recall@k is the part of them among the first k distinct documents, averaged over the questions.
    """
    from indexmill.evaluate import evaluate, read_questions

    methods = None if method is None else [name.strip() for name in method.split(",") if name.strip()]
    asked = read_questions(questions)
    with indexmill.open(options.store_path(), version=version, alias=alias) as snapshot:
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
    which = "exported snapshot" if found.version is None else f"version {found.version}"
    click.echo(f"{len(asked)} questions, {which}\n")
    click.echo(table(["method", *(f"recall@{k}" for k in depths), "tokens", "ms", "ms to encode"], rows))
    if found.unknown_gold_ids:
        click.echo(f"{found.unknown_gold_ids} of {found.gold_ids} gold documents are not in the snapshot", err=True)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise BadInput(f"-k is {text!r}; expected whole numbers separated by commas, such as 5,10") from error
    if not numbers:
        raise BadInput("-k is empty; expected whole numbers separated by commas, such as 5,10")
    return numbers
