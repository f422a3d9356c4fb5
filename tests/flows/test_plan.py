"""`indexmill plan`: it touches nothing, works wherever a store can be read, and binds the build that is given it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.plan import make_plan
from indexmill.errors import ConfigurationError
from schemas.config import Configuration
from storage import faults, runs
from storage.folder import open_folder
from storage.lease import acquire, holding
from tasks.core.estimate import Estimate, Expected, LlmUse, Range
from tasks.core.executor import Call, InlineExecutor
from tasks.core.report import Silent
from tasks.core.stage import Part
from tasks.families.bm25 import postings as bm25
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run, command, write_settings


@pytest.fixture
def chosen(quick: Path) -> dict[str, Any]:
    """The settings of a store at version 1 whose corpus has changed since."""
    rows = documents(8, words=110)
    corpus = write_corpus(quick / "corpus.jsonl", rows)
    build(settings(quick / "store", corpus))
    title, text = rows["doc-0003"]
    write_corpus(corpus, {**rows, "doc-0003": (title, f"{text} Falk left.")})
    return settings(quick / "store", corpus)


@pytest.fixture
def no_write() -> Iterator[list[str]]:
    """The boundaries of durable writes that are crossed: a plan crosses none."""
    crossed: list[str] = []
    faults.install(crossed.append)
    yield crossed
    faults.install(None)


def tree(root: Path) -> dict[str, tuple[int, int, str]]:
    """Every folder and file of a store: mode, time and content."""
    return {
        str(path): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [root, *sorted(root.rglob("*"))]
    }


def configuration(chosen: dict[str, Any]) -> Configuration:
    return Configuration.model_validate(chosen)


def test_a_plan_touches_nothing(chosen: dict[str, Any], no_write: list[str]) -> None:
    store = Path(chosen["store"])
    before = tree(store)
    for cold in (False, True):
        assert make_plan(configuration(chosen), progress=Silent(), cold=cold).parts.made
    assert tree(store) == before
    assert no_write == []


def test_a_plan_of_a_store_that_is_not_there_makes_none(quick: Path) -> None:
    corpus = write_corpus(quick / "corpus.jsonl", documents(4))
    made = make_plan(configuration(settings(quick / "none", corpus)), progress=Silent())
    assert made.documents.added == 4
    assert not (quick / "none").exists()
    (quick / "other").mkdir()
    (quick / "other" / "letter.txt").write_text("Dear Ada")
    with pytest.raises(ConfigurationError, match="neither empty nor a store"):
        make_plan(configuration(settings(quick / "other", corpus)), progress=Silent())


@pytest.mark.slow
def test_a_plan_leaves_no_temporary_files(
    chosen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    make_plan(configuration(chosen), progress=Silent())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_plan_is_made_while_a_build_is_running(chosen: dict[str, Any]) -> None:
    made = []

    class Looking(InlineExecutor):
        """Makes a plan whenever a stage has made its parts."""

        def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
            done = list(super().run(calls, **options))
            before = tree(Path(chosen["store"]))
            made.append(make_plan(configuration(chosen), progress=Silent()).parts.made)
            assert tree(Path(chosen["store"])) == before
            yield from done

    outcome = build(chosen, Looking())
    assert outcome.published
    assert made == sorted(made, reverse=True)
    assert made[0] == outcome.parts_made
    assert made[-1] == 0


@pytest.mark.slow
def test_a_plan_takes_no_lease_and_minds_none(chosen: dict[str, Any]) -> None:
    store = open_folder(chosen["store"])
    with acquire(store, "somebody"):
        make_plan(configuration(chosen), progress=Silent())
        current = holding(store)
        assert current is not None
        assert current.run_id == "somebody"


@pytest.mark.slow
def test_many_shards_are_planned_by_several_processes(quick: Path) -> None:
    corpus = write_corpus(quick / "corpus.jsonl", documents(40, words=110))
    chosen = settings(quick / "store", corpus)
    plans = [make_plan(configuration({**chosen, "run": {"workers": workers}}), progress=Silent()) for workers in (1, 2)]
    assert len(plans[0].corpus.shards) > 8
    assert plans[0] == plans[1]


# The command


@pytest.mark.slow
def test_the_command_prints_one_object(chosen: dict[str, Any], quick: Path, run: Run) -> None:
    file = write_settings(quick / "indexmill.yaml", chosen)
    code, out, _ = run.printed("plan", "-c", file, "--json", "--max-cost", "0", "-o", quick / "plan.json")
    told = json.loads(out)
    assert code == 0
    assert told["documents"] == {"added": 0, "changed": 1, "removed": 0, "moved": 0, "unchanged": 7}
    assert told["vectors"] == told["parts"]["vectors_made"] > 0
    assert told["llm_calls"] == {"low": 0, "high": 0, "expected": 0}
    assert told["cost"] == {
        "currency": "USD",
        "low": 0.0,
        "high": 0.0,
        "expected": 0.0,
        "likely": 0.0,
        "answers": 0,
        "models": {},
        "unpriced": [],
    }
    assert told["seconds"]["runs"] == [one.run_id for one in runs.list_runs(open_folder(chosen["store"]))]
    assert json.loads((quick / "plan.json").read_bytes()) == told


@pytest.mark.slow
def test_the_command_tells_people_what_and_why(chosen: dict[str, Any], quick: Path, run: Run) -> None:
    with Path(chosen["corpus"]["paths"][0]).open("a") as corpus:
        corpus.write("not json\n")
    changed = {**chosen, "split": {"tokens": 64}, "store": str(quick / "store")}
    _, out, err = run.printed("plan", "-c", write_settings(quick / "indexmill.yaml", changed))
    assert "documents: 0 added, 1 changed, 0 removed, 0 moved, 7 unchanged" in out
    assert "refused rows: 1 (1 not-json)" in out
    assert "settings differ (2)" in out
    assert "split.tokens (256, now 64)" in out
    assert "time: " in out
    assert "estimated from 1 run" in out
    assert "new bytes: about " in out
    assert "split: " in err
    build(chosen)
    _, out, _ = run.printed("plan", "-c", write_settings(quick / "indexmill.yaml", chosen))
    assert "nothing to do: version 2 is up to date" in out
    empty = {**chosen, "store": str(quick / "none")}
    _, out, _ = run.printed("plan", "-c", write_settings(quick / "indexmill.yaml", empty))
    assert "no past run to estimate from" in out
    assert "new bytes: no version to estimate from" in out


def test_the_command_ends_as_the_build_would(chosen: dict[str, Any], quick: Path, run: Run) -> None:
    with Path(chosen["corpus"]["paths"][0]).open("a") as corpus:
        corpus.write("not json\n")
    file = write_settings(quick / "indexmill.yaml", chosen)
    code, out, err = run.printed("plan", "-c", file, "--strict")
    assert (code, out) == (2, "")
    assert "--strict is on" in err
    assert run("plan", "-c", file, "--corpus", quick / "nothing.jsonl") == 2


def test_the_build_refuses_what_the_plan_did_not_say(chosen: dict[str, Any], quick: Path, run: Run) -> None:
    file = write_settings(quick / "indexmill.yaml", chosen)
    assert run("build", "-c", file, "--plan", quick / "none.json") == 2
    (quick / "broken.json").write_text("{}")
    code, _, err = run.printed("build", "-c", file, "--plan", quick / "broken.json")
    assert code == 2
    assert "is not a plan of this release of indexmill" in err


def test_runs_shows_the_plan_beside_what_came(chosen: dict[str, Any], quick: Path, run: Run) -> None:
    from tasks.pipeline.plan.plan import Approved

    plan = make_plan(configuration(chosen), progress=Silent())
    outcome = build(chosen, approved=Approved(plan))
    _, out, _ = run.printed("runs", outcome.run, "--store", quick / "store", "--json")
    told = json.loads(out)["plan"]
    assert told["vectors_made"] == {"planned": outcome.vectors_made, "actual": outcome.vectors_made}
    _, out, _ = run.printed("runs", outcome.run, "--store", quick / "store")
    assert "plan and outcome" in out
    assert "vectors_made" in out


@pytest.mark.slow
def test_a_build_is_held_to_its_plan_before_any_worker_starts(
    chosen: dict[str, Any], quick: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.local.private_prefect", None)
    file = write_settings(quick / "indexmill.yaml", chosen)
    assert run("plan", "-c", file, "-o", quick / "plan.json") == 0
    build(chosen)
    code, _, err = run.printed("build", "-c", file, "--plan", quick / "plan.json", "--max-cost", "0")
    assert code == 3
    assert "it was made for version 1" in err
    assert "the index is at version 2" in err
    assert runs.list_runs(open_folder(chosen["store"]))[-1].state == "refused"


@pytest.mark.slow
def test_what_a_family_asks_of_a_model_is_priced_and_held_against_the_most_it_may_cost(
    chosen: dict[str, Any], quick: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimate(part: Part, expected: Expected) -> Estimate:
        use = LlmUse("writer", Range(0, 1), Range(1_000_000, 2_000_000), Range(0, 1_000_000))
        return Estimate(llm=(use,))

    monkeypatch.setattr(bm25, "STAGE", dataclasses.replace(bm25.STAGE, estimate=estimate))
    file = write_settings(quick / "indexmill.yaml", chosen)
    code, out, _ = run.printed("plan", "-c", file)
    assert code == 0
    assert "LLM calls: about 0 (0 to 1); tokens: about 1,000,000 (1,000,000 to 2,000,000) in, " in out
    assert "; cost: 0.00 USD" in out
    assert "without writer, for which `prices:` has no price" in out
    assert run("plan", "-c", file, "--max-cost", "100") == 2
    prices = {"writer": {"input_per_million": 0.5, "output_per_million": 2.0, "currency": "EUR"}}
    file = write_settings(quick / "indexmill.yaml", {**chosen, "prices": prices})
    code, out, _ = run.printed("plan", "-c", file, "--json", "--max-cost", "3")
    told = json.loads(out)
    assert (code, told["llm_calls"]) == (0, {"low": 0, "high": 1, "expected": 0})
    assert told["cost"]["low"] == 0.5
    assert told["cost"]["high"] == 3.0
    code, out, err = run.printed("plan", "-c", file, "--json", "--max-cost", "2.99")
    assert (code, json.loads(out)) == (4, told)
    assert "may cost 3.00 EUR" in err
    code, _, err = run.printed("build", "-c", file, "--max-cost", "2.99")
    assert code == 4
    assert "nothing was made" in err
    assert runs.list_runs(open_folder(chosen["store"]))[-1].state == "budget"


@pytest.mark.slow
def test_the_command_builds_what_was_planned(chosen: dict[str, Any], quick: Path) -> None:
    file = write_settings(quick / "indexmill.yaml", {**chosen, "run": {"workers": 1}})
    with command(quick / "plan", "plan", "-c", file, "-o", quick / "plan.json") as planning:
        assert planning.wait() == 0, planning.err
    corpus = Path(chosen["corpus"]["paths"][0])
    rows = corpus.read_text()
    corpus.write_text(rows + json.dumps({"id": "late", "text": "Ada Marl came late."}) + "\n")
    with command(quick / "late", "build", "-c", file, "--plan", quick / "plan.json") as late:
        assert late.wait() == 3, late.err
    assert "the corpus has 9 documents where the plan has 8" in late.err
    corpus.write_text(rows)
    with command(
        quick / "build", "build", "-c", file, "--plan", quick / "plan.json", "--max-cost", "0", "--json"
    ) as run:
        assert run.wait() == 0, run.err
    told, plan = run.json(), json.loads((quick / "plan.json").read_bytes())
    assert (told["parts_made"], told["vectors_made"]) == (plan["parts"]["made"], plan["vectors"])
