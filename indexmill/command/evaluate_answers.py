"""``indexmill evaluate --answer`` and ``--judge``: measure how well a model answers from the hits of each method."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import Field, TypeAdapter, ValidationError

from indexmill.answer.answer_cache import AnswerCache, CachedLlm
from indexmill.answer.answer_types import AnswerKeywords, AnswerOptions, Bill
from indexmill.answer.scores import margin, with_margin
from indexmill.command.model import answering_settings, model_of, prompts_of
from indexmill.command.options import Options, numbers, parameters_by_method
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput, ConfigurationError, DiskFull
from indexmill.evaluate.abstract_questions import abstract_questions
from indexmill.evaluate.answer_evaluation import AnswerEvaluation, bill, evaluate_answers
from indexmill.evaluate.judging import CRITERIA, Judgement, bill_of_judging, judge
from indexmill.evaluate.oracle import ask_oracle
from indexmill.evaluate.recall import read_questions
from indexmill.mistakes import mistakes
from indexmill.models.llm import LLM
from indexmill.models.llm_errors import LlmUnusable
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.text.counted import counted
from indexmill.text.text_table import table


@dataclass(frozen=True)
class _Price:
    """The prices of a model's tokens, from the section ``prices`` of the configuration."""

    input_per_million: Annotated[float, Field(ge=0)]
    output_per_million: Annotated[float, Field(ge=0)]
    currency: str = "USD"

    def of(self, bill: Bill) -> float:
        return (bill.input_tokens * self.input_per_million + bill.output_tokens * self.output_per_million) / 1e6


def evaluate_answers_of(
    options: Options,
    file: Path,
    method: str | None,
    judged: str | None,
    ks: str,
    retrieval: RetrievalOptions,
    *,
    judge_model: str | None,
    max_questions: int | None,
    dry_run: bool,
    token_budget: int | None,
    concurrency: int | None,
    answers: Path | None,
    **answering: object,
) -> None:
    """Answer the questions, score or judge the answers, and print the result; arguments are the command's options."""
    with options.open_snapshot() as snapshot:
        methods = _names(judged or method or snapshot.default_method)
        if judged is not None and len(set(methods)) != 2:
            raise BadInput(f"--judge is {judged!r}; expected two methods separated by a comma, such as dense,fused")
        depth = _depth(ks)
        questions = read_questions(file, evidence=False)[:max_questions]
        llm = _model(options)
        judging = None if judged is None else llm if judge_model is None else _model(options, judge_model)
        cache = None if answers is None or dry_run else AnswerCache(answers)
        if cache is not None:
            llm, judging = CachedLlm(llm, cache), None if judging is None else CachedLlm(judging, cache)
        prompts = prompts_of(options)
        shared: AnswerKeywords = {
            "llm": llm,
            "k": depth,
            "token_budget": token_budget,
            "concurrency": concurrency or _concurrency_of(options),
            "max_output_tokens": options.max_output_tokens or AnswerOptions.max_output_tokens,
            "prompts": prompts,
        }
        asking = AnswerOptions.of(retrieval, shared)
        by_method = _by_method(options, methods, asking, answering)
        prices = {name: _price(options, name) for name in sorted({_name(model) for model in (llm, judging) if model})}
        bills: dict[str, tuple[str, Bill]] = {
            name: (_name(llm), model_bill) for name, model_bill in bill(snapshot, questions, by_method).items()
        }
        if judging is not None:
            judging_bill = bill_of_judging(questions, asking.max_output_tokens, prompts)
            bills["judging"] = (_name(judging), judging_bill)
        if dry_run and options.json:
            bills_json = {
                name: {"model": model, **model_bill._asdict(), **_cost(prices[model], model_bill)}
                for name, (model, model_bill) in bills.items()
            }
            options.print_json({"version": snapshot.version, "questions": len(questions), "bill": bills_json})
        elif not options.json:
            click.echo(_bill_table(len(questions), bills, prices) + ("" if dry_run else "\n"), err=not dry_run)
        if dry_run:
            return

        total = counted(len(questions), "question is", "questions are")
        with Waiting(f"answering {counted(len(questions), 'question')}", only_terminals=True) as waiting:

            def progress(name: str, done: int) -> None:
                message = f"{name}: {done:,} of {total} answered"
                if sys.stderr.isatty():
                    waiting.say(message)
                elif not options.json and done < len(questions):
                    click.echo(message, err=True)

            evaluation = evaluate_answers(snapshot, questions, by_method, progress)
        _raise_where_nothing_came(evaluation)
        judgement = None
        if judging is not None:
            first, second = ((name, result.answers) for name, result in evaluation.methods.items())
            with Waiting(f"judging the answers to {counted(len(questions), 'question')}", only_terminals=True):
                judgement = judge(
                    evaluation.questions,
                    first,
                    second,
                    judging,
                    concurrency=asking.concurrency,
                    max_output_tokens=asking.max_output_tokens,
                    prompts=prompts,
                )
    if options.json:
        cache_report = {} if cache is None else {"kept": {"file": str(cache.path), **cache.savings._asdict()}}
        options.print_json({**_as_json(evaluation, judgement, judging, prices), **cache_report})
        return
    click.echo(_shown(evaluation, options.snapshot_name(evaluation.version), prices))
    if judgement is not None and judging is not None:
        click.echo(f"\n{_shown_judgement(judgement, _name(judging), prices)}")
    if cache is not None and cache.savings.calls:
        read, written = cache.savings.input_tokens, cache.savings.output_tokens
        message = f"{counted(cache.savings.calls, 'call was', 'calls were')} saved: their answers are in {cache.path}"
        click.echo(f"\n{message}, {counted(read, 'token')} read and {written:,} written")


