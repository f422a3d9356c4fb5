"""The order of steps: derived, stable, and refused where it cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.order import in_order
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.core.step import Step
from tests.deep import examples


def nothing(_: Part[object]) -> Outputs:
    return Outputs()


def step(name: str, reads: str = "", makes: str = "", *, after: tuple[str, ...] = (), encoder: bool = False) -> Step:
    inputs = tuple(Input(one) for one in reads.split())
    outputs = tuple(Output(one) for one in makes.split())
    stage = Stage[object](name, 1, nothing, inputs=inputs, outputs=outputs, uses_encoder=encoder)
    return Step(name, lambda _: None, (stage,), after=after)


def names(steps: tuple[Step, ...]) -> list[str]:
    return [one.name for one in steps]


def test_steps_follow_those_that_make_what_they_read() -> None:
    found = in_order(
        [step("graph", "vectors names"), step("embed", "texts", "vectors"), step("split", "", "texts names")]
    )
    assert names(found) == ["split", "embed", "graph"]
    assert {one.name: one.needs for one in found} == {"split": (), "embed": ("split",), "graph": ("embed", "split")}


def test_steps_that_could_all_be_next_stand_as_they_were_given() -> None:
    assert names(in_order([step("b"), step("a"), step("c", after=("b",))])) == ["b", "a", "c"]


def test_a_stage_that_uses_the_encoder_waits_for_it() -> None:
    assert in_order([step("embed", encoder=True), step("encoder")])[1].needs == ("encoder",)


def test_a_step_may_read_what_it_makes_itself() -> None:
    assert in_order([step("layers", "summaries", "summaries")])[0].needs == ()


@pytest.mark.parametrize(
    ("steps", "error", "said"),
    [
        ([step("a", "x", "y"), step("b", "y", "x")], ValueError, "wait for each other: a -> b -> a|b -> a -> b"),
        ([step("a", "", "vectors"), step("b", "vector")], LookupError, "b reads 'vector', .*did you mean 'vectors'"),
        ([step("a", after=("spilt",)), step("split")], LookupError, "follows 'spilt', .*did you mean 'split'"),
        ([step("a", "", "x"), step("b", "", "x"), step("c", "x")], LookupError, "'x', which a and b make; choose one"),
        ([step("a"), step("a")], ValueError, "two steps are called 'a'"),
    ],
)
def test_what_cannot_be_ordered_is_refused(steps: list[Step], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        in_order(steps)


def test_an_input_may_say_which_stage_makes_it() -> None:
    chosen = Stage[object]("c", 1, nothing, inputs=(Input("x", stage="b"),))
    found = in_order([step("a", "", "x"), step("b", "", "x"), Step("c", lambda _: None, (chosen,))])
    assert found[-1].needs == ("b",)


@examples(20, deep=100)
@given(st.lists(st.sets(st.integers(0, 9)), max_size=10))
def test_every_step_follows_what_it_needs(reads: list[set[int]]) -> None:
    """Steps that read only what steps of a lower number make, given in the reverse order."""
    steps = [
        step(f"s{number}", " ".join(f"o{one}" for one in sorted(wanted) if one < number), f"o{number}")
        for number, wanted in enumerate(reads)
    ]
    place = {one.name: at for at, one in enumerate(in_order(steps[::-1]))}
    for one in in_order(steps[::-1]):
        assert all(place[need] < place[one.name] for need in one.needs)
