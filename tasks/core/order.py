"""The order of steps, derived from the inputs and outputs of their stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter

from tasks.core.stage import Input
from tasks.core.step import Step

ENCODER = "encoder"
"""The step that opens the encoder: steps whose stages use it need this one."""


def in_order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps in topological order, each with its `needs`; ties are broken by the given order.

    A step needs the steps that make its stages' inputs, the step `encoder` if a stage uses it, and the steps in
    its `after`. Raises ValueError for a cycle, and LookupError if no stage makes an input, or if several do and the
    input does not name one.
    """
    steps_by_name = {step.name: replace(step, needs=_needs(step, steps)) for step in steps}
    if len(steps_by_name) < len(steps):
        names = [step.name for step in steps]
        raise ValueError(f"two steps are called {next(name for name in names if names.count(name) > 1)!r}")
    sorter = TopologicalSorter({name: step.needs for name, step in steps_by_name.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(f"steps wait for each other: {' -> '.join(reversed(error.args[1]))}") from error
    place = {name: at for at, name in enumerate(steps_by_name)}
    ready: list[str] = []
    ordered: list[Step] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=place.__getitem__)
        first = ready.pop(0)
        ordered.append(steps_by_name[first])
        sorter.done(first)
    return tuple(ordered)


def _needs(step: Step, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the names of the steps that a step waits for, in the order of `steps`."""
    step_names = [other.name for other in steps]
    for name in step.after:
        if name not in step_names:
            raise LookupError(f"the step {step.name} follows {name!r}, which does not exist{_hint(name, step_names)}")
    needs = set(step.after)
    if any(stage.uses_encoder for stage in step.stages):
        needs.add(ENCODER)
    makers = _makers(steps)
    for stage in step.stages:
        for stage_input in stage.inputs:
            needs |= _makers_of(stage_input, stage.name, makers)
    return tuple(name for name in step_names if name in needs and name != step.name)


def _makers(steps: Sequence[Step]) -> dict[str, dict[str, str]]:
    """Return, for each output name, the stages that make the output and the step of each stage."""
    makers: dict[str, dict[str, str]] = {}
    for step in steps:
        for stage in step.stages:
            for output in stage.outputs:
                makers.setdefault(output.name, {})[stage.name] = step.name
    return makers


def _makers_of(stage_input: Input, stage: str, makers: Mapping[str, Mapping[str, str]]) -> set[str]:
    stages = makers.get(stage_input.source, {})
    if stage_input.stage:
        if stage_input.stage not in stages:
            raise LookupError(f"{stage} reads {stage_input.source!r} of {stage_input.stage}, which has no such output")
        return {stages[stage_input.stage]}
    if not stages:
        hint = _hint(stage_input.source, list(makers))
        raise LookupError(f"{stage} reads {stage_input.source!r}, but no stage makes it{hint}")
    if len(stages) > 1:
        raise LookupError(
            f"{stage} reads {stage_input.source!r}, which {' and '.join(sorted(stages))} make; "
            "choose one with Input(stage=...)"
        )
    return set(stages.values())


def _hint(name: str, candidates: Sequence[str]) -> str:
    near = get_close_matches(name, candidates, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
