"""``indexmill evaluate --answer`` and ``--judge``: how well a model answers from what the methods find."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import Field, TypeAdapter, ValidationError

from indexmill.answer.answer_cache import AnswerCache, CachedLlm
from indexmill.answer.base import Bill
from indexmill.command.model import answering_settings, model_of, prompts_of
from indexmill.command.options import Options, numbers, parameters_by_method
from indexmill.command.retrieval import Reranking, principals_of
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput, ConfigurationError, DiskFull
from indexmill.evaluate.abstract_questions import abstract_questions
from indexmill.evaluate.answers import AnswerEvaluation, Asking, bill, evaluate_answers
from indexmill.evaluate.judging import CRITERIA, Judgement, bill_of_judging, judge
from indexmill.evaluate.recall import read_questions
from indexmill.mistakes import mistakes
from indexmill.models.llm import LLM
from indexmill.models.llm_errors import LlmUnusable
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.text.counted import counted
from indexmill.text.table import table


@dataclass(frozen=True)
class _Price:
    """What a model's tokens cost, by the section ``prices`` of the configuration."""

    input_per_million: Annotated[float, Field(ge=0)]
    output_per_million: Annotated[float, Field(ge=0)]
    currency: str = "USD"

    def of(self, billed: Bill) -> float:
        """What some tokens cost."""
        return (billed.input_tokens * self.input_per_million + billed.output_tokens * self.output_per_million) / 1e6


def evaluate_answers_of(
    options: Options,
    file: Path,
    method: str | None,
    judged: str | None,
    ks: str,
    by: Reranking,
    *,
    judge_model: str | None,
    max_questions: int | None,
    dry_run: bool,
    token_budget: int | None,
    concurrency: int | None,
    answers: Path | None,
    **answering: object,
) -> None:
    """Answer, score or judge, and print; the arguments are the options of the command."""
    with options.open_snapshot() as snapshot:
        named = judged or method or snapshot.default_method
        methods = [one.strip() for one in named.split(",") if one.strip()]
        if judged is not None and len(set(methods)) != 2:
            raise BadInput(f"--judge is {judged!r}; expected two methods separated by a comma, such as dense,fused")
        depths = numbers(ks)
        if len(depths) != 1 or depths[0] < 1:
            raise BadInput(f"-k is {ks!r}; expected one whole number of at least 1: how many hits are read")
        questions = read_questions(file, evidence=False)[:max_questions]
        llm = _model(options)
        judging = None if judged is None else llm if judge_model is None else _model(options, judge_model)
        cache = None if answers is None or dry_run else AnswerCache(answers)
        if cache is not None:
            llm, judging = CachedLlm(llm, cache), None if judging is None else CachedLlm(judging, cache)
        asking = Asking(
            llm,
            k=depths[0],
            token_budget=token_budget,
            where=options.where or None,
            concurrency=concurrency or 8,
            max_output_tokens=options.max_output_tokens or Asking.max_output_tokens,
            settings=answering_settings(methods, answering),
            parameters=parameters_by_method(options.settings, list(dict.fromkeys(methods))),
            prompts=prompts_of(options),
            principals=principals_of(options, UNRESTRICTED),
            **by._asdict(),
        )
        prices = {name: _price(options, name) for name in sorted({_name(one) for one in (llm, judging) if one})}
        bills: dict[str, tuple[str, Bill]] = {
            name: (_name(llm), its) for name, its in bill(snapshot, questions, methods, asking).items()
        }
        if judging is not None:
            taken = bill_of_judging(questions, asking.max_output_tokens, asking.prompts)
            bills["judging"] = (_name(judging), taken)
        if dry_run and options.json:
            told = {
                name: {"model": model, **its._asdict(), **_cost(prices[model], its)}
                for name, (model, its) in bills.items()
            }
            options.print_json({"version": snapshot.version, "questions": len(questions), "bill": told})
        elif not options.json:
            click.echo(_bill_table(len(questions), bills, prices) + ("" if dry_run else "\n"), err=not dry_run)
        if dry_run:
            return

        of = counted(len(questions), "question is", "questions are")
        with Waiting(f"answering {counted(len(questions), 'question')}", only_terminals=True) as waiting:

            def progress(name: str, done: int) -> None:
                said = f"{name}: {done:,} of {of} answered"
                if sys.stderr.isatty():
                    waiting.say(said)
                elif not options.json and done < len(questions):
                    click.echo(said, err=True)

            found = evaluate_answers(snapshot, questions, methods, asking, progress)
        _raise_where_nothing_came(found)
        judgement = None
        if judging is not None:
            first, second = ((name, result.answers) for name, result in found.methods.items())
            with Waiting(f"judging the answers to {counted(len(questions), 'question')}", only_terminals=True):
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
        saved = {} if cache is None else {"kept": {"file": str(cache.path), **cache.savings._asdict()}}
        options.print_json({**_as_json(found, judgement, judging, prices), **saved})
        return
    click.echo(_shown(found, options.snapshot_name(found.version), prices))
    if judgement is not None and judging is not None:
        click.echo(f"\n{_shown_judgement(judgement, _name(judging), prices)}")
    if cache is not None and cache.savings.calls:
        read, written = cache.savings.input_tokens, cache.savings.output_tokens
        said = f"{counted(cache.savings.calls, 'call was', 'calls were')} not made: their answers are in {cache.path}"
        click.echo(f"\n{said}, {counted(read, 'token')} read and {written:,} written")


