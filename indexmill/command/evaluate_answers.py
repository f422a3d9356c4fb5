"""``indexmill evaluate --answer`` and ``--judge``: how well a model answers from what the methods find."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from indexmill.answer.answer_cache import AnswerCache, CachedLlm
from indexmill.answer.base import Bill
from indexmill.command.model import filtering_of, model_of, prompts_of
from indexmill.command.options import Options, numbers, parameters_by_method
from indexmill.command.reranker import Reranking
from indexmill.errors import BadInput, ConfigurationError, DiskFull
from indexmill.evaluate.abstract_questions import abstract_questions
from indexmill.evaluate.answers import AnswerEvaluation, Asking, bill, evaluate_answers
from indexmill.evaluate.judging import CRITERIA, Judgement, bill_of_judging, judge
from indexmill.evaluate.recall import read_questions
from indexmill.models.llm import LLM
from indexmill.models.llm_errors import LlmUnusable
from indexmill.text.counted import counted
from indexmill.text.table import table

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["Price", "evaluate_answers_of", "make_questions_of"]


_NO_MODEL = (
    "there is no language model to answer: set llm.backend to openai and llm.model in the configuration file, or give "
    "--model"
)


class Price(NamedTuple):
    """What a model's tokens cost, by the section ``prices`` of the configuration."""

    input_per_million: float
    output_per_million: float
    currency: str

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """What some tokens cost."""
        return (input_tokens * self.input_per_million + output_tokens * self.output_per_million) / 1e6


def evaluate_answers_of(
    options: Options,
    snapshot: Snapshot,
    run: str | None,
    file: Path,
    method: str | None,
    judged: str | None,
    ks: str,
    where: tuple[str, ...],
    settings: tuple[str, ...],
    by: Reranking,
    *,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    max_output_tokens: int | None,
    judge_model: str | None,
    max_questions: int | None,
    dry_run: bool,
    token_budget: int | None,
    concurrency: int | None,
    answers: Path | None,
    **answering: object,
) -> None:
    """Answer, score or judge, and print; closes the snapshot. The rest are the options of the command."""
    with snapshot:
        if judged is None and judge_model is not None:
            raise BadInput("--judge-model is of --judge: name the two methods that are compared")
        if judged is not None and method is not None:
            raise BadInput("--judge names the methods: leave --method out")
        named = judged or method or snapshot.default_method
        methods = [one.strip() for one in named.split(",") if one.strip()]
        if judged is not None and len(set(methods)) != 2:
            raise BadInput(f"--judge is {judged!r}; expected two methods separated by a comma, such as dense,fused")
        depths = numbers(ks)
        if len(depths) != 1 or depths[0] < 1:
            raise BadInput(f"-k is {ks!r}; expected one whole number of at least 1: how many hits are read")
        questions = read_questions(file, evidence=False)[:max_questions]
        llm: LLM | None = model_of(options, model, base_url, api_key_env)
        if llm is None:
            raise BadInput(_NO_MODEL)
        judging: LLM | None = None
        if judged is not None:
            judging = llm if judge_model is None else model_of(options, judge_model, base_url, api_key_env)
        kept = None if answers is None or dry_run else AnswerCache(answers)
        if kept is not None:
            llm, judging = CachedLlm(llm, kept), None if judging is None else CachedLlm(judging, kept)
        asking = Asking(
            llm,
            k=depths[0],
            token_budget=token_budget,
            where=where or None,
            concurrency=concurrency or 8,
            max_output_tokens=max_output_tokens or Asking.max_output_tokens,
            settings=filtering_of(methods, answering),
            parameters=parameters_by_method(settings, list(dict.fromkeys(methods))),
            prompts=prompts_of(options),
            **by._asdict(),
        )
        prices = {name: _price(options, name) for name in sorted({_name(one) for one in (llm, judging) if one})}
        bills: dict[str, tuple[str, Bill]] = {
            name: (_name(llm), its) for name, its in bill(snapshot, questions, methods, asking).items()
        }
        if judging is not None:
            taken = bill_of_judging(questions, asking.max_output_tokens, asking.prompts)
            bills["judging"] = (_name(judging), taken)
        if dry_run:
            _print_bill(options, snapshot.version, len(questions), bills, prices)
            return
        if not options.json:
            click.echo(_told(len(questions), bills, prices), err=True)

        def progress(name: str, done: int) -> None:
            if not options.json and done < len(questions):
                click.echo(f"{name}: {done:,} of {len(questions):,} questions are answered", err=True)

        found = evaluate_answers(snapshot, questions, methods, asking, progress)
        _raise_where_nothing_came(found)
        judgement = None
        if judging is not None:
            first, second = ((name, result.answers) for name, result in found.methods.items())
            judgement = judge(
                found.questions,
                first,
                second,
                judging,
                concurrency=asking.concurrency,
                max_output_tokens=asking.max_output_tokens,
                prompts=asking.prompts,
            )
    if options.json:
        spared = {} if kept is None else {"kept": {"file": str(kept.path), **kept.spared._asdict()}}
        options.print_json({**_as_json(found, judgement, judging, prices), **spared})
        return
    click.echo(_shown(found, run, prices))
    if judgement is not None and judging is not None:
        click.echo(f"\n{_shown_judgement(judgement, _name(judging), prices)}")
    if kept is not None and kept.spared.calls:
        read, written = kept.spared.input_tokens, kept.spared.output_tokens
        told = f"{counted(kept.spared.calls, 'call was', 'calls were')} not made: their answers are in {kept.path}"
        click.echo(f"\n{told}, {counted(read, 'token')} read and {written:,} written")


