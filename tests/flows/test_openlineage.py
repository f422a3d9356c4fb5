"""OpenLineage events, sent by the real client to a receiving server that checks each against its schemas."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("openlineage.client")

from flows import openlineage
from flows.build_run import BuildOutcome, Order, build_inline
from flows.openlineage import dataset_of, is_configured, uuid_of
from indexmill.errors import GateRefused
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import NO_FAMILIES, settings
from tests.openlineage import Receiver, validate

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the client leaves its session open


class Told(Silent):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def chosen(quick: Path) -> dict[str, Any]:
    rows = documents(12)
    corpus = write_corpus(quick / "corpus.jsonl", rows)
    with corpus.open("a") as file:
        file.write('not json\n{"id": "empty", "title": "a title"}\n')
    questions = quick / "questions.jsonl"
    asked = [{"id": name, "question": text.split(". ")[0], "gold_ids": [name]} for name, (_, text) in rows.items()]
    questions.write_text("".join(json.dumps(one) + "\n" for one in asked))
    return settings(
        quick / "store",
        corpus,
        families={**NO_FAMILIES, "bm25": {"enabled": True}},
        run={"max_failed_share": 1.0},
        gates={"max_shrink": 0.5, "questions": str(questions), "methods": "bm25"},
    )


def build(chosen: dict[str, Any], told: Told | None = None) -> BuildOutcome:
    return build_inline(Configuration.model_validate(chosen), progress=told or Told())


def kinds(receiver: Receiver) -> list[str]:
    assert receiver.errors == []
    return [one["eventType"] for one in receiver.events]


@pytest.mark.slow
def test_a_build_tells_its_inputs_outputs_versions_quality_and_rows(
    chosen: dict[str, Any], quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        outcome = build(chosen, told)
        build(chosen, told)
    assert kinds(receiver) == ["START", "COMPLETE", "START", "COMPLETE"]
    assert receiver.paths == {"/api/v1/lineage"}
    assert told.warnings == []
    start, complete, _, unchanged = receiver.events
    assert start["run"]["runId"] == complete["run"]["runId"] == uuid_of(outcome.run)
    assert unchanged["run"]["runId"] != complete["run"]["runId"]
    assert start["eventTime"] <= complete["eventTime"]
    assert start["job"] == complete["job"]
    assert complete["job"]["name"] == f"build file:{quick / 'store'}"
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    (source,) = complete["inputs"]
    assert (source["namespace"], source["name"]) == ("file", str(quick / "corpus.jsonl"))
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 14
    assert "inputStatistics" not in start["inputs"][0].get("inputFacets", {})
    (index,) = complete["outputs"]
    assert (index["namespace"], index["name"]) == ("file", str(quick / "store"))
    assert index["facets"]["version"]["datasetVersion"] == "1"
    assert index["outputFacets"]["outputStatistics"]["rowCount"] == 12
    assert index["outputFacets"]["outputStatistics"]["size"] > 1000
    assert outcome.quality is not None
    assert index["facets"]["indexmill_quality"]["recall"] == outcome.quality["recall"]
    assert index["facets"]["indexmill_index"]["passages"] == outcome.passages
    run = complete["run"]["facets"]["indexmill_run"]
    assert (run["outcome"], run["refusedRows"], run["partsMade"]) == ("published", 2, outcome.parts_made)
    assert unchanged["outputs"] == []
    assert unchanged["run"]["facets"]["indexmill_run"]["outcome"] == "unchanged"


def test_events_hold_no_text_and_no_id_of_a_document(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "sk-canary-000111222333")
        build(chosen)
    assert kinds(receiver) == ["START", "COMPLETE"]
    said = json.dumps(receiver.events)
    rows = documents(12)
    sentences = [line for _, text in rows.values() for line in text.split(". ")]
    for text in (*rows, *sentences, "sk-canary"):
        assert text not in said


@pytest.mark.slow
def test_a_refused_run_fails_with_its_reason_and_an_interrupted_one_aborts(
    chosen: dict[str, Any], quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        build(chosen)
        write_corpus(quick / "corpus.jsonl", documents(2))
        with pytest.raises(GateRefused):
            build(chosen)
        with pytest.raises(KeyboardInterrupt), Order(Configuration.model_validate(chosen), Silent()).open():
            raise KeyboardInterrupt("SIGTERM")
        with pytest.raises(ValueError, match="secret"), Order(Configuration.model_validate(chosen), Silent()).open():
            raise ValueError("the secret text of a document")
    assert kinds(receiver) == ["START", "COMPLETE", "START", "FAIL", "START", "ABORT", "START", "FAIL"]
    refused, interrupted, broken = (receiver.events[at]["run"]["facets"]["errorMessage"] for at in (3, 5, 7))
    assert refused["message"].startswith("GateRefused: the corpus has 2 documents where version 1 has 12")
    assert interrupted["message"] == "KeyboardInterrupt: SIGTERM"
    assert broken["message"] == "ValueError"
    assert all(receiver.events[at]["outputs"] == [] for at in (3, 5, 7))


@pytest.mark.slow
def test_a_later_run_of_the_process_sends_to_where_its_environment_says(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with Receiver() as receiver:
            monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
            build(chosen)
        assert kinds(receiver) == ["START", "COMPLETE"]
    monkeypatch.delenv("OPENLINEAGE_URL")
    assert not is_configured()


@pytest.mark.slow
def test_nothing_is_sent_or_imported_unless_it_is_configured(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openlineage.RunLineage, "_client", None)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "night")
    assert build(chosen).published


def test_a_receiver_that_is_down_costs_a_run_seconds_and_one_warning(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openlineage, "_PATIENCE", 0.5)
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    told = Told()
    began = time.monotonic()
    assert build(chosen, told).published
    assert time.monotonic() - began < 60
    (warning,) = told.warnings
    assert warning.startswith("OpenLineage events of this run are missing: ")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []  # of each attempt


@pytest.mark.slow
def test_a_receiver_that_refuses_events_is_a_warning_and_one_that_hangs_is_left(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openlineage, "_PATIENCE", 1.0)
    told = Told()
    with Receiver(status=400) as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        assert build(chosen, told).published
    assert "400" in told.warnings[0]
    with Receiver(delay=20.0) as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        build(chosen, told)
    assert told.warnings[1].endswith("the receiver has not answered for 1 seconds")


@pytest.mark.parametrize(
    ("environment", "configured"),
    [
        ({}, False),
        ({"OPENLINEAGE_NAMESPACE": "n"}, False),
        ({"OPENLINEAGE_URL": "http://h"}, True),
        ({"OPENLINEAGE_URL": "http://h", "OPENLINEAGE_DISABLED": "true"}, False),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE_CONFIG": "missing.yml"}, False),
    ],
)
def test_the_packages_own_settings_say_whether_events_are_sent(environment: dict[str, str], configured: bool) -> None:
    assert is_configured(environment) == configured


def test_a_file_configures_it_too(tmp_path: Path) -> None:
    (tmp_path / "openlineage.yml").write_text("transport: {type: noop}")
    assert is_configured({})


def test_a_user_without_a_home_has_no_file_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)  # as in a container with a uid of its own
    assert not is_configured({})


def test_what_goes_wrong_with_watching_is_a_warning_and_changes_no_run(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("at https://ada:hidden@lineage.example")

    for name in ("started", "ended"):
        monkeypatch.setattr(openlineage.RunLineage, name, fail)
    told = Told()
    assert build(chosen, told).published
    assert told.warnings == [
        "the telemetry of this run is incomplete: RuntimeError: at https://***@lineage.example"
    ] * len(("started", "ended"))
    with pytest.raises(KeyboardInterrupt), Order(Configuration.model_validate(chosen), told).open():
        raise KeyboardInterrupt("SIGTERM")


def test_datasets_are_named_by_the_conventions() -> None:
    assert dataset_of(Path("/srv/index")) == ("file", "/srv/index")
    assert dataset_of("s3://bucket/a/prefix/") == ("s3://bucket", "a/prefix")
    assert dataset_of("s3://user:secret@bucket") == ("s3://bucket", "/")


@pytest.mark.parametrize(
    "change",
    [
        lambda event: event.pop("eventTime"),
        lambda event: event["run"].update(runId="no uuid"),
        lambda event: event.update(eventType="DONE"),
        lambda event: event["job"].pop("name"),
        lambda event: event["run"]["facets"]["processing_engine"].pop("version"),
        lambda event: event["run"]["facets"]["processing_engine"].pop("_producer"),
        lambda event: event["job"]["facets"]["jobType"].update(processingType=3),
    ],
)
def test_the_receiver_notices_what_is_not_as_its_schema_says(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    lineage = openlineage.RunLineage("build", Configuration.model_validate(chosen), print)
    from openlineage.client.serde import Serde

    event = Serde.to_dict(lineage._event("START", "2026-01-01T00:00:00.000+00:00", {}, None, None, None))
    validate(event)
    change(event)
    with pytest.raises(jsonschema.ValidationError):
        validate(event)
