"""What a language model does not write is counted, told and bounded: it must not become an index of stand-ins."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from flows.status import read_status
from indexmill.command import main
from indexmill.errors import GateRefused
from storage import refs, runs
from storage.folder import open_folder
from tasks.core.report import Fallbacks
from tasks.pipeline.gates import FEW, refuse_fallbacks
from tests.corpora import documents, write_corpus
from tests.flows.children import Warnings, asking, build, settings
from tests.llm_server import Faults, LlmServer, Received

DOCUMENTS = 30


def chosen(quick: Path, server: LlmServer, **run: Any) -> dict[str, Any]:
    """The settings of a build of nothing but a tree, asking this server."""
    return settings(
        quick / "store",
        write_corpus(quick / "corpus.jsonl", documents(DOCUMENTS)),
        families={
            "lsh_tree": {"smallest": 2, "largest": 4, "group": 8},
            **{other: {"enabled": False} for other in ("bm25", "tri_graph", "zoom_graph")},
        },
        llm=asking(server, timeout_seconds=2.0),
        run=run,
    )


class Refusing:
    """Refuses the first so many prompts that it is asked, each time that they come."""

    def __init__(self, most: int) -> None:
        self.most, self.prompts = most, dict[str, None]()

    def __call__(self, received: Received) -> str | None:
        if len(self.prompts) < self.most:
            self.prompts[received.prompt] = None
        return "refusal" if received.prompt in self.prompts else None


@pytest.mark.slow
def test_a_model_that_fails_at_every_prompt_publishes_nothing(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LlmServer(faults=Faults(rule=lambda _: "refusal")) as server:
        plain = chosen(quick, server)
        with pytest.raises(GateRefused, match=r"no usable answer for \d+ of \d+ texts of lsh_summaries") as refused:
            build(plain)
        asked = len(server.chats)
    assert "run.max_stand_ins" in str(refused.value)
    assert "--retry-refused" in str(refused.value)
    store = open_folder(plain["store"])
    assert refs.newest(store) is None
    (run,) = runs.list_runs(store)
    assert (run.state, run.exit_code) == ("refused", 3)
    assert run.end is not None
    counted: Any = run.end.report["stand_ins"]
    assert counted["lsh_summaries"]["stand_ins"] == counted["lsh_summaries"]["texts"] > 0
    assert asked <= counted["lsh_summaries"]["texts"]  # it is not asked for the layers above as well
    assert main(["quarantine", "--store", plain["store"]]) == 0
    assert capsys.readouterr().out.startswith("prompt")
    with LlmServer() as server:  # the model is mended
        plain = chosen(quick, server)
        outcome = build(plain, retry_refused=True)
    assert (outcome.published, outcome.stand_ins) == (True, 0)


def test_a_few_stand_ins_are_published_and_told_everywhere(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Warnings()
    with LlmServer(faults=Faults(rule=Refusing(2))) as server:
        plain = chosen(quick, server)
        outcome = build(plain, progress=progress)
        assert (outcome.published, outcome.stand_ins) == (True, 2)
        (warning,) = (said for said in progress.warnings if "fallbacks are used" in said)
        assert "no usable answer for 2 of " in warning
        store = open_folder(plain["store"])
        found = read_status(store, time.time())
        assert found.stand_ins["lsh_summaries"]["stand_ins"] == 2
        assert main(["status", "--store", plain["store"]]) == 0
        assert "fallbacks: 2 of " in capsys.readouterr().out
        asked = len(server.chats)
        again = build(plain, progress=progress)
        assert (again.published, again.stand_ins, len(server.chats)) == (False, 2, asked)
        assert read_status(store, time.time()).stand_ins == found.stand_ins


@pytest.mark.slow
def test_more_than_the_share_is_refused_and_may_be_allowed(quick: Path) -> None:
    with LlmServer(faults=Faults(rule=Refusing(FEW + 1))) as server:
        plain = chosen(quick, server)
        with pytest.raises(GateRefused, match=rf"no usable answer for {FEW + 1} of "):
            build(plain)
        paid = server.billed.calls
        outcome = build(chosen(quick, server, max_stand_ins=1.0))
        assert (outcome.published, outcome.stand_ins) == (True, FEW + 1)
        assert paid < server.billed.calls  # the layers above
        assert max(server.billed.by_prompt.values()) == 1  # nothing is asked anew


@pytest.mark.parametrize(
    ("texts", "stand_ins", "most", "refused"),
    [
        (1000, 0, 0.0, False),
        (1000, FEW, 0.0, False),
        (1000, FEW + 1, 0.0, True),
        (1000, 50, 0.05, False),
        (1000, 51, 0.05, True),
        (FEW, FEW, 0.05, True),
        (1, 1, 0.05, True),
        (1, 1, 1.0, False),
        (1000, 1000, 1.0, False),
    ],
)
def test_how_many_are_too_many(texts: int, stand_ins: int, most: float, refused: bool) -> None:
    assert (refuse_fallbacks(Fallbacks("lsh_summaries", texts, stand_ins), most) is not None) == refused


def test_a_few_of_what_is_only_a_part_are_no_reason() -> None:
    assert refuse_fallbacks(Fallbacks("lsh_summaries", FEW, FEW), 0.05, whole=False) is None
    assert refuse_fallbacks(Fallbacks("lsh_summaries", FEW + 1, FEW + 1), 0.05, whole=False) is not None
