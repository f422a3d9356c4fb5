"""Rerankers: a double, a cross-encoder of this machine, an endpoint, and what a retrieval makes of their scores."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill import RetrievalOptions
from indexmill.command import main
from indexmill.errors import BadInput, ConfigurationError, ModelUnavailable
from indexmill.evaluate.recall import Question, evaluate
from indexmill.hits import Hit
from indexmill.models import retries
from indexmill.models.llm_errors import LlmBusy, LlmForbidden, LlmUnreachable, LlmUnusable
from indexmill.models.rerank_endpoint import RerankEndpoint
from indexmill.models.reranker import CrossEncoderReranker, Reranker, open_reranker
from indexmill.models.retries import _FIRST_WAIT
from indexmill.models.secrets import RERANK_KEY_ENV
from indexmill.retrieve.rerank import reranked
from indexmill.text.terms import COMMON, Analyser
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter, publish
from tests.llm_server import CANARY


def hit(text: str, score: float = 0.5, kind: str = "passage", title: str = "") -> Hit:
    return Hit(kind, f"id-{text}", score, text, title, ("d",), 1)


class Scored:
    """A double whose scores are known: by default, the length of what it is given."""

    fingerprint: dict[str, Any] = {}  # noqa: RUF012 - a constant of a test

    def __init__(self, score: Callable[[str, Sequence[str]], Any] = lambda _, texts: [len(text) for text in texts]):
        self.score = score
        self.asked: list[tuple[str, list[str]]] = []

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        self.asked.append((question, list(texts)))
        return np.array(self.score(question, texts), np.float64)


class WordOverlap:
    """A double: the share of the question's words that a text has."""

    fingerprint: dict[str, Any] = {"backend": "word-overlap"}  # noqa: RUF012 - a constant of a test

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        analyser = Analyser()
        words = set(analyser.terms(question))
        rare = {word for word in words if word not in COMMON} or words
        return np.array([len(rare & set(analyser.terms(text))) / max(len(rare), 1) for text in texts])


# What a retrieval makes of scores


def test_passages_are_dealt_out_to_the_places_that_passages_had() -> None:
    hits = [hit("a", 0.9), hit("told", 0.8, "summary"), hit("bbb", 0.7), hit("cc", 0.6), hit("dddd", 0.5)]
    by = Scored()
    (found,) = reranked(by, ["q"], [hits], depth=4)
    assert [one.text for one in found] == ["bbb", "told", "cc", "a", "dddd"]
    assert by.asked == [("q", ["a", "bbb", "cc"])]
    assert [one.score for one in found] == [3.0, 0.8, 2.0, 1.0, 0.5]
    assert found[0].explanation == {"rerank": {"rank": 3, "score": 0.7}}
    assert found[1:2] + found[4:] == [hits[1], hits[4]]


def test_the_title_is_read_before_the_text() -> None:
    by = Scored()
    reranked(by, ["q"], [[hit("text", title=" The title ")]], depth=9)
    assert by.asked == [("q", ["The title\ntext"])]


def test_without_explanations_none_are_made() -> None:
    (found,) = reranked(Scored(), ["q"], [[hit("a"), hit("bb")]], depth=9, explain=False)
    assert [(one.text, one.explanation) for one in found] == [("bb", None), ("a", None)]


def test_no_passages_ask_nobody() -> None:
    by = Scored()
    assert reranked(by, ["p", "q"], [[], [hit("a", kind="summary")]], depth=9) == [[], [hit("a", kind="summary")]]
    assert by.asked == []


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8), st.integers(1, 9))
def test_every_hit_stays_and_equal_scores_keep_their_order(some: list[tuple[int, bool]], depth: int) -> None:
    hits = [hit(f"{value}-{i}", kind="passage" if own else "unit") for i, (value, own) in enumerate(some)]
    (found,) = reranked(Scored(lambda _, texts: [int(text[0]) for text in texts]), ["q"], [hits], depth, explain=False)
    assert sorted(one.id for one in found) == sorted(one.id for one in hits)
    assert [one.kind for one in found] == [one.kind for one in hits]
    assert [one for one in found if one.kind == "unit"] == [one for one in hits if one.kind == "unit"]
    assert found[depth:] == hits[depth:]
    own = [one.text for one in found[:depth] if one.kind == "passage"]
    assert own == sorted(own, key=lambda text: (-int(text.split("-")[0]), int(text.split("-")[1])))


@pytest.mark.parametrize("scores", [[1.0], [1.0, math.nan], [1.0, math.inf], [[1.0, 2.0]]])
def test_scores_that_are_none_are_refused(scores: Any) -> None:
    with pytest.raises(BadInput, match="expected 2 finite numbers"):
        reranked(Scored(lambda *_: scores), ["q"], [[hit("a"), hit("b")]], depth=9)


