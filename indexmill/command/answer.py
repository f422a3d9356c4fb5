"""``indexmill answer``: answer a question, and show the hits behind the answer."""

from __future__ import annotations

import click

from indexmill.answer.answer_types import AnswerOptions
from indexmill.command.model import answering_options, answering_settings, model_of, model_options, prompts_of
from indexmill.command.options import Options, common, parameters_by_method, print_cautions
from indexmill.command.query import cited, titled, wrapped
from indexmill.command.retrieval import retrieval_of, retrieval_options, warn_of_hidden_documents
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput
from indexmill.models.llm import Completion, LlmWrapper, Request
from indexmill.models.llm_errors import LlmError
from indexmill.models.openai_llm import OpenAiLlm
from indexmill.text.counted import counted
from indexmill.text.printable import printable


@click.command("answer")
@click.argument("question")
@model_options
@click.option("--quote", is_flag=True, help="Use no language model, even if the configuration file names one.")
@click.option("--method", "-m", metavar="NAME", help="The retrieval method; by default the best in the snapshot.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits to read.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="Limit the hits that the model reads to T tokens; hits that do not fit are left out.",
)
@answering_options
@click.option("--explain", is_flag=True, help="Show the model's reasoning and the texts it read.")
@retrieval_options
@common
def command(
    options: Options,
    question: str,
    quote: bool,
    method: str | None,
    k: int,
    token_budget: int | None,
    explain: bool,
    **answering: object,
) -> None:
    """Answer QUESTION from the K best hits, or from the K best of each level for a method with levels.

    The language model is --model, or that of the section `llm` of the configuration file. It reads the question and
    the hits. Without a model, the answer is a sentence quoted from the hits, and nothing leaves this machine.

    If it takes longer than a second, standard error shows what the command waits for.
    """
    if quote and (options.max_output_tokens or options.model or options.base_url or options.api_key_env):
        raise BadInput("--quote uses no model: omit --model, --base-url, --api-key-env and --max-output-tokens")
    llm = None if quote else model_of(options)
    prompts = None if llm is None else prompts_of(options)
    retrieval = retrieval_of(options)
    with Waiting("retrieving") as waiting, options.open_snapshot() as snapshot:
        method = method or snapshot.default_method
        answer = snapshot.answer(
            question,
            options=retrieval,
            method=method,
            k=k,
            llm=None if llm is None else _WatchedLlm(llm, waiting),
            token_budget=token_budget,
            parameters=parameters_by_method(options.settings, [method]).get(method),
            answering=answering_settings([method], answering).get(method),
            prompts=prompts,
            max_output_tokens=options.max_output_tokens or AnswerOptions.max_output_tokens,
        )
        warn_of_hidden_documents(snapshot, retrieval.principals)
    print_cautions(answer.cautions)
    if options.json:
        options.print_json({"question": question, **answer.to_dict()})
        return
    click.echo("\n".join(wrapped(answer.text, "")))
    if not answer.hits:
        return
    origin = "quoted, no model was asked" if answer.model is None else f"by {answer.model}"
    tokens = f"{counted(answer.context_tokens, 'token')} of context"
    if answer.model is not None:
        calls = f" in {counted(answer.calls, 'call')}" if answer.calls > 1 else ""
        tokens += f", {answer.input_tokens:,} read and {answer.output_tokens:,} written{calls}"
    click.echo(printable(f"\n{origin}; {options.snapshot_name(answer.version)}, {answer.method}; {tokens}"))
    if explain and answer.reasoning:
        click.echo("\n".join(wrapped(answer.reasoning, "    ")))
    for rank, hit in enumerate(answer.hits, start=1):
        click.echo(f"{rank:>2}. {titled(hit)}")
        click.echo("".join(f"{line}\n" for line in cited(hit)), nl=False)
        if explain:
            click.echo("\n".join(wrapped(hit.text, "    ")))


class _WatchedLlm(LlmWrapper[OpenAiLlm]):
    """Reports each call and each retry of a model on standard error."""

    def __init__(self, llm: OpenAiLlm, waiting: Waiting) -> None:
        super().__init__(llm)
        self._waiting = waiting

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        self._waiting.say(f"asking {self._llm.model} at {self._llm.where}")
        try:
            return await self._llm.complete(request, correction)
        except LlmError as error:
            if error.retry:
                self._waiting.say(f"waiting to ask {self._llm.model} again: {error}")
            raise
