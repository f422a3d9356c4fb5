"""What questions will take, from the answers of a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.store.canonical import digest_of
from storage import ledger
from storage.folder import init_folder
from storage.ledger import LedgerEntry
from tasks.core.estimate import ZERO, Forecast, LlmUse, Range
from tasks.pipeline.plan.judged import ENOUGH, MANY, Judged, ModelUse, Rate, judge, model_uses, rates_of

USUAL = (70.0, 7.0)
FIRST = Rate(MANY, (100.0, 10.0), (0.0, 0.0), (100.0, 10.0))


def use(prompts: Range, *tasks: str, most: int = 10**9) -> LlmUse:
    return LlmUse("m", Range(0, 2 * prompts.high), Range(0, most), Range(0, most), tasks, prompts, usual=USUAL)


def test_a_ledger_tells_what_the_answers_of_each_task_took(tmp_path: Path) -> None:
    store = init_folder(tmp_path / "store")
    for number in range(4):
        for model, task in (("m", "summary"), ("m", "extract"), ("other", "summary")):
            ledger.record(
                store,
                LedgerEntry(
                    key=digest_of(f"{number} {model} {task}".encode()),
                    task=task,
                    model=model,
                    prompt_version="1",
                    value={},
                    input_tokens=100 + number,
                    output_tokens=10 * number,
                    run_id="run",
                    created="2026-01-01T00:00:00.000000Z",
                ),
            )
    found = rates_of(store, "m")
    assert sorted(found) == ["extract", "summary"]
    assert found["summary"].answers == 4
    assert found["summary"] == Rate(4, (101.5, 15.0), pytest.approx((1.25**0.5, 125**0.5)), (103.0, 30.0))


def test_so_many_prompts_take_so_many_times_as_much() -> None:
    assert judge([use(Range.exactly(10), "a")], {"a": FIRST}) == Judged(10, (1000, 100), (1100, 110), MANY)
    assert judge([use(Range(0, 10), "a"), use(Range.exactly(10), "a")], {"a": FIRST}) == Judged(
        15, (1500, 150), (2200, 220), MANY
    )


def test_what_is_guessed_is_expected_as_it_was_guessed_and_bounded_wider() -> None:
    found = judge([use(Range.exactly(10), "a").guessed(4)], {"a": FIRST})
    assert found == Judged(10, (1000, 100), (4400, 440), MANY)
    halved = judge([use(Range.exactly(10), "a").guessed(4).scaled(0.5)], {"a": FIRST})
    assert halved == Judged(5, (500, 50), (4400, 440), MANY)


def test_scatter_widens_the_bound_and_the_worst_case_caps_it() -> None:
    wide = Rate(MANY, (100.0, 10.0), (50.0, 0.0), (300.0, 10.0))
    assert judge([use(Range.exactly(100), "a")], {"a": wide}) == Judged(100, (10_000, 1000), (12_500, 1100), MANY)
    assert judge([use(Range.exactly(100), "a", most=900)], {"a": wide}) == Judged(100, (900, 900), (900, 900), MANY)


def test_a_few_answers_bound_each_by_the_largest() -> None:
    few = Rate(ENOUGH, (100.0, 10.0), (50.0, 0.0), (300.0, 12.0))
    assert judge([use(Range.exactly(100), "a")], {"a": few}) == Judged(100, (10_000, 1000), (37_500, 1500), ENOUGH)


def test_what_answers_call_for_counts_by_how_often_they_did() -> None:
    second = Rate(MANY // 2, (40.0, 4.0), (0.0, 0.0), (40.0, 4.0))
    found = judge([use(Range.exactly(100), "a", "b")], {"a": FIRST, "b": second})
    assert found == Judged(150, (12_000, 1200), (13_500, 1350), MANY + MANY // 2)


def test_a_task_without_answers_counts_at_its_worst_and_is_expected_to_take_what_is_usual() -> None:
    known, unknown = use(Range.exactly(10), "a", most=4000), use(Range.exactly(5), "b", most=2000)
    assert judge([known, unknown], {"a": FIRST}) == Judged(15, (1000 + 70, 100 + 7), (1100 + 2000, 110 + 2000), MANY)


@pytest.mark.parametrize("rates", [{}, {"a": Rate(ENOUGH - 1, (1.0, 1.0), (0.0, 0.0), (1.0, 1.0))}, {"b": FIRST}])
def test_too_few_answers_give_no_likely_bound(rates: dict[str, Rate]) -> None:
    assert judge([use(Range.exactly(1), "a")], rates) == Judged(1, USUAL, None, 0)
    assert judge([LlmUse("m", ZERO, ZERO, ZERO, ("a",))], rates) == Judged(0, (0, 0), (0, 0), 0)
    assert judge([use(Range.exactly(1))], {"a": FIRST}) == Judged(1, USUAL, None, 0)


def test_what_is_expected_lies_within_the_bounds(tmp_path: Path) -> None:
    store = init_folder(tmp_path / "store")
    wide = use(Range(2, 4), "a", most=50)
    counted = LlmUse("encoder", Range.exactly(3), Range(10, 90), ZERO, counted=Range(40, 44))
    uses = model_uses([wide, wide, counted], store)
    assert uses["m"] == ModelUse(
        calls=Forecast(0, 16, 6),
        input_tokens=Forecast(0, 100, 100),
        output_tokens=Forecast(0, 100, 14),
        likely=None,
        answers=0,
    )
    assert uses["encoder"] == ModelUse(Forecast(3, 3, 3), Forecast(10, 90, 40), Forecast(0, 0, 0), (44, 0), 0)
