"""Steps that make parts at the same time."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

from storage.folder import FolderStore
from tasks.core.part_runner import PartRunner, PartSpec
from tasks.core.report import Silent
from tasks.core.stage import NoSettings, Outputs, Stage

STAGE: Stage[NoSettings] = Stage("first", 1, lambda _: Outputs(), per_document=True)


class Idle:
    """An executor that makes nothing."""

    def run(self, *_: Any, **__: Any) -> Iterator[Any]:
        return iter(())


class Interrupted:
    """A stage; while somebody looks at it, another step begins."""

    name, outputs = "interrupted", ()

    def __init__(self, runner: PartRunner) -> None:
        self._runner = runner

    @property
    def per_document(self) -> bool:
        begun = dataclasses.replace(STAGE, name="second")
        step = threading.Thread(target=self._runner.make, args=(begun, []))
        step.start()
        step.join()
        return True


def test_a_step_begins_while_another_looks_at_all_stages(store: FolderStore) -> None:
    executor: Any = Idle()
    runner = PartRunner(store, executor, "run", parent=None, progress=Silent(), cold=False)
    looked_at: Any = Interrupted(runner)
    runner.stages[looked_at.name] = looked_at
    runner.make(STAGE, [PartSpec("p", {}, NoSettings())])
    assert sorted(runner.stages) == ["first", "interrupted", "second"]