def make_questions_of(
    options: Options,
    description: str,
    file: Path,
    *,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    max_output_tokens: int | None,
    max_questions: int | None,
    **others: object,
) -> None:
    """Have questions written into a file that is not there yet. The rest are the options of the command."""
    if named := sorted(f"--{name.replace('_', '-')}" for name, value in others.items() if value):
        raise BadInput(f"{', '.join(named)}: with --make-questions no question is answered")
    if file.exists():
        raise BadInput(f"{file}: is there already; name a file that the questions are to be written to")
    if not file.parent.is_dir():
        raise BadInput(f"{file}: cannot be written: {file.parent} is not a folder")
    llm = model_of(options, model, base_url, api_key_env)
    if llm is None:
        raise BadInput(_NO_MODEL)
    prices = {_name(llm): _price(options, _name(llm))}
    limit = {} if max_output_tokens is None else {"max_output_tokens": max_output_tokens}
    found = abstract_questions(description, llm, prompts=prompts_of(options), **limit)
    kept = found.questions[:max_questions]
    if not kept:
        raise LlmUnusable("the model wrote no question")
    lines = ({"id": one.id, "question": one.question, "type": one.type} for one in kept)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    except OSError as error:
        if (full := DiskFull.of(error, file)) is not None:
            raise full from error
        raise BadInput(f"{file}: cannot be written: {error.strerror or error}") from error
    spent = (found.input_tokens, found.output_tokens)
    if options.json:
        told = {"file": str(file), "questions": len(kept), "model": _name(llm), "calls": found.calls}
        tokens = dict(zip(("input_tokens", "output_tokens"), spent, strict=True))
        options.print_json({**told, **tokens, **_cost(prices[_name(llm)], *spent)})
        return
    click.echo(f"{file}: {counted(len(kept), 'question')} by {_name(llm)}, {counted(sum(spent), 'token')}")


def _price(options: Options, model: str) -> Price | None:
    """The price of a model in the configuration file; None where it has none.

    Raises ConfigurationError for one that cannot be used.
    """
    section, _ = options.section("prices")
    given = section.get(model)
    if given is None:
        return None
    held = given if isinstance(given, Mapping) else {}
    amounts = [held.get(name) for name in ("input_per_million", "output_per_million")]
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) and one >= 0 for one in amounts):
        raise ConfigurationError(f"prices.{model} is {given!r}; expected input_per_million and output_per_million")
    read, written = (float(one) for one in amounts if one is not None)
    return Price(read, written, str(held.get("currency", "USD")))


def _name(llm: LLM) -> str:
    return str(llm.fingerprint.get("model", ""))