def make_questions_of(options: Options, description: str, file: Path, max_questions: int | None) -> None:
    """Have questions written into a file that is not there yet; the arguments are the options of the command."""
    if file.exists():
        raise BadInput(f"{file}: is there already; name a file that the questions are to be written to")
    if not file.parent.is_dir():
        raise BadInput(f"{file}: cannot be written: {file.parent} is not a folder")
    llm = _model(options)
    prices = {_name(llm): _price(options, _name(llm))}
    limit = {} if options.max_output_tokens is None else {"max_output_tokens": options.max_output_tokens}
    with Waiting(f"waiting for questions by {_name(llm)}", only_terminals=True):
        found = abstract_questions(description, llm, prompts=prompts_of(options), **limit)
    kept = found.questions[:max_questions]
    if not kept:
        raise LlmUnusable("the model wrote no question")
    lines = ({"id": one.id, "question": one.question, "type": one.type} for one in kept)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    except OSError as error:
        raise DiskFull.of(error, file) or BadInput(f"{file}: cannot be written: {error.strerror or error}") from error
    model, billed = _name(llm), found.billed
    if options.json:
        told = {"file": str(file), "questions": len(kept), "model": model}
        options.print_json({**told, **billed._asdict(), **_cost(prices[model], billed)})
        return
    tokens = counted(billed.input_tokens + billed.output_tokens, "token")
    click.echo(f"{file}: {counted(len(kept), 'question')} by {model}, {tokens}")


def _price(options: Options, model: str) -> _Price | None:
    """The price of a model in the configuration file; None where it has none.

    Raises ConfigurationError for one that cannot be used.
    """
    section, _ = options.section("prices")
    adapter = TypeAdapter(_Price)
    try:
        return adapter.validate_python(section[model]) if model in section else None
    except ValidationError as error:
        raise ConfigurationError("; ".join(mistakes(error, adapter.json_schema(), f"prices.{model}"))) from None


def _model(options: Options, name: str | None = None) -> LLM:
    llm = model_of(options, name)
    if llm is None:
        raise BadInput(
            "there is no language model to answer: set llm.backend to openai and llm.model in the configuration file, "
            "or give --model"
        )
    return llm


def _name(llm: LLM) -> str:
    return str(llm.fingerprint.get("model", ""))


def _cost(price: _Price | None, billed: Bill) -> dict[str, Any]:
    """The cost and its currency as JSON holds them; None where the model has no price."""
    if price is None:
        return {"cost": None, "currency": None}
    return {"cost": round(price.of(billed), 6), "currency": price.currency}


def _money(price: _Price | None, billed: Bill) -> str:
    return "-" if price is None else f"{price.of(billed):.4f} {price.currency}"


def _bill_table(count: int, bills: Mapping[str, tuple[str, Bill]], prices: Mapping[str, _Price | None]) -> str:
    """What it takes, in a table of its own."""
    rows = [
        [name, model, its.calls, its.input_tokens, its.output_tokens, _money(prices[model], its)]
        for name, (model, its) in bills.items()
    ]
    header = ["", "model", "calls", "tokens to read", "to write at most", "cost at most"]
    return f"{counted(count, 'question')}; at most, without repairs and repeated calls:\n\n{table(header, rows)}"


def _raise_where_nothing_came(found: AnswerEvaluation) -> None:
    """Raise the first error where no question was answered by any method."""
    answers = [answer for result in found.methods.values() for answer in result.answers]
    errors = [answer.error for answer in answers if answer.error is not None]
    if errors and len(errors) == len(answers):
        raise errors[0]


def _as_json(
    found: AnswerEvaluation, judgement: Judgement | None, judging: LLM | None, prices: Mapping[str, _Price | None]
) -> dict[str, Any]:
    fields = found.to_dict()
    price = prices[found.model]
    for name, result in found.methods.items():
        fields["methods"][name] |= _cost(price, result.billed)
    if judgement is not None and judging is not None:
        model = _name(judging)
        fields["judge"] = {"model": model, **judgement.to_dict(), **_cost(prices[model], judgement.billed)}
    return fields


def _shown(found: AnswerEvaluation, snapshot: str, prices: Mapping[str, _Price | None]) -> str:
    rows = []
    for name, result in found.methods.items():
        scores, billed, count = result.scores, result.billed, len(result.answers)
        rows.append(
            [
                name,
                *(["-"] * 4 if scores is None else [f"{one:.4f}" for one in scores]),
                f"{result.context_tokens / count:.0f}",
                f"{(billed.input_tokens + billed.output_tokens) / count:.0f}",
                f"{billed.calls / count:.2f}",
                _money(prices[found.model], billed),
                result.unanswered,
            ]
        )
    header = ["method", "accuracy", "recall", "exact match", "F1", "context", "billed", "calls", "cost", "unanswered"]
    scored = max(result.scored for result in found.methods.values())
    asked = counted(len(found.questions), "question")
    said = f"{asked}, {scored:,} of them with a right answer; {snapshot}; by {found.model}"
    return (
        f"{said}\n\n{table(header, rows)}\n\ncontext and billed tokens and calls are of a question, the cost is of all"
    )


def _shown_judgement(judgement: Judgement, model: str, prices: Mapping[str, _Price | None]) -> str:
    rows = [[criterion, *judgement.won(criterion).values()] for criterion in CRITERIA]
    calls, cost = counted(judgement.billed.calls, "call"), _money(prices[model], judgement.billed)
    said = f"better answers, judged by {model} in {calls} (cost {cost}), both orders"
    if unjudged := sum(not one.winners for one in judgement.verdicts):
        said += f"; {counted(unjudged, 'question')} could not be judged"
    return f"{said}\n\n{table(['criterion', judgement.first, judgement.second, 'tie'], rows)}"