def test_the_double_counts_words_that_are_shared() -> None:
    found = WordOverlap().scores("Who paid for the bridge?", ["Ada paid for a bridge.", "The bridge", "for the", ""])
    assert found.tolist() == [1.0, 0.5, 0.0, 0.0]
    assert WordOverlap().scores("the for", ["the", "bridge"]).tolist() == [0.5, 0.0]
    assert WordOverlap().scores("", ["the"]).tolist() == [0.0]


# In a snapshot


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rerank") / "store"
    publish(path, WORLD)
    return path


QUESTIONS = ["Who paid for the bridge?", "", "Where does the Ilse rise?", "a town of lamps"]


def test_a_retrieval_reads_deeper_and_returns_k(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        every = snapshot.retrieve(QUESTIONS[0], k=99)
        assert len(every) > 3
        by = WordOverlap()
        found = snapshot.retrieve(QUESTIONS[0], k=2, rerank=by)
        assert found == snapshot.retrieve(QUESTIONS[0], k=99, rerank=by)[:2]
        assert found[0].text == "Ada Venn paid for the bridge."
        assert found[0].score == 1.0
        before = {one.id: (place, one.score) for place, one in enumerate(every, start=1)}
        assert found[0].explanation is not None
        told = found[0].explanation["rerank"]
        assert (told["rank"], told["score"]) == before[found[0].id]
        shallow = snapshot.retrieve(QUESTIONS[0], k=2, rerank=by, rerank_depth=1)
        assert [one.id for one in shallow] == [one.id for one in every[:2]]


def test_a_batch_gives_each_question_what_it_gets_alone(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        alone = [snapshot.retrieve(question, k=2, rerank=WordOverlap()) for question in QUESTIONS]
        assert snapshot.retrieve_batch(QUESTIONS, k=2, rerank=WordOverlap()) == alone
        assert alone[1] == []


def test_an_answer_is_made_from_the_reranked_hits(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        wanted = snapshot.retrieve(QUESTIONS[0], method="dense", k=1, rerank=WordOverlap(), explain=False)
        answer = snapshot.answer(QUESTIONS[0], method="dense", k=1, rerank=WordOverlap())
        assert list(answer.hits) == wanted


def test_an_evaluation_counts_the_reranked_hits(store: Path) -> None:
    asked = [Question("1", QUESTIONS[0], ("bridge",)), Question("2", QUESTIONS[3], ("tallow",))]

    with indexmill.open(store) as snapshot:
        best = evaluate(snapshot, asked, ["dense"], ks=(1,), options=RetrievalOptions(rerank=WordOverlap()))
        inverse = Scored(lambda *given: -WordOverlap().scores(*given))
        worst = evaluate(snapshot, asked, ["dense"], ks=(1,), options=RetrievalOptions(rerank=inverse))
    assert (best.methods["dense"].recall[1], worst.methods["dense"].recall[1]) == (1.0, 0.0)


@pytest.mark.parametrize("depth", [0, -1, 2.5, True])
def test_a_depth_that_is_none_is_refused(store: Path, depth: Any) -> None:
    with indexmill.open(store) as snapshot, pytest.raises(BadInput, match="rerank_depth is"):
        snapshot.retrieve("bridge", rerank=WordOverlap(), rerank_depth=depth)


def test_summaries_stay_where_they_are(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p", WORLD["p0"])
    writer.lsh_tree([[("the bridge and its clockmaker", [0, 1, 2])]])
    writer.publish()
    with indexmill.open(tmp_path / "s") as snapshot:
        plain = snapshot.retrieve("the bridge", method="lsh_tree", k=9)
        found = snapshot.retrieve("the bridge", method="lsh_tree", k=9, rerank=Scored())
    assert [one.kind for one in found] == [one.kind for one in plain]
    assert {one.kind for one in found} == {"passage", "summary"}


# A cross-encoder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of eight dimensions, with weights of its own and a vocabulary of a few words."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("cross-encoder")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["ada", "venn", "paid", "for", "the", "bridge", "who", "is", "a", "clock", "maker"],
    ]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n", encoding="utf-8")
    torch.manual_seed(3)
    settings = transformers.BertConfig(
        vocab_size=len(dict.fromkeys(words)),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        num_labels=1,
    )
    made = transformers.BertForSequenceClassification(settings)
    made.save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


TEXTS = ["ada venn paid", "the bridge is a clock", "", "for " * 200]


@pytest.mark.filterwarnings("ignore")
def test_a_cross_encoder_scores_pairs_by_its_logit(model: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    by = CrossEncoderReranker(model)
    found = by.scores("who paid", TEXTS)
    assert found.shape == (4,)
    assert np.isfinite(found).all()
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    bare = AutoModelForSequenceClassification.from_pretrained(str(model)).eval()
    with torch.inference_mode():
        for text, score in zip(TEXTS[:2], found, strict=False):
            pair = tokenizer("who paid", text, return_tensors="pt")
            assert bare(**pair).logits.item() == pytest.approx(score, abs=1e-5)
    assert by.scores("who paid", TEXTS).tolist() == found.tolist()
    assert by.scores("who paid", []).shape == (0,)
    told = by.fingerprint
    assert json.loads(json.dumps(told)) == told
    assert told["backend"] == "cross-encoder"
    assert list(told["weights"]) == ["model.safetensors"]


@pytest.mark.filterwarnings("ignore")
def test_a_path_opens_a_cross_encoder(model: Path, store: Path) -> None:
    by = indexmill.open_reranker(model)
    with indexmill.open(store) as snapshot:
        found = snapshot.retrieve("who paid for the bridge", k=3, rerank=by)
        scores = by.scores("who paid for the bridge", [f"{one.title}\n{one.text}" for one in found])
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert scores == pytest.approx([one.score for one in found], abs=1e-6)


def test_what_is_no_model_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelUnavailable, match="is not a folder with a model"):
        open_reranker(tmp_path / "nothing")
    with pytest.raises(BadInput, match="name a model only with an endpoint's URL"):
        open_reranker(tmp_path, "some-model")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'indexmill\[rerank\]'"):
        open_reranker(tmp_path)


# An endpoint


@dataclass
class Server:
    """A reranker that scores a text by its length, and answers as it is told: a function of the call's number."""

    answer: Callable[[int, dict[str, Any]], tuple[int, Any]]
    received: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    url: str = ""


def by_length(number: int, body: dict[str, Any]) -> tuple[int, Any]:
    rows = [{"index": i, "relevance_score": float(len(text))} for i, text in enumerate(body["documents"])]
    return 200, {"model": "m", "results": sorted(rows, key=lambda row: -row["relevance_score"])}


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(by_length)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.received.append((self.path, headers, body))
            status, said = state.answer(len(state.received), body)
            if status == 0:  # no answer comes
                self.close_connection = True
                return
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{served.server_address[1]}"
    yield state
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.fixture
def endpoint(server: Server) -> Iterator[Callable[..., RerankEndpoint]]:
    opened: list[RerankEndpoint] = []

    def make(path: str = "/v1/rerank", **settings: Any) -> RerankEndpoint:
        opened.append(RerankEndpoint(f"{server.url}{path}", **{"sleep": lambda seconds: None, **settings}))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


Make = Callable[..., RerankEndpoint]


def test_an_endpoint_is_asked_once_and_its_order_does_not_matter(
    server: Server, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RERANK_KEY_ENV, CANARY)
    found = endpoint(model="jina-v2").scores("who?", ["aa", "a", "aaa"])
    assert found.tolist() == [2.0, 1.0, 3.0]
    ((path, headers, body),) = server.received
    assert path == "/v1/rerank"
    assert headers["authorization"] == f"Bearer {CANARY}"
    assert body == {
        "model": "jina-v2",
        "query": "who?",
        "documents": ["aa", "a", "aaa"],
        "top_n": 3,
        "return_documents": False,
    }


def test_an_endpoint_that_wants_no_key_gets_none(
    server: Server, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RERANK_KEY_ENV, raising=False)
    endpoint().scores("who?", ["a"])
    _, headers, body = server.received[0]
    assert "authorization" not in headers
    assert "model" not in body
    assert endpoint().scores("who?", []).shape == (0,)
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", "/v1/rerank"),
        ("/", "/v1/rerank"),
        ("/v2", "/v2/rerank"),
        ("/rerank", "/rerank"),
        ("/some/v1/", "/some/v1/rerank"),
    ],
)
def test_the_rest_of_the_address_is_added(server: Server, endpoint: Make, given: str, asked: str) -> None:
    endpoint(given).scores("who?", ["a"])
    assert server.received[0][0] == asked


def test_text_embeddings_inference_is_asked_in_its_own_words(server: Server, endpoint: Make) -> None:
    def tei(number: int, body: dict[str, Any]) -> tuple[int, Any]:
        if "texts" not in body:
            return 422, b"Failed to deserialize the JSON body into the target type: missing field `texts`"
        return 200, [{"index": i, "score": float(len(text))} for i, text in enumerate(body["texts"])]

    server.answer = tei
    by = endpoint("/rerank")
    assert by.scores("who?", ["aa", "a"]).tolist() == [2.0, 1.0]
    assert by.scores("who?", ["a"]).tolist() == [1.0]
    assert ["texts" in body for _, _, body in server.received] == [False, True, True]


def test_what_fails_for_a_moment_is_tried_again(
    server: Server, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_FIRST_WAIT", _FIRST_WAIT)  # which `short_waits` shortens
    waits: list[float] = []
    server.answer = lambda number, body: (
        by_length(number, body) if number == 4 else ((429, {}), (503, {}), (0, None))[number - 1]
    )
    assert endpoint(sleep=waits.append).scores("who?", ["a"]).tolist() == [1.0]
    assert len(waits) == 3
    assert all(0.25 <= wait <= 2 for wait in waits)


def test_it_is_not_tried_for_ever(server: Server, endpoint: Make) -> None:
    server.answer = lambda number, body: (503, {"error": {"message": "secret text"}})
    with pytest.raises(LlmBusy, match="gave up after 4 attempts") as caught:
        endpoint().scores("who?", ["a"])
    assert "secret" not in str(caught.value)
    assert len(server.received) == 4
    with pytest.raises(LlmBusy, match="gave up after 1 attempt"):
        endpoint(deadline_seconds=0.0).scores("who?", ["a"])


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, f"the key is missing or wrong: see {RERANK_KEY_ENV}"),
        (404, "there is no reranker or no model 'm' there"),
        (307, "see its URL"),
    ],
)
def test_what_will_never_work_is_said_at_once(
    server: Server, endpoint: Make, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    monkeypatch.setenv(RERANK_KEY_ENV, CANARY)
    server.answer = lambda number, body: (status, {"error": {"message": f"wrong key {CANARY}"}})
    with pytest.raises(LlmForbidden, match=said) as caught:
        endpoint(model="m").scores("who?", ["a"])
    assert CANARY not in str(caught.value)
    assert "llm." not in str(caught.value)
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"<html>",
        {"results": []},
        {"results": [{"index": 0, "relevance_score": 1.0}]},
        {"results": [{"index": 2, "relevance_score": 1.0}, {"index": 0, "relevance_score": 1.0}]},
        {"results": [{"index": i, "relevance_score": "high"} for i in range(2)]},
        b'{"results": [{"index": 0, "relevance_score": NaN}, {"index": 1, "relevance_score": 1}]}',
    ],
)
def test_an_answer_of_another_form_is_of_no_use(server: Server, endpoint: Make, said: Any) -> None:
    server.answer = lambda number, body: (200, said)
    with pytest.raises(LlmUnusable):
        endpoint().scores("who?", ["a", "b"])


