"""The trace of a run: its tree of spans, across processes, without texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prefect")
pytest.importorskip("opentelemetry.sdk")

from flows.build_run import build_inline
from indexmill.errors import GateRefused, LeaseLost
from schemas.config import Configuration
from storage.folder import open_folder
from storage.lease import acquire
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.asking import ask
from tests.flows.children import NO_FAMILIES, settings
from tests.flows.commands import write_settings
from tests.llm_server import CANARY, LlmServer
from tests.otlp import Collector, Recording, Seen, recording, tree
from tests.paths import ROOT


@pytest.fixture
def chosen(quick: Path) -> dict[str, Any]:
    corpus = write_corpus(quick / "corpus.jsonl", documents(12))
    return settings(quick / "store", corpus, families=NO_FAMILIES, run={"workers": 2}, gates={"max_shrink": 0.5})


def built(chosen: dict[str, Any]) -> Recording:
    with recording() as recorded:
        build_inline(Configuration.model_validate(chosen), progress=Silent())
    return recorded


def test_a_build_is_a_tree_of_steps_stages_and_parts(chosen: dict[str, Any]) -> None:
    recorded = built(chosen)
    (root,) = [one for one in recorded.spans if not one.parent]
    assert root.name == "indexmill build"
    assert {one.trace for one in recorded.spans} == {root.trace}
    below = tree(recorded.spans)["indexmill build"]
    assert {"step scan", "step ingest", "step split", "step embed", "step check"} <= below.keys()
    assert below["step split"] == {"stage split": {"part split": {}}}
    (split,) = recorded.named("stage split")
    parts = recorded.named("part split")
    assert split.attributes["indexmill.parts.made"] == len(parts) == 2
    assert {one.attributes["indexmill.part.reused"] for one in parts} == {False}
    (embed,) = recorded.named("stage embed")
    assert embed.attributes["indexmill.vectors_made"] == sum(
        one.attributes["indexmill.vectors_made"] for one in recorded.named("part embed")
    )
    about = {name: root.attributes[f"indexmill.{name}"] for name in ("command", "outcome", "version")}
    assert about == {"command": "build", "outcome": "published", "version": 1}
    (runs,) = recorded.metrics["indexmill.runs"]
    assert (runs.value, dict(runs.attributes)) == (
        1,
        {"indexmill.command": "build", "indexmill.outcome": "published"},
    )
    assert not any(one.failed for one in recorded.spans)


@pytest.mark.slow
def test_a_night_without_changes_makes_no_part(chosen: dict[str, Any]) -> None:
    build_inline(Configuration.model_validate(chosen), progress=Silent())
    recorded = built(chosen)
    (root,) = recorded.named("indexmill build")
    assert root.attributes["indexmill.outcome"] == "unchanged"
    assert root.attributes["indexmill.parts.made"] == 0
    assert not [one for one in recorded.spans if one.name.startswith("part ")]
    made = [one for one in recorded.metrics["indexmill.parts"] if one.attributes["indexmill.outcome"] == "made"]
    assert made == []


@pytest.mark.slow
def test_a_refused_run_and_one_that_comes_too_late_say_so(chosen: dict[str, Any], quick: Path) -> None:
    configuration = Configuration.model_validate(chosen)
    build_inline(configuration, progress=Silent())
    write_corpus(quick / "corpus.jsonl", documents(2))
    with recording() as recorded, pytest.raises(GateRefused):
        build_inline(configuration, progress=Silent())
    (root,) = recorded.named("indexmill build")
    assert (root.failed, root.message, root.events) == (True, "", 0)
    assert (root.attributes["indexmill.outcome"], root.attributes["error.type"]) == ("refused", "GateRefused")
    with recording() as recorded, acquire(open_folder(quick / "store"), "other"), pytest.raises(LeaseLost):
        build_inline(configuration, progress=Silent())
    (root,) = recorded.named("indexmill build")
    assert root.attributes["indexmill.outcome"] == "superseded"


def command(folder: Path, chosen: dict[str, Any], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = write_settings(folder / "indexmill.yaml", chosen)
    done = subprocess.run(
        [sys.executable, "-m", "indexmill", "build", "--config", str(path), "--json"],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def ancestors(one: Seen, by_id: dict[str, Seen]) -> list[str]:
    """The names of the spans that a span belongs to, from the root down to itself."""
    return [*(ancestors(by_id[one.parent], by_id) if one.parent else ()), one.name]


@pytest.mark.slow
def test_the_spans_of_workers_belong_to_the_runs_trace_and_hold_no_text(
    quick: Path, prefect_environment: dict[str, str]
) -> None:
    """A real build by the command: a Prefect flow, Dask workers that are processes, a language model, a collector."""
    rows = documents(12)
    with LlmServer() as server, Collector() as collector:
        tree_of = {"smallest": 2, "largest": 4, "group": 8}
        llm = {"api_key_env": "CANARY_KEY"}
        chosen = ask(
            quick / "store", rows, server, families={**NO_FAMILIES, "lsh_tree": tree_of}, llm=llm, run={"workers": 2}
        )
        environment = {**prefect_environment, **collector.environment, "CANARY_KEY": CANARY}
        done = command(quick, chosen, environment)
        sent = [message["content"] for one in server.requests if one.number for message in one.json()["messages"]]
        billed = server.billed
    spans = collector.spans
    by_id = {one.id: one for one in spans}
    (root,) = [one for one in spans if not one.parent]
    assert root.name == "indexmill build"
    assert {one.trace for one in spans} == {root.trace}
    parts = [one for one in spans if one.name.startswith("part ")]
    workers = {one.attributes["process.pid"] for one in parts}
    assert len(workers) >= 2  # workers, and perhaps the run itself
    calls = [one for one in spans if one.name == "chat tester"]
    assert len(calls) == billed.calls > 0
    for call in calls:
        assert ancestors(call, by_id) == [
            "indexmill build",
            "step lsh_tree",
            "stage lsh_summaries",
            "part lsh_summaries",
            "chat tester",
        ]
    assert sum(one.attributes["gen_ai.usage.input_tokens"] for one in calls) == billed.input_tokens
    assert root.attributes["gen_ai.usage.output_tokens"] == billed.output_tokens
    assert {
        "indexmill.runs",
        "indexmill.parts",
        "gen_ai.client.token.usage",
        "indexmill.run.tokens",
    } <= collector.metrics
    assert json.loads(done.stdout)["llm_tokens"] == billed.input_tokens + billed.output_tokens

    told = b"\n".join(collector.bodies)
    texts = [text for title, text in rows.values()] + [line for text in sent for line in text.split("\n")]
    secrets = [*(line for text in texts for line in text.split(". ") if len(line) > 12), *rows, CANARY]
    assert len(secrets) > 50
    for text in secrets:
        assert text.encode() not in told, text


@pytest.mark.slow
def test_keys_of_parts_do_not_know_of_traces(chosen: dict[str, Any], quick: Path) -> None:
    plain = build_inline(Configuration.model_validate(chosen), progress=Silent())
    with recording():
        traced = build_inline(
            Configuration.model_validate({**chosen, "store": str(quick / "other")}), progress=Silent()
        )
    assert traced.manifest == plain.manifest
