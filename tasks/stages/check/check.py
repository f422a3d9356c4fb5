"""Stage `check`: compare the artifacts with each other before anything is published.

All parts exist by then, so a disagreement means a bug or changed bytes on disk. The check raises an error that names
the artifact, and nothing is published. Each shard of documents or of entities, and each group of texts, has its own
check, so that a refresh checks only what changed; the check of the whole corpus (the label `all`) relies on these
checks. No id can be in two shards, since a shard's label is a prefix of the hashes of its ids.

The stages (`tasks.stages.check.shared_checks`) and the families declare the checks.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tasks.core.checks import Check, refuse_if
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.stages.check.shared_checks import CHECKS

_STATED = ("documents", "entities", "passages", "sentences")
"""The counts that the check of the whole corpus reports."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings(StageSettings):
    """The checks of a part, in order."""

    checks: tuple[Check, ...] = worker_arg()


def checks_of(family_checks: Iterable[Check], inputs: Collection[str], *, whole: bool) -> tuple[Check, ...]:
    """Return the shared checks and the families' checks that apply to a part with these input names."""

    def reads(first: Input) -> bool:
        return any(name.startswith(f"{first.name}/") for name in inputs) if first.each else first.name in inputs

    return tuple(
        check
        for check in _declared(family_checks, whole=whole)
        if reads(check.inputs[0]) or (whole and check.inputs[0].each)
    )


def _declared(family_checks: Iterable[Check], *, whole: bool) -> list[Check]:
    return [check for check in (*CHECKS, *family_checks) if check.whole == whole]


def drive(run: Run) -> None:
    """Check every shard and group, then the artifacts of the whole corpus. Raises CheckError if they disagree."""
    by_label = _by_label(run)
    checked = run.make(STAGE, [_part(run, label, by_label[label]) for label in sorted(by_label)])
    counted = {f"checked/{label}": checked[label].outputs["checked"] for label in by_label}
    whole = _part(run, WHOLE, _of_the_whole(run))
    run.make(STAGE, [dataclasses.replace(whole, inputs={**whole.inputs, **counted})])


def _part(run: Run, label: str, digests: Mapping[str, str]) -> PartSpec:
    """Return the check part of a label; its inputs are the digests that its checks declare, by input name."""
    checks = checks_of(run.checks, digests, whole=label == WHOLE)
    inputs: dict[str, str] = {}
    for declared in (declared for check in checks for declared in check.inputs):
        if declared.each or declared.pieces:
            inputs |= {name: digest for name, digest in digests.items() if name.startswith(f"{declared.name}/")}
        elif declared.name in digests or not declared.optional:
            inputs[declared.name] = digests[declared.name]
    return PartSpec(label, inputs, CheckSettings(checks=checks))


def _by_label(run: Run) -> dict[str, dict[str, str]]:
    """Return the digests that a label's checks may read, by label, then by the checks' input name."""
    checks = _declared(run.checks, whole=False)
    names = {declared.source: declared for check in checks for declared in check.inputs if not declared.each}
    firsts = {check.inputs[0].name for check in checks}
    by_label: dict[str, dict[str, str]] = {}
    pieces: list[tuple[str, str, str]] = []
    for output, digest in run.outputs(*names).items():
        source, _, label = output.partition("/")
        if names[source].pieces:
            pieces.append((label, f"{names[source].name}/{label}", digest))
        else:
            by_label.setdefault(label, {})[names[source].name] = digest
    by_label = {label: inputs for label, inputs in by_label.items() if not firsts.isdisjoint(inputs)}
    for piece, name, digest in pieces:
        shard = next((piece[:end] for end in range(1, len(piece) + 1) if piece[:end] in by_label), None)
        if shard is not None:
            by_label[shard][name] = digest
    for check in checks:
        if check.inputs[0].each:
            for label, inputs in _by_group(run, check).items():
                by_label.setdefault(label, {}).update(inputs)
    return by_label


def _by_group(run: Run, check: Check) -> dict[str, dict[str, str]]:
    """Return the digests that a group's check reads, by the group's label, which is a prefix of its blocks' labels."""
    prefix = f"{check.inputs[0].source}/"
    groups = sorted(
        label
        for parts in list(run.parts.values())
        for label, part in parts.items()
        if any(name.startswith(prefix) for name in part.outputs)
    )
    by_group: dict[str, dict[str, str]] = {label: {} for label in groups}
    for declared in check.inputs:
        for output, digest in run.outputs(declared.source).items():
            block = output.partition("/")[2]
            group = groups[bisect.bisect_right(groups, block) - 1]
            by_group[group][f"{declared.name}/{block}"] = digest
    return by_group


def _of_the_whole(run: Run) -> dict[str, str]:
    """Return the digests that whole-corpus checks may read, from whole-corpus parts and from every label's parts."""
    digests: dict[str, str] = {}
    for declared in (declared for check in _declared(run.checks, whole=True) for declared in check.inputs):
        stage, _, output = declared.name.partition("/")
        if declared.each:
            digests |= run.outputs(declared.name)
        elif WHOLE in (parts := run.parts.get(stage, {})):
            digests[declared.name] = parts[WHOLE].outputs[output or stage]
    return digests


def _compute(part: Part[CheckSettings]) -> Outputs:
    whole = part.job.shard == WHOLE
    counts = _summed(part) if whole else Counter[str]()
    for check in part.settings.checks:
        stage = dataclasses.replace(part.stage, inputs=check.inputs)
        counted = check.check(Part(part.store, part.job, stage), counts)
        if counted and not whole:
            counts.update(counted)
    stated = {name: counts[name] for name in (_STATED if whole else counts)}
    return Outputs(files={"checked": json.dumps(stated, sort_keys=True).encode()})


def _summed(part: Part[CheckSettings]) -> Counter[str]:
    labels = part.labels("checked")
    nested = [outer for outer, inner in pairwise(labels) if inner.startswith(outer)]
    refuse_if(bool(nested), f"the shard {nested[:1]} contains another shard: rows may be duplicated")
    counts = Counter[str]()
    for label in labels:
        counts.update(json.loads(part.path(part.digest(f"checked/{label}")).read_bytes()))
    return counts


STAGE = Stage(
    "check",
    version=9,
    compute=_compute,
    libraries=("polars", "numpy"),
    expensive=True,
    inputs=(Input("checked", each=True, optional=True),),
    outputs=(Output("checked"),),
)
"""The checks declare the other inputs."""