def test_nobody_there_is_said(endpoint: Make) -> None:
    by = RerankEndpoint("http://127.0.0.1:9/v1/rerank", sleep=lambda seconds: None)
    with pytest.raises(LlmUnreachable, match="no connection"):
        by.scores("who?", ["a"])
    by.close()
    with pytest.raises(ConfigurationError, match="expected http:// or https://"):
        open_reranker("ftp://somewhere/rerank")


def test_an_endpoint_needs_the_extra_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'indexmill\[answer\]'"):
        RerankEndpoint("http://127.0.0.1:9").scores("who?", ["a"])


# Commands


def test_the_commands_take_a_reranker(server: Server, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = ["query", "the bridge", "--store", str(store), "--json", "-k", "2"]
    assert main([*query, "--rerank", server.url, "--rerank-model", "m", "--rerank-depth", "3"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert len(server.received[0][2]["documents"]) == 3
    assert [one["score"] for one in hits] == [float(len(f"{one['title']}\n{one['text']}".strip())) for one in hits]
    assert main(["answer", "the bridge", "--store", str(store), "--json", "-k", "1", "--rerank", server.url]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["score"] >= hits[0]["score"]
    questions = store.parent / "questions.jsonl"
    questions.write_text('{"id": "1", "question": "the bridge", "gold_ids": ["bridge"]}\n', encoding="utf-8")
    assert (
        main(["evaluate", str(questions), "--store", str(store), "--json", "-m", "dense", "--rerank", server.url]) == 0
    )
    assert json.loads(capsys.readouterr().out)["methods"]["dense"]["recall@5"] == 1.0
    assert main(["query", "x", "--store", str(store), "--rerank-depth", "3"]) == 2
    assert "needs --rerank" in capsys.readouterr().err
    assert main(["evaluate", str(questions), "--store", str(store), "--fit", "--rerank", server.url]) == 2
    assert "--fit does not accept that" in capsys.readouterr().err


def test_the_protocol_is_met() -> None:
    rerankers: list[Reranker] = [WordOverlap(), RerankEndpoint("http://127.0.0.1:9")]
    assert [one.fingerprint["backend"] for one in rerankers] == ["word-overlap", "endpoint"]