def evaluate_oracle_of(
    options: Options,
    file: Path,
    method: str | None,
    ks: str,
    retrieval: RetrievalOptions,
    *,
    max_questions: int | None,
    token_budget: int | None,
    **answering: object,
) -> None:
    """Print how many right answers the hits of each method contain; arguments are the command's options."""
    questions = read_questions(file, evidence=False)[:max_questions]
    with options.open_snapshot() as snapshot:
        methods = _names(method or ",".join(snapshot.methods))
        asking = AnswerOptions.of(retrieval, {"k": _depth(ks), "token_budget": token_budget})
        with Waiting(f"looking for the answers to {counted(len(questions), 'question')}", only_terminals=True):
            results = ask_oracle(snapshot, questions, _by_method(options, methods, asking, answering))
        version = snapshot.version
    if options.json:
        by_method = {name: result.to_dict(questions) for name, result in results.items()}
        options.print_json({"version": version, "methods": by_method})
        return
    rows = [
        [name, with_margin(result.accuracy, margin(result.scored)), f"{result.context_tokens / len(questions):.0f}"]
        for name, result in results.items()
    ]
    scored = len(next(iter(results.values())).scored)
    heading = f"{counted(len(questions), 'question')}, {scored:,} of them with an answer in words"
    click.echo(
        f"{heading}; {options.snapshot_name(version)}\n\n{table(['method', 'answers in the hits', 'tokens'], rows)}"
    )


def _names(methods: str) -> list[str]:
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise BadInput(f"--method is {methods!r}; expected the name of a method")
    return names


def _depth(ks: str) -> int:
    depths = numbers(ks)
    if len(depths) != 1 or depths[0] < 1:
        raise BadInput(f"-k is {ks!r}; expected one whole number of at least 1, the number of hits to read")
    return depths[0]


def _by_method(
    options: Options, methods: Sequence[str], asking: AnswerOptions, answering: Mapping[str, object]
) -> dict[str, AnswerOptions]:
    """Return the options of each method, with its parameters and its settings."""
    settings = answering_settings(methods, answering)
    parameters = parameters_by_method(options.settings, list(dict.fromkeys(methods)))
    return {
        name: replace(asking, method=name, parameters=parameters.get(name, {}), answering=settings.get(name))
        for name in methods
    }


def _concurrency_of(options: Options) -> int:
    """Return the maximum number of calls at once: that of the configuration file, or the default of answers."""
    section, _ = options.section("llm")
    most = section.get("concurrency", AnswerOptions.concurrency)
    if not isinstance(most, int) or most < 1:
        raise BadInput(f"llm.concurrency is {most!r}; expected a whole number of at least 1")
    return most


def make_questions_of(options: Options, description: str, file: Path, max_questions: int | None) -> None:
    """Have a model write questions into a new file; the arguments are the command's options."""
    if file.exists():
        raise BadInput(f"{file}: already exists; name a new file for the questions")
    if not file.parent.is_dir():
        raise BadInput(f"{file}: cannot be written: {file.parent} is not a folder")
    llm = _model(options)
    prices = {_name(llm): _price(options, _name(llm))}
    limit = {} if options.max_output_tokens is None else {"max_output_tokens": options.max_output_tokens}
    with Waiting(f"waiting for questions by {_name(llm)}", only_terminals=True):
        written = abstract_questions(description, llm, prompts=prompts_of(options), **limit)
    questions = written.questions[:max_questions]
    if not questions:
        raise LlmUnusable("the model wrote no question")
    lines = ({"id": question.id, "question": question.question, "type": question.type} for question in questions)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    except OSError as error:
        raise DiskFull.of(error, file) or BadInput(f"{file}: cannot be written: {error.strerror or error}") from error
    model, bill = _name(llm), written.billed
    if options.json:
        report = {"file": str(file), "questions": len(questions), "model": model}
        options.print_json({**report, **bill._asdict(), **_cost(prices[model], bill)})
        return
    tokens = counted(bill.input_tokens + bill.output_tokens, "token")
    click.echo(f"{file}: {counted(len(questions), 'question')} by {model}, {tokens}")


