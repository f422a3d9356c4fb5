"""Whole builds whose vectors come from an endpoint, by real HTTP and the real client: what is paid, what is refused."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from flows.build_run import run_build
from flows.forget import forget
from indexmill.command import main
from indexmill.errors import BudgetReached, ConfigurationError, IndexmillError, ModelUnavailable
from indexmill.models.embedder import HashEmbedder
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmRejected
from indexmill.store.canonical import digest_of
from schemas.config import Configuration
from storage import runs
from storage.folder import open_folder
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tasks.pipeline.plan.plan import Approved
from tests.corpora import Documents, documents, write_corpus
from tests.flows.asking import answers_of, edited, plan
from tests.flows.children import NO_FAMILIES, Forks, Warnings, build, settings
from tests.flows.commands import write_settings
from tests.llm_embeddings import SPOILED_VECTORS, Embeddings
from tests.llm_server import CANARY, LlmServer

PRICES = {"vectors-small": {"input_per_million": 20.0, "output_per_million": 0.0}}


@pytest.fixture(autouse=True)
def canary_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)


def endpoint(server: LlmServer, **more: Any) -> dict[str, Any]:
    """The settings of an encoder behind a server."""
    return {
        "backend": "openai",
        "model": "vectors-small",
        "base_url": server.base_url,
        "api_key_env": "CANARY_KEY",
        "tokenizer": "hash",
        "concurrency": 4,
        "batch_texts": 8,
        **more,
    }


def chosen(store: Path, server: LlmServer, rows: Documents, embed: dict[str, Any] | None = None, **more: Any) -> Any:
    """The settings of a build of these documents, whose vectors the server gives."""
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", rows)
    plain = {"families": {**NO_FAMILIES}, "prices": PRICES, "run": {"workers": 1}, **more}
    return settings(store, corpus, **{**plain, "embed": endpoint(server, **(embed or {}))})


@pytest.mark.slow
def test_a_build_pays_each_batch_once_and_says_what_it_paid(quick: Path) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server, documents(20))
        first = build(plain)
        bill = server.embeddings
        assert first.published
        assert bill.paid_twice() == {}
        assert (first.embed_calls, first.embed_tokens) == (bill.billed_calls, bill.tokens)
        assert first.cost == pytest.approx(bill.tokens * 20.0 / 1e6)
        assert max(len(body["input"]) for body in bill.bodies) <= 8
        calls = bill.calls
        again = build(plain)
        cold = build(plain, cold=True)
        assert bill.calls == calls
        assert not again.published
        assert cold.manifest == first.manifest
        assert cold.parts_differing == 0
    with indexmill.open(quick / "store") as snapshot:
        encoder = snapshot.manifest.models["encoder"]
        assert (encoder["backend"], encoder["model"], encoder["dimension"]) == ("openai", "vectors-small", 64)
        assert encoder["reproducible"] is False
        assert snapshot.manifest.minimum_reader_version == 5
        assert "127.0.0.1" not in str(snapshot.manifest.to_bytes())


@pytest.mark.slow
def test_a_night_pays_only_for_what_changed(quick: Path) -> None:
    rows = documents(20)
    with LlmServer() as server:
        build(chosen(quick / "store", server, rows))
        before = set(server.embeddings.texts)
        tokens = server.embeddings.tokens
        night = build(chosen(quick / "store", server, edited(rows)))
        new = set(server.embeddings.texts) - before
        assert night.published
        assert night.embed_tokens == server.embeddings.tokens - tokens
        assert 0 < len(new) < 12
        assert all("Zed Vex" in text or "rook" in text.lower() for text in new), new
        assert server.embeddings.paid_twice() == {}


# What is interrupted, and what goes wrong on the way


ALL = {
    "bm25": {"enabled": True},
    "tri_graph": {"enabled": True},
    "zoom_graph": {"enabled": True},
    "lsh_tree": {"smallest": 2, "largest": 4, "group": 8},
    "community_tree": {"enabled": True},
    "heterograph": {"enabled": True},
}


@pytest.mark.slow
def test_every_family_is_built_with_vectors_of_an_endpoint_and_asked(quick: Path) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server, documents(12), families=ALL, embed={"query_prompt": "Q: "})
        outcome = build(plain)
        bill = server.embeddings
        assert bill.paid_twice() == {}
        assert (outcome.embed_calls, outcome.embed_tokens) == (bill.billed_calls, bill.tokens)
        stages = runs.list_runs(open_folder(quick / "store"))[-1].end.report["stages"]  # type: ignore[union-attr]
        paid = {name for name, counts in stages.items() if counts.get("embed_calls") or counts.get("embed_ledger")}  # type: ignore[union-attr]
        assert paid >= {"encoder", "embed", "embed_titles", "embed_names", "lsh_axes", "lsh_vectors", "hetero_units"}
        encoder = indexmill.open_encoder("vectors-small", base_url=server.base_url, api_key_env="CANARY_KEY")
        with indexmill.open(quick / "store", encoder=encoder) as snapshot:
            for method in snapshot.methods:
                assert snapshot.retrieve("Who built the bridge of Quillon?", method=method), method
        asked = {text for text in bill.texts if text.startswith("Q: ")}
        assert asked == {"Q: Who built the bridge of Quillon?"}


@pytest.mark.slow
def test_a_killed_build_pays_again_for_what_was_in_flight_alone(quick: Path) -> None:
    rows = documents(20)
    with LlmServer(embeddings=Embeddings(jitter=0.0)) as server, Forks() as forks:
        bill = server.embeddings
        whole = forks.build(chosen(quick / "whole", server, rows))
        assert whole.outcome is not None
        recorded = [at for at, name in enumerate(whole.crossed, 1) if "ledger/" in name]
        for share in (0.3, 0.8):
            bill.batches.clear()
            plain = chosen(quick / f"store-{share}", server, rows)
            assert forks.build(plain, at=recorded[int(len(recorded) * share)]).code == -signal.SIGKILL
            resumed = forks.build(plain)
            assert resumed.outcome is not None
            assert resumed.outcome.manifest == whole.outcome.manifest
            assert len(bill.paid_twice()) <= 4  # calls in flight


def faults(number: int, texts: list[str]) -> str | None:
    """Nine of ten calls go wrong in some way that a retry mends, but never twice in a row."""
    kinds = ("429-seconds", "500", "503", "drop", "drop-billed", "drop-midway", "hang", "html", "nan", "no-usage")
    return kinds[number // 2 % len(kinds)] if number % 2 else None


@pytest.mark.slow
def test_what_passes_is_tried_again_and_the_index_is_that_of_a_calm_night(quick: Path) -> None:
    rows = documents(16)
    with LlmServer(embeddings=Embeddings(jitter=0.0)) as calm:
        expected = build(chosen(quick / "calm", calm, rows))
    with LlmServer(embeddings=Embeddings(rule=faults, jitter=0.0)) as server:
        server.faults = type(server.faults)(hang_seconds=3.0)
        outcome = build(chosen(quick / "store", server, rows, embed={"timeout_seconds": 1.0, "concurrency": 2}))
        assert outcome.manifest == expected.manifest
        assert len(server.faulted) > 8
        assert server.embeddings.paid_twice() == {}
        assert outcome.embed_tokens >= server.embeddings.tokens
        end = runs.list_runs(open_folder(quick / "store"))[-1].end
        assert end is not None
        assert any(counts.get("embed_retries") for counts in end.report["stages"].values())  # type: ignore[union-attr]


@pytest.mark.slow
def test_an_endpoint_that_is_gone_ends_the_run_and_the_next_goes_on(quick: Path) -> None:
    rows = documents(20)
    with LlmServer(embeddings=Embeddings(rule=lambda number, texts: "503" if number > 6 else None)) as server:
        plain = chosen(quick / "store", server, rows, embed={"deadline_seconds": 1.0})
        with pytest.raises(LlmError, match=r"embed.deadline_seconds is 1: run again, or raise that limit"):
            build(plain)
        assert len(answers_of(quick / "store")) == server.embeddings.batches.total()
        server.embeddings.rule = lambda number, texts: None
        assert build(plain).published
        assert server.embeddings.paid_twice() == {}


@pytest.mark.slow
def test_the_budget_of_a_run_counts_vectors_and_the_next_goes_on(quick: Path) -> None:
    with LlmServer() as server:
        few = {"batch_texts": 2, "concurrency": 2}
        plain = chosen(quick / "store", server, documents(20), few, llm={"budget": {"cost": 0.02}})
        before = 0.0
        for _ in range(3):
            with pytest.raises(BudgetReached, match=r"the budget for language models is reached after \d+ calls"):
                build(plain)
            spent = server.embeddings.tokens * 20.0 / 1e6
            assert before < spent <= before + 0.02
            before = spent
        plain["llm"]["budget"] = {"cost": 1.0}
        assert build(plain).published
        assert server.embeddings.paid_twice() == {}


def test_a_budget_of_money_needs_a_price_for_the_encoder(quick: Path) -> None:
    with LlmServer() as server, pytest.raises(ValueError, match=r"`prices` has no price for 'vectors-small'"):
        build(chosen(quick / "store", server, documents(2), llm={"budget": {"cost": 0.05}}, prices={}))


# Texts and answers that are of no use


@pytest.mark.slow
def test_a_document_whose_text_is_refused_is_quarantined_and_the_rest_is_published(quick: Path) -> None:
    rows = documents(12)
    title, text = rows["doc-0005"]
    hurt = {**rows, "doc-0005": (title, f"{text} The zorkmid is forbidden.")}
    with LlmServer(
        embeddings=Embeddings(refused=lambda text: 400 if "zorkmid" in text else None, jitter=0.0)
    ) as server:
        clean = build(chosen(quick / "clean", server, {name: row for name, row in rows.items() if name != "doc-0005"}))
        told = Warnings()
        plain = chosen(quick / "store", server, hurt)
        outcome = build(plain, progress=told)
        assert (outcome.published, outcome.manifest, outcome.quarantined) == (True, clean.manifest, 1)
        _, table = runs.quarantine_of(open_folder(quick / "store"))
        (row,) = table.to_pylist()
        assert (row["document_id"], row["reason"]) == ("doc-0005", "fails-embed")
        assert "the encoder's endpoint refuses" in row["detail"]
        assert "rejected" in row["detail"]
        assert "zorkmid" not in row["detail"]
        assert any("cannot process doc-0005" in warning for warning in told.warnings)
        calls = server.embeddings.calls
        assert build(plain).published is False
        assert server.embeddings.calls == calls


def test_a_refused_name_or_title_ends_the_run_with_advice(quick: Path) -> None:
    rows = {**documents(6), "doc-0003": ("Zorkmid", "Ada Marl built the bridge of Vell in 1801.")}
    with LlmServer(embeddings=Embeddings(refused=lambda text: 400 if text == "Zorkmid" else None)) as server:
        plain = chosen(quick / "store", server, rows)
        with pytest.raises(
            IndexmillError, match=r"embed_titles: the encoder's endpoint refuses 1 of \d+ texts"
        ) as caught:
            build(plain)
        assert "`--retry-refused` sends them again" in str(caught.value)
        calls = server.embeddings.calls
        with pytest.raises(IndexmillError, match="embed_titles"):
            build(plain)
        assert server.embeddings.calls == calls  # what is refused is not sent again
        server.embeddings.refused = lambda text: None
        assert build(plain, retry_refused=True).published
        assert server.embeddings.paid_twice() == {}


def test_an_endpoint_that_rejects_everything_blames_no_document(quick: Path) -> None:
    with LlmServer(embeddings=Embeddings()) as server:
        plain = chosen(quick / "store", server, documents(12))
        server.embeddings.rule = lambda number, texts: "400" if number > 1 else None
        with pytest.raises(LlmRejected):
            build(plain)
        assert server.embeddings.calls <= 1 + 4 * 5  # of each of four batches one text, and a control
        server.embeddings.rule = lambda number, texts: None
        assert build(plain).quarantined == 0


@pytest.mark.parametrize("kind", sorted(SPOILED_VECTORS))
def test_a_hostile_answer_is_refused_before_anything_is_made(quick: Path, kind: str) -> None:
    with LlmServer(embeddings=Embeddings(rule=lambda number, texts: kind)) as server:
        with pytest.raises(LlmForbidden) as caught:
            build(chosen(quick / "store", server, documents(3)))
        assert caught.value.exit_code == 2
        assert "gave up after 3 unusable answers: see embed.model and embed.base_url" in str(caught.value)
        assert server.embeddings.calls == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nan", "too-few", "foreign", "zero"])
def test_a_text_that_never_gets_a_vector_is_told_apart_from_the_others(quick: Path, kind: str) -> None:
    rows = {**documents(8), "doc-0003": ("Odd", "Ada Marl counted a zorkmid.")}
    with LlmServer(
        embeddings=Embeddings(rule=lambda number, texts: kind if "zorkmid" in str(texts) else None)
    ) as server:
        outcome = build(chosen(quick / "store", server, rows))
        assert (outcome.published, outcome.quarantined) == (True, 1)


# The first question


def test_what_cannot_work_is_told_before_anything_is_made(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = documents(3)
    with LlmServer() as server:
        server.embeddings.takes_dimensions = None
        with pytest.raises(LlmForbidden, match=r"vectors of dimension 64; expected 32: it ignores"):
            build(chosen(quick / "a", server, rows, embed={"dimensions": 32}))
        server.embeddings.takes_dimensions = False
        with pytest.raises(LlmForbidden, match=r"has a fixed dimension: set embed.dimensions to null"):
            build(chosen(quick / "b", server, rows, embed={"dimensions": 32}))
        server.embeddings.rule = lambda number, texts: "404"
        with pytest.raises(LlmForbidden, match=r"no model 'vectors-small' there: see embed.base_url and embed.model"):
            build(chosen(quick / "c", server, rows))
        server.embeddings.rule = lambda number, texts: None
        server.keys = {"another"}
        with pytest.raises(LlmForbidden, match=r"the key is missing or wrong: see embed.api_key_env"):
            build(chosen(quick / "d", server, rows))
        monkeypatch.delenv("CANARY_KEY")
        with pytest.raises(
            LlmForbidden, match=r"no key for the encoder: .* CANARY_KEY \(embed.api_key_env\) is not set"
        ):
            build(chosen(quick / "e", server, rows))
        assert set(server.embeddings.texts) <= PROBE


def test_an_encoder_that_gives_every_text_one_vector_is_refused(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = np.ones(64, np.float32)
    monkeypatch.setattr(Embeddings, "_vector", lambda self, text, number: same.copy())
    with LlmServer() as server, pytest.raises(LlmForbidden, match="one vector for different texts"):
        build(chosen(quick / "store", server, documents(3)))


def test_a_model_that_changes_its_dimension_stops_the_next_night(quick: Path) -> None:
    rows = documents(8)
    with LlmServer() as server:
        build(chosen(quick / "store", server, rows))
        server.embeddings.native = 128
        with pytest.raises(
            LlmForbidden, match=r"vectors of dimension 128; expected 64: the name now refers to another model"
        ):
            build(chosen(quick / "store", server, edited(rows)))


@pytest.mark.slow
def test_dimensions_are_asked_for_and_base64_is_left_where_it_is_refused(quick: Path) -> None:
    with LlmServer() as server:
        server.embeddings.takes_base64 = False
        plain = chosen(quick / "store", server, documents(6), embed={"dimensions": 32, "document_prompt": "D: "})
        build(plain)
        formats = [body["encoding_format"] for body in server.embeddings.bodies]
        assert formats[0] == "base64"
        assert set(formats[1:]) == {"float"}
        assert {body["dimensions"] for body in server.embeddings.bodies} == {32}
        assert all(text.startswith("D: ") for text in set(server.embeddings.texts) - PROBE)
        encoder = indexmill.open_encoder("vectors-small", base_url=server.base_url, api_key_env="CANARY_KEY")
        with indexmill.open(quick / "store", encoder=encoder) as snapshot:
            assert snapshot.dimensions == 32
            assert snapshot.encode(["Who?"]).shape == (1, 32)
        assert server.embeddings.bodies[-1]["dimensions"] == 32


PROBE = {"The bridge over the river is closed.", "Zwölf"}


@pytest.mark.slow
def test_long_texts_are_cut_and_batches_keep_their_limits(quick: Path) -> None:
    rows = {"long": ("Long " * 40, "word " * 3000), **documents(8)}
    with LlmServer() as server:
        embed = {"max_tokens": 128, "batch_texts": 16, "batch_tokens": 300}
        build(chosen(quick / "store", server, rows, embed=embed, split={"tokens": 128}))
        counter = HashEmbedder()
        for body in server.embeddings.bodies[1:]:
            counts = counter.count_tokens(body["input"])
            assert counts.max() <= 128
            assert counts.sum() <= 300
            assert len(counts) <= 16


# Readers


def test_a_reader_asks_no_endpoint_that_nobody_named(quick: Path) -> None:
    with LlmServer() as server:
        build(chosen(quick / "store", server, documents(8)))
        calls = server.embeddings.calls
        with indexmill.open(quick / "store") as snapshot:
            with pytest.raises(
                ModelUnavailable, match=r"model vectors-small behind an endpoint, which is called only if"
            ):
                snapshot.retrieve("Who built the bridge?", method="dense")
            own = HashEmbedder(8192).encode(["Who built the bridge?"])
            assert snapshot.retrieve("Who built the bridge?", method="dense", vectors=own)
        other = indexmill.open_encoder("another", base_url=server.base_url, api_key_env="CANARY_KEY")
        with (
            indexmill.open(quick / "store", encoder=other) as snapshot,
            pytest.raises(ConfigurationError, match="vectors of the model 'vectors-small', but the encoder"),
        ):
            snapshot.encode(["Who?"])
        assert server.embeddings.calls == calls


def test_a_reader_tries_again_and_works_inside_an_event_loop(quick: Path) -> None:
    with LlmServer() as server:
        build(chosen(quick / "store", server, documents(8)))
        first = server.embeddings.calls + 1
        server.embeddings.rule = lambda number, texts: "429-ms" if number == first else None
        encoder = indexmill.open_encoder("vectors-small", base_url=server.base_url, api_key_env="CANARY_KEY")
        with indexmill.open(quick / "store", encoder=encoder) as snapshot:

            async def ask() -> Any:
                return snapshot.encode(["Who built the bridge?"] * 100)

            vectors = asyncio.run(ask())
        assert vectors.shape == (100, 64)
        assert server.embeddings.calls == first + 2  # two requests, and one again


def test_commands_ask_the_endpoint_of_the_configuration(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server, documents(8))
        build(plain)
        file = write_settings(quick / "indexmill.yaml", plain)
        assert main(["query", "Who built the bridge?", "-c", str(file), "--method", "dense", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["hits"]
        assert CANARY not in "".join(str(one.body) for one in server.requests)
        assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {CANARY}"}
    assert main(["query", "Who?", "--store", str(quick / "store"), "--method", "dense"]) != 0
    assert "which is called only if you name it" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gate_encodes_its_questions_once(quick: Path) -> None:
    rows = documents(8)
    questions = quick / "questions.jsonl"
    lines = [{"id": name, "question": f"What of {title}?", "gold_ids": [name]} for name, (title, _) in rows.items()]
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    gates = {"questions": str(questions), "methods": "dense", "k": 3, "max_shrink": 1.0}
    with LlmServer() as server:
        assert build(chosen(quick / "store", server, rows, gates=gates)).quality is not None
        night = build(chosen(quick / "store", server, edited(rows), gates=gates))
        assert night.quality is not None
        assert server.embeddings.paid_twice() == {}


# What a plan says beforehand


@pytest.mark.slow
def test_a_plan_asks_nothing_and_its_cost_is_what_is_billed(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = documents(20)
    with LlmServer() as server:
        bill = server.embeddings
        for night in (rows, edited(rows)):
            plain = chosen(quick / "store", server, night)
            calls, tokens = bill.calls, bill.tokens
            monkeypatch.delenv("CANARY_KEY")
            expected = plan(plain)
            monkeypatch.setenv("CANARY_KEY", CANARY)
            assert bill.calls == calls
            outcome = build(plain)
            assert expected.embed_calls.low == outcome.embed_calls == expected.embed_calls.high
            assert expected.embed_tokens.low <= bill.tokens - tokens <= expected.embed_tokens.high
            assert expected.cost.expected == pytest.approx(outcome.cost)
            assert expected.cost.likely is not None
            assert expected.cost.low <= outcome.cost <= expected.cost.likely <= expected.cost.high
        assert plan(plain).cost.high == 0.0
        Approved(expected, expected.cost.likely).check_cost()
        with pytest.raises(BudgetReached, match=r"\(about 0\.\d+ is expected; worst case 0\.\d+\)"):
            Approved(expected, expected.cost.likely / 2).check_cost()


@pytest.mark.slow
def test_a_plan_bounds_what_families_have_yet_to_write(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = documents(12)
    with LlmServer() as server:
        bill = server.embeddings
        for night in (rows, edited(rows)):
            plain = chosen(quick / "store", server, night, families=ALL)
            calls, tokens = bill.calls, bill.tokens
            file = write_settings(quick / "indexmill.yaml", plain)
            assert main(["plan", "-c", str(file)]) == 0
            assert "calls for vectors: " in capsys.readouterr().out
            expected = plan(plain)
            outcome = build(plain)
            assert bill.calls - calls == outcome.embed_calls
            assert expected.embed_calls.low <= outcome.embed_calls <= expected.embed_calls.high
            assert expected.embed_tokens.low <= bill.tokens - tokens <= expected.embed_tokens.high
            assert expected.cost.expected is not None
            assert outcome.cost / 4 <= expected.cost.expected <= 10 * outcome.cost  # of texts that nobody has written


# What stays, and who else asks


@pytest.mark.slow
def test_forgetting_a_document_forgets_every_vector_in_the_ledger_but_that_of_no_text(quick: Path) -> None:
    rows = documents(10)
    with LlmServer() as server:
        plain = chosen(quick / "store", server, rows)
        build(plain)
        assert len(answers_of(quick / "store", "vectors")) > 10
        calls = server.embeddings.calls
        found, _ = forget(open_folder(quick / "store"), ["doc-0003"], build=lambda: build(plain))
        assert found.answers > 10
        (left,) = answers_of(quick / "store", "vectors")
        assert left.about == ()
        assert server.embeddings.calls == calls  # the other texts have their vectors in their parts
        rows.pop("doc-0003")
        assert build(chosen(quick / "store", server, rows)).embed_calls == 0


@pytest.mark.slow
def test_workers_share_the_limits_the_key_and_the_ledger(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from flows.cluster import private_cluster
    from flows.dask_executor import DaskExecutor

    rows = documents(40)
    with LlmServer(seconds=0.05) as server:
        plain = chosen(quick / "store", server, rows, embed={"requests_per_minute": 100_000})
        configuration = Configuration.model_validate(plain)
        with private_cluster(2, quick / "store", configuration.endpoints) as client:
            outcome = run_build(configuration, DaskExecutor(client), Build.run, progress=Silent())
        bill = server.embeddings
        assert bill.paid_twice() == {}
        assert (outcome.embed_calls, outcome.embed_tokens) == (bill.billed_calls, bill.tokens)
        assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {CANARY}"}


@pytest.mark.skipif(importlib.util.find_spec("tokenizers") is None, reason="needs the tokenizers package")
def test_a_tokenizer_file_counts_cuts_and_is_carried_for_readers(quick: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "river": 2}, unk_token="[UNK]"))  # noqa: S106 - no key
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    file = quick / "tokenizer.json"
    file.write_text(tokenizer.to_str())
    rows = {"long": ("Long", "The river ran past the old mill. " * 80), **documents(4)}
    with LlmServer() as server:
        unsaid = {"tokenizer": str(file)}
        with pytest.raises(
            ConfigurationError, match=r"does not say how many tokens the model reads: set embed.max_tok"
        ):
            build(chosen(quick / "store", server, rows, embed=unsaid))
        plain = chosen(quick / "store", server, rows, embed={**unsaid, "max_tokens": 128}, split={"tokens": 100})
        build(plain)
        encoder = indexmill.open_encoder("vectors-small", base_url=server.base_url, api_key_env="CANARY_KEY")
        with indexmill.open(quick / "store", encoder=encoder) as snapshot:
            assert snapshot.manifest.models["encoder"]["tokenizer"] == digest_of(file.read_bytes())
            assert snapshot.file("encoder/tokenizer.json").read_bytes() == file.read_bytes()
            snapshot.encode(["the river " * 400])
        assert server.embeddings.bodies[-1]["input"] == [("the river " * 64).strip()]
