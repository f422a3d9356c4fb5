"""What a plan expects of a language model, judged from its answers, beside what the endpoint then bills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.plan import make_plan
from indexmill.command import main
from indexmill.errors import BudgetReached
from schemas.config import Configuration
from tasks.core.report import Silent
from tasks.pipeline.plan.plan import Approved, Plan
from tests.corpora import documents, write_corpus
from tests.flows.children import asking, build, settings
from tests.flows.commands import write_settings
from tests.llm_server import LlmServer

PRICES = {"tester": {"input_per_million": 10.0, "output_per_million": 40.0}}


TREE = {"lsh_tree": {"smallest": 2, "largest": 4, "group": 8}}
ALL = {**TREE, "community_tree": {"enabled": True}, "heterograph": {"enabled": True}}


def chosen(quick: Path, server: LlmServer, families: dict[str, Any], count: int) -> dict[str, Any]:
    """The settings of a build whose families ask a model, over so many documents."""
    plain: dict[str, Any] = settings(
        quick / "store",
        write_corpus(quick / "corpus.jsonl", documents(count)),
        families=families,
        llm=asking(server),
        prices=PRICES,
        run={"workers": 1},  # plans are made in this process: others take seconds to start
    )
    write_settings(quick / "indexmill.yaml", plain)
    return plain


def planned(plain: dict[str, Any]) -> Plan:
    return make_plan(Configuration.model_validate(plain), progress=Silent())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("families", "factor", "tighter"),
    [
        pytest.param(TREE, 2, 2, id="one stage"),
        pytest.param(ALL, 5, 20, id="all that ask", marks=pytest.mark.slow),
    ],
)
def test_the_cost_is_judged_from_the_answers_that_are_there(
    quick: Path, capsys: pytest.CaptureFixture[str], families: dict[str, Any], factor: float, tighter: float
) -> None:
    """Where communities are only guessed at, so is how many reports there will be: more is expected than comes."""
    with LlmServer() as server:
        first = chosen(quick, server, families, 40)
        unknown = planned(first)
        assert (unknown.cost.likely, unknown.cost.answers) == (None, 0)
        with pytest.raises(BudgetReached, match=r"too few answers for a likely bound, so this is the worst case"):
            Approved(unknown, 0.01).check_cost()
        assert build(first).cost > 0
        second = chosen(quick, server, families, 60)
        cost = planned(second).cost
        assert main(["plan", "-c", str(quick / "indexmill.yaml")]) == 0
        assert "likely at most" in capsys.readouterr().out
        billed = build(second).cost
    assert cost.likely is not None
    assert cost.low <= billed <= cost.likely < cost.high / tighter
    assert billed / factor <= cost.expected <= factor * billed
    assert cost.answers > 0
    Approved(unknown.model_copy(update={"cost": cost}), cost.likely).check_cost()
    with pytest.raises(BudgetReached, match=r"is expected, estimated from \d+ answers; worst case \d+\.\d+"):
        Approved(unknown.model_copy(update={"cost": cost}), cost.likely / 2).check_cost()


@pytest.mark.slow
def test_nothing_to_ask_costs_nothing_whatever_is_known(quick: Path) -> None:
    with LlmServer() as server:
        plain = chosen(quick, server, TREE, 12)
        build(plain)
        cost = planned(plain).cost
    assert (cost.low, cost.high, cost.expected, cost.likely) == (0.0, 0.0, 0.0, 0.0)
