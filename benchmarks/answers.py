"""The tokens that an answer takes: one prompt for every method, and adaptive filtering over the community tree.

    python -m benchmarks.answers [STORE QUESTIONS.jsonl] [--k 5] [--most 100] [--model NAME --base-url URL]

Without a store the sample corpus is built with all families, no language model needed. Without a model the endpoint is
the tests' own: it reads every prompt, counts a token for every four bytes, and writes what a model would at that
length: points that quote the sentences nearest to the question, and an answer that quotes the best. So tokens are
told and the scores mean nothing. With a model they are its own, and each question is paid for.

Prints for each way of answering the calls, the tokens of the hits as the embedder counts them, the tokens read and
written of one question, and accuracy and F1. Beside them: ArchRAG's 5.1 million tokens for 1,000 questions of HotpotQA
(section 4.2).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.answer.scores import words
from indexmill.evaluate.answers import Asking, bill, evaluate_answers
from indexmill.evaluate.recall import Question, read_questions
from indexmill.snapshot import Snapshot
from tests.llm_rules import texts_of
from tests.llm_server import LlmServer, schema_of

SAMPLE = Path(__file__).parent.parent / "sample"
PAPER = 5_100

WAYS: Sequence[tuple[str, str, dict[str, Any]]] = (
    ("community_tree, direct prompt", "community_tree", {"filtered": False}),
    ("community_tree, adaptive filtering", "community_tree", {}),
    ("community_tree, levels together", "community_tree", {"together": True, "level_tokens": 3000}),
    ("community_tree, 3,000 tokens a level", "community_tree", {"level_tokens": 3000}),
    ("community_tree, 2,000 tokens of hits", "community_tree", {"token_budget": 2000}),
    ("community_tree, three of a level", "community_tree", {"k": 3}),
)

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def double(chat: Mapping[str, Any]) -> dict[str, Any]:
    """What a model would write at its length: the sentences that share most words with the question."""
    wanted = set(words(chat["messages"][1]["content"].rpartition("Question: ")[2]))
    sentences = [one for text in texts_of(chat) for one in _SENTENCE.split(text) if len(one) > 20]
    nearest = sorted(sentences, key=lambda one: -len(wanted.intersection(words(one))))[:5]
    if "points" in schema_of(chat)["properties"]:
        points = [
            {"description": one, "score": min(100, 15 * len(shared))}
            for one in nearest
            if (shared := wanted.intersection(words(one)))
        ]
        return {"points": points}
    return {"reasoning": " ".join(nearest[:2]), "found": bool(nearest), "answer": " ".join(nearest[:1])}


def sample_store(folder: Path) -> Path:
    """The sample corpus, built with every family."""
    from flows.run import build_inline
    from schemas.config import Configuration
    from tasks.core.report import Silent

    settings = {
        "store": folder / "store",
        "corpus": {"paths": [str(SAMPLE / "corpus.jsonl")]},
        "families": {"community_tree": {"enabled": True}},
    }
    build_inline(Configuration.model_validate(settings), progress=Silent())
    return folder / "store"


@contextlib.contextmanager
def endpoint(model: str | None, base_url: str | None) -> Iterator[Any]:
    """The model that is asked."""
    if model is not None:
        yield indexmill.open_llm(model, **({} if base_url is None else {"base_url": base_url}))
        return
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    os.environ["INDEXMILL_BENCHMARK_KEY"] = "none"
    with LlmServer(double) as server:
        yield indexmill.open_llm("double", base_url=server.base_url, api_key_env="INDEXMILL_BENCHMARK_KEY")


def print_table(snapshot: Snapshot, questions: Sequence[Question], llm: Any, k: int) -> None:
    ways: list[tuple[str, str, dict[str, Any]]] = [
        (name, name, {}) for name in snapshot.methods if name != "community_tree"
    ]
    ways += [way for way in WAYS if "community_tree" in snapshot.methods]
    print(f"{'':38} {'calls':>6} {'context':>8} {'read':>7} {'written':>8} {'all':>7} {'billed at most':>15}", end="")
    print(f" {'accuracy':>9} {'F1':>7}")
    for name, method, settings in ways:
        own = dict(settings)
        asking = Asking(llm, k=own.pop("k", k), token_budget=own.pop("token_budget", None), settings={method: own})
        before = bill(snapshot, questions, [method], asking)[method]
        found = evaluate_answers(snapshot, questions, [method], asking).methods[method]
        count = len(questions)
        calls, read, written = (number / count for number in found.billed)
        most = (before.input_tokens + before.output_tokens) / count
        scores = found.scores
        told = f"{'-':>9} {'-':>7}" if scores is None else f"{scores.accuracy:9.3f} {scores.f1:7.3f}"
        print(
            f"{name:38} {calls:6.2f} {found.context_tokens / count:8.0f} {read:7.0f} {written:8.0f} "
            f"{read + written:7.0f} {most:15.0f} {told}"
        )
    print(f"{'ArchRAG, as the paper reports it':38} {'':6} {'':8} {'':7} {'':8} {PAPER:7}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store", nargs="?")
    parser.add_argument("questions", nargs="?", type=Path, default=SAMPLE / "questions.jsonl")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--most", type=int, default=100, help="questions at most")
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    chosen = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder, endpoint(chosen.model, chosen.base_url) as llm:
        store = chosen.store or sample_store(Path(folder))
        questions = read_questions(chosen.questions, evidence=False)[: chosen.most]
        with indexmill.open(store) as snapshot:
            corpus = snapshot.manifest.corpus
            print(
                f"{corpus.documents} documents, {corpus.passages} passages, {len(questions)} questions, k = {chosen.k}"
            )
            if "community_tree" in snapshot.methods:
                print(f"community_tree: {snapshot.manifest.families['community_tree'].counts}")
            print()
            print_table(snapshot, questions, llm, chosen.k)


if __name__ == "__main__":
    main()
