"""What a run leaves on a Prefect server: pages, a table of refused rows, and its progress."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("prefect")

from prefect.client.orchestration import get_client
from prefect.types.names import raise_on_name_alphanumeric_dashes_only

from flows import prefect_artifacts
from flows.build import run_in_flow
from flows.build_run import Order
from flows.run_page import MOST_ROWS, cost_page, quality_page, refused_rows, run_page
from indexmill.errors import IndexmillError
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.corpora import documents
from tests.flows.asking import ask
from tests.flows.children import NO_FAMILIES
from tests.llm_server import CANARY, LlmServer

pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning")]

REFUSED = 130


@pytest.fixture
def chosen(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings of a build with refused rows, questions, and a language model that costs something."""
    monkeypatch.setenv("CANARY_KEY", CANARY)
    with LlmServer() as server:
        prices = {"tester": {"input_per_million": 1000.0, "output_per_million": 2000.0}}
        families = {**NO_FAMILIES, "bm25": {"enabled": True}, "lsh_tree": {"smallest": 2, "largest": 4, "group": 8}}
        questions = quick / "questions.jsonl"
        rows = documents(12)
        asked = [{"id": name, "question": text.split(". ")[0], "gold_ids": [name]} for name, (_, text) in rows.items()]
        questions.write_text("".join(json.dumps(one) + "\n" for one in asked))
        chosen = ask(
            quick / "store",
            rows,
            server,
            llm={"api_key_env": "CANARY_KEY"},
            prices=prices,
            families=families,
            run={"workers": 1, "max_failed_share": 1.0},
            gates={"questions": str(questions), "methods": "bm25"},
        )
        with (quick / "store.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(f'{{"id": "no-text-{number}", "title": "secret words"}}\n' for number in range(REFUSED))
        yield chosen


def order_of(chosen: dict[str, Any], progress: Any = None) -> Order:
    return Order(Configuration.model_validate(chosen), progress or Silent())


def left(since: Any) -> dict[str, Any]:
    """The artifacts that were created since then, by key."""
    with get_client(sync_client=True) as client:
        return {str(one.key): one for one in client.read_artifacts() if one.created > since}


def now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_run_leaves_pages_a_table_and_its_progress(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_artifacts, "_EVERY", 0.2)
    seen: list[tuple[float, str]] = []
    update = prefect_artifacts.update_progress_artifact

    def watched(artifact: Any, percent: float, description: str) -> None:
        seen.append((percent, description))
        update(artifact, percent, description=description)

    monkeypatch.setattr(prefect_artifacts, "update_progress_artifact", watched)
    since = now()
    order = order_of(chosen)
    outcome = run_in_flow(order)
    found = left(since)
    assert found.keys() == {f"indexmill-{one}" for one in ("run", "quality", "cost", "refused", "progress")}
    for key in found:
        assert raise_on_name_alphanumeric_dashes_only(key) == key
    assert (found["indexmill-progress"].type, float(found["indexmill-progress"].data)) == ("progress", 100.0)
    percents = [percent for percent, _ in seen]
    assert len(percents) > 2
    assert percents == sorted(percents)
    assert found["indexmill-refused"].type == "table"
    table = json.loads(found["indexmill-refused"].data)
    assert len(table) == MOST_ROWS
    assert table[0].keys() == {"file", "line", "reason"}
    assert f"{REFUSED} rows were refused, {REFUSED - MOST_ROWS} more" in found["indexmill-refused"].description
    quality = str(found["indexmill-quality"].data)
    assert f"| `bm25` | {outcome.quality['recall']['bm25']:.4f} |" in quality  # type: ignore[index]
    cost = str(found["indexmill-cost"].data)
    assert f"# Cost: {outcome.cost:.4f}" in cost
    assert outcome.cost > 0
    assert f"| lsh_summaries | {outcome.llm_calls} | 0 |" in cost
    everything = "".join(str(one.data) + str(one.description) for one in found.values())
    assert "secret words" not in everything
    assert "no-text-" not in everything
    assert CANARY not in everything


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_server_that_takes_no_artifact_fails_no_run(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    for name in ("create_markdown_artifact", "create_progress_artifact", "create_table_artifact"):
        monkeypatch.setattr(prefect_artifacts, name, fail)
    assert run_in_flow(order_of(chosen)).published


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_an_update_that_hangs_does_not_hold_up_a_run(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_artifacts, "_EVERY", 0.1)
    slow = time.monotonic()

    def hang(*_: Any, **__: Any) -> None:
        time.sleep(0.5)

    monkeypatch.setattr(prefect_artifacts, "update_progress_artifact", hang)
    assert run_in_flow(order_of(chosen)).published
    assert time.monotonic() - slow < 120


def test_a_server_that_hangs_holds_up_the_end_of_a_run_for_a_bounded_time(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    for name in ("create_markdown_artifact", "update_progress_artifact"):
        monkeypatch.setattr(prefect_artifacts, name, lambda *_, **__: answers.wait(60))
    monkeypatch.setattr(prefect_artifacts, "create_progress_artifact", lambda *_, **__: UUID(int=1))
    monkeypatch.setattr(prefect_artifacts, "_EVERY", 0.2)
    monkeypatch.setattr(prefect_artifacts, "_PATIENCE", 0.2)
    order = order_of(chosen)
    try:
        with order.open() as run:
            began = time.monotonic()
            with prefect_artifacts.shown_progress(order, run.build):
                pass
            prefect_artifacts.leave_artifacts(order)
            assert time.monotonic() - began < 30
    finally:
        answers.set()


def test_a_private_server_is_left_alone(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: Any, **__: Any) -> None:
        raise AssertionError

    for name in ("create_markdown_artifact", "create_progress_artifact", "create_table_artifact"):
        monkeypatch.setattr(prefect_artifacts, name, unwanted)
    order = order_of(chosen)
    order.private = True
    prefect_artifacts.leave_artifacts(order)
    with order.open() as run, prefect_artifacts.shown_progress(order, run.build) as progress:
        assert progress is order.progress


def test_pages_of_a_run_that_never_began(chosen: dict[str, Any]) -> None:
    order = order_of(chosen)
    order.failure = IndexmillError("| `a` | <b> key sk-0123456789abcdef0123\nsecond line")
    page = run_page(order)
    assert "**IndexmillError**: ``| `a` | <b> key *** second line``" in page
    assert (quality_page(order), cost_page(order), refused_rows(order)) == (None, None, ([], 0))


def test_the_page_of_a_run_that_failed_repeats_no_text(chosen: dict[str, Any]) -> None:
    order = order_of(chosen)
    order.failure = ValueError("the secret words of a document")
    assert "**ValueError**" in run_page(order)
    assert "secret words" not in run_page(order)


def test_the_page_links_the_report_that_a_run_wrote(chosen: dict[str, Any], quick: Path) -> None:
    from types import SimpleNamespace

    order = order_of(chosen)
    order.outcome = SimpleNamespace(published=True, version=1, documents=1, passages=1, quarantined=0, seconds=1.0)  # type: ignore[assignment]
    report = quick / "the report.html"
    order.configuration = SimpleNamespace(store=chosen["store"], run=SimpleNamespace(report=report))  # type: ignore[assignment]
    assert f"[`the report.html`](<{report.as_uri()}>)" in run_page(order)