def _price(options: Options, model: str) -> _Price | None:
    """Read a model's price from the configuration file; None if it has none. Raises ConfigurationError."""
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
            "no language model is configured: set llm.backend to openai and llm.model in the configuration file, "
            "or give --model"
        )
    return llm


def _name(llm: LLM) -> str:
    return str(llm.fingerprint.get("model", ""))


def _cost(price: _Price | None, bill: Bill) -> dict[str, Any]:
    """Return the cost and its currency as JSON fields, which are None if the model has no price."""
    if price is None:
        return {"cost": None, "currency": None}
    return {"cost": round(price.of(bill), 6), "currency": price.currency}


def _money(price: _Price | None, bill: Bill) -> str:
    return "-" if price is None else f"{price.of(bill):.4f} {price.currency}"


def _bill_table(count: int, bills: Mapping[str, tuple[str, Bill]], prices: Mapping[str, _Price | None]) -> str:
    """Format the expected calls, tokens and cost as a table."""
    rows = [
        [name, model, bill.calls, bill.input_tokens, bill.output_tokens, _money(prices[model], bill)]
        for name, (model, bill) in bills.items()
    ]
    header = ["", "model", "calls", "tokens to read", "to write at most", "cost at most"]
    return f"{counted(count, 'question')}; at most, without repairs and repeated calls:\n\n{table(header, rows)}"


def _raise_where_nothing_came(evaluation: AnswerEvaluation) -> None:
    """Raise the first error if no method answered any question."""
    answers = [answer for result in evaluation.methods.values() for answer in result.answers]
    errors = [answer.error for answer in answers if answer.error is not None]
    if errors and len(errors) == len(answers):
        raise errors[0]


def _as_json(
    evaluation: AnswerEvaluation, judgement: Judgement | None, judging: LLM | None, prices: Mapping[str, _Price | None]
) -> dict[str, Any]:
    fields = evaluation.to_dict()
    price = prices[evaluation.model]
    for name, result in evaluation.methods.items():
        fields["methods"][name] |= _cost(price, result.billed)
    if judgement is not None and judging is not None:
        model = _name(judging)
        fields["judge"] = {"model": model, **judgement.to_dict(), **_cost(prices[model], judgement.billed)}
    return fields


def _shown(evaluation: AnswerEvaluation, snapshot: str, prices: Mapping[str, _Price | None]) -> str:
    rows = []
    for name, result in evaluation.methods.items():
        scores, margins, bill, count = result.scores, result.margins, result.billed, len(result.answers)
        rows.append(
            [
                name,
                *(["-"] * 4 if scores is None or margins is None else map(with_margin, scores, margins)),
                f"{result.context_tokens / count:.0f}",
                f"{(bill.input_tokens + bill.output_tokens) / count:.0f}",
                f"{bill.calls / count:.2f}",
                _money(prices[evaluation.model], bill),
                result.unanswered,
            ]
        )
    header = ["method", "accuracy", "recall", "exact match", "F1", "context", "billed", "calls", "cost", "unanswered"]
    scored = max(result.scored for result in evaluation.methods.values())
    question_count = counted(len(evaluation.questions), "question")
    heading = f"{question_count}, {scored:,} of them with a right answer; {snapshot}; by {evaluation.model}"
    notes = "± half the 95 % interval; context, billed and calls per question; cost in total"
    return f"{heading}\n\n{table(header, rows)}\n\n{notes}"


def _shown_judgement(judgement: Judgement, model: str, prices: Mapping[str, _Price | None]) -> str:
    rows = [[criterion, *judgement.won(criterion).values()] for criterion in CRITERIA]
    calls, cost = counted(judgement.billed.calls, "call"), _money(prices[model], judgement.billed)
    heading = f"better answers, judged by {model} in {calls} (cost {cost}), both orders"
    if unjudged := sum(not verdict.winners for verdict in judgement.verdicts):
        heading += f"; {counted(unjudged, 'question')} could not be judged"
    return f"{heading}\n\n{table(['criterion', judgement.first, judgement.second, 'tie'], rows)}"
