"""Stage `check`: compares the artifacts with each other before anything is published.

A build that gets here has made every part; an error found here is a bug, or bytes that changed on disk. Either way
nothing is published: the check raises, and names the artifact. Each shard of documents or of entities, and each
group of texts, has a check of its own, so that a refresh checks those that changed; the check of the whole corpus (the
label `all`) relies on them. No id can be in two shards, since each shard holds the ids that its label says.

The stages (`tasks.stages.check.rows`) and the families declare the checks.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tasks.core.checks import Check, refuse_if
from tasks.core.family import Family
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, Output, Outputs, Part, Settings, Stage, worker_arg
from tasks.stages.check.rows import CHECKS

_STATED = ("documents", "entities", "passages", "sentences")
"""The counts that the check of the whole corpus states."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """The checks of a part, in their order."""

    checks: tuple[Check, ...] = worker_arg()


def checks_of(families: Iterable[Family], inputs: Collection[str], *, whole: bool) -> tuple[Check, ...]:
    """The checks of the stages and of some families that a part with inputs of these names has."""

    def reads(first: Input) -> bool:
        return any(name.startswith(f"{first.name}/") for name in inputs) if first.each else first.name in inputs

    return tuple(
        check
        for check in _declared(families, whole=whole)
        if reads(check.inputs[0]) or (whole and check.inputs[0].each)
    )


def _declared(families: Iterable[Family], *, whole: bool) -> list[Check]:
    checks = (*CHECKS, *(check for family in families for check in family.checks))
    return [check for check in checks if check.whole == whole]


def drive(run: Run) -> None:
    """Check every shard and group, then the artifacts of the whole corpus; raises CheckError where they disagree."""
    found = _by_label(run)
    checked = run.make(STAGE, [_part(run, label, found[label]) for label in sorted(found)])
    counted = {f"checked/{label}": checked[label].outputs["checked"] for label in found}
    whole = _part(run, WHOLE, _of_the_whole(run))
    run.make(STAGE, [dataclasses.replace(whole, inputs={**whole.inputs, **counted})])


def _part(run: Run, label: str, found: Mapping[str, str]) -> PartSpec:
    """The check part of a label; its inputs are those digests in `found` that its checks declare."""
    checks = checks_of(run.families, found, whole=label == WHOLE)
    inputs: dict[str, str] = {}
    for one in (one for check in checks for one in check.inputs):
        if one.each or one.pieces:
            inputs |= {name: digest for name, digest in found.items() if name.startswith(f"{one.name}/")}
        elif one.name in found or not one.optional:
            inputs[one.name] = found[one.name]
    return PartSpec(label, inputs, CheckSettings(checks=checks))


def _by_label(run: Run) -> dict[str, dict[str, str]]:
    """The digests that the checks of one label may read, by label, then by the input name that the checks use."""
    checks = _declared(run.families, whole=False)
    names = {one.source: one for check in checks for one in check.inputs if not one.each}
    firsts = {check.inputs[0].name for check in checks}
    found: dict[str, dict[str, str]] = {}
    pieces: list[tuple[str, str, str]] = []
    for output, digest in run.outputs(*names).items():
        source, _, label = output.partition("/")
        if names[source].pieces:
            pieces.append((label, f"{names[source].name}/{label}", digest))
        else:
            found.setdefault(label, {})[names[source].name] = digest
    found = {label: inputs for label, inputs in found.items() if not firsts.isdisjoint(inputs)}
    for piece, name, digest in pieces:
        shard = next((piece[:end] for end in range(1, len(piece) + 1) if piece[:end] in found), None)
        if shard is not None:
            found[shard][name] = digest
    for check in checks:
        if check.inputs[0].each:
            for label, inputs in _by_group(run, check).items():
                found.setdefault(label, {}).update(inputs)
    return found


def _by_group(run: Run, check: Check) -> dict[str, dict[str, str]]:
    """The digests that the check of a group's blocks reads, by the label of the part that made the first input's.

    A block belongs to the group whose label its own begins with.
    """
    made = f"{check.inputs[0].source}/"
    groups = sorted(
        label
        for parts in list(run.parts.values())
        for label, part in parts.items()
        if any(name.startswith(made) for name in part.outputs)
    )
    found: dict[str, dict[str, str]] = {label: {} for label in groups}
    for one in check.inputs:
        for output, digest in run.outputs(one.source).items():
            block = output.partition("/")[2]
            group = groups[bisect.bisect_right(groups, block) - 1]
            found[group][f"{one.name}/{block}"] = digest
    return found


def _of_the_whole(run: Run) -> dict[str, str]:
    """The digests that checks of the whole corpus may read: outputs of its own parts, and those of every label."""
    found: dict[str, str] = {}
    for one in (one for check in _declared(run.families, whole=True) for one in check.inputs):
        stage, _, output = one.name.partition("/")
        if one.each:
            found |= run.outputs(one.name)
        elif WHOLE in (parts := run.parts.get(stage, {})):
            found[one.name] = parts[WHOLE].outputs[output or stage]
    return found


def _compute(part: Part[CheckSettings]) -> Outputs:
    whole = part.job.shard == WHOLE
    counts = _summed(part) if whole else Counter[str]()
    for check in part.settings.checks:
        stage = dataclasses.replace(part.stage, inputs=check.inputs)
        counted = check.check(Part(part.store, part.job, stage), counts)
        if not whole:
            counts.update(counted)
    stated = {name: counts[name] for name in (_STATED if whole else counts)}
    return Outputs(files={"checked": json.dumps(stated, sort_keys=True).encode()})


def _summed(part: Part[CheckSettings]) -> Counter[str]:
    """The sums of the counts that the checks of all labels stated."""
    labels = part.labels("checked")
    nested = [one for one, other in pairwise(labels) if other.startswith(one)]
    refuse_if(bool(nested), f"the shard {nested[:1]} holds another: rows may be there twice")
    counts = Counter[str]()
    for label in labels:
        counts.update(json.loads(part.path(part.digest(f"checked/{label}")).read_bytes()))
    return counts


STAGE = Stage(
    "check",
    version=9,
    compute=_compute,
    libraries=("polars", "numpy"),
    settings=CheckSettings,
    expensive=True,
    inputs=(Input("checked", each=True, optional=True),),
    outputs=(Output("checked"),),
)
"""The checks declare the other inputs."""