def _cost(price: Price | None, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """The cost and its currency as JSON holds them; None where the model has no price."""
    if price is None:
        return {"cost": None, "currency": None}
    return {"cost": round(price.of(input_tokens, output_tokens), 6), "currency": price.currency}


def _money(price: Price | None, input_tokens: int, output_tokens: int) -> str:
    return "-" if price is None else f"{price.of(input_tokens, output_tokens):.4f} {price.currency}"


def _told(count: int, bills: Mapping[str, tuple[str, Bill]], prices: Mapping[str, Price | None]) -> str:
    """What it takes, in a table of its own."""
    rows = [
        [name, model, its.calls, its.input_tokens, its.output_tokens, _money(prices[model], *its[1:])]
        for name, (model, its) in bills.items()
    ]
    header = ["", "model", "calls", "tokens to read", "to write at most", "cost at most"]
    return f"{counted(count, 'question')}; at most, without repairs and repeated calls:\n\n{table(header, rows)}\n"


def _print_bill(
    options: Options,
    version: int | None,
    count: int,
    bills: Mapping[str, tuple[str, Bill]],
    prices: Mapping[str, Price | None],
) -> None:
    if not options.json:
        click.echo(_told(count, bills, prices).rstrip("\n"))
        return
    told = {
        name: {"model": model, **its._asdict(), **_cost(prices[model], its.input_tokens, its.output_tokens)}
        for name, (model, its) in bills.items()
    }
    options.print_json({"version": version, "questions": count, "bill": told})


def _raise_where_nothing_came(found: AnswerEvaluation) -> None:
    """Raise the first error where no question was answered by any method."""
    answers = [answer for result in found.methods.values() for answer in result.answers]
    errors = [answer.error for answer in answers if answer.error is not None]
    if errors and len(errors) == len(answers):
        raise errors[0]


def _as_json(
    found: AnswerEvaluation, judgement: Judgement | None, judging: LLM | None, prices: Mapping[str, Price | None]
) -> dict[str, Any]:
    fields = found.to_dict()
    price = prices[found.model]
    for name, result in found.methods.items():
        fields["methods"][name] |= _cost(price, result.input_tokens, result.output_tokens)
    if judgement is not None and judging is not None:
        model = _name(judging)
        told = judgement.to_dict()
        fields["judge"] = {"model": model, **told, **_cost(prices[model], told["input_tokens"], told["output_tokens"])}
    return fields


def _shown(found: AnswerEvaluation, run: str | None, prices: Mapping[str, Price | None]) -> str:
    rows = []
    for name, result in found.methods.items():
        scores, count = result.scores, len(result.answers)
        rows.append(
            [
                name,
                *(["-"] * 4 if scores is None else [f"{one:.4f}" for one in scores]),
                f"{result.context_tokens / count:.0f}",
                f"{(result.input_tokens + result.output_tokens) / count:.0f}",
                f"{result.calls / count:.2f}",
                _money(prices[found.model], result.input_tokens, result.output_tokens),
                result.unanswered,
            ]
        )
    unnumbered = "exported snapshot" if run is None else f"candidate of run {run}"
    which = unnumbered if found.version is None else f"version {found.version}"
    header = ["method", "accuracy", "recall", "exact match", "F1", "context", "billed", "calls", "cost", "unanswered"]
    scored = max(result.scored for result in found.methods.values())
    asked = counted(len(found.questions), "question")
    said = f"{asked}, {scored:,} of them with a right answer; {which}; by {found.model}"
    return (
        f"{said}\n\n{table(header, rows)}\n\ncontext and billed tokens and calls are of a question, the cost is of all"
    )


def _shown_judgement(judgement: Judgement, model: str, prices: Mapping[str, Price | None]) -> str:
    rows: list[Sequence[object]] = []
    for criterion in CRITERIA:
        won = judgement.won(criterion)
        rows.append([criterion, won["first"], won["second"], won["tie"]])
    told = judgement.to_dict()
    cost = _money(prices[model], told["input_tokens"], told["output_tokens"])
    said = f"better answers, judged by {model} in {counted(told['calls'], 'call')} (cost {cost}), both orders"
    if told["unjudged"]:
        said += f"; {counted(told['unjudged'], 'question')} could not be judged"
    return f"{said}\n\n{table(['criterion', judgement.first, judgement.second, 'tie'], rows)}"
