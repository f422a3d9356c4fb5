"""Builds in child processes, which may be killed at any moment.

`Forks` starts one clean process that has imported the pipeline and forks a child for every build: a child then costs
milliseconds, and inherits no thread of the tests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from flows.build_run import BuildOptions, BuildOutcome, backfill_inline, run_build
from indexmill.command import main
from indexmill.errors import IndexmillError
from schemas.config import Configuration
from storage import faults
from tasks.core.executor import Executor, InlineExecutor
from tasks.core.report import Progress, Silent
from tasks.pipeline.backfill import Waves
from tasks.pipeline.build import Build
from tasks.stages.recognise import rules as recognise
from tests.llm_server import LlmServer
from tests.paths import ROOT

_UNEXPECTED = 99

SMALL_TREE: dict[str, Any] = {"lsh_tree": {"smallest": 2, "largest": 4}}
"""Families, with a tree that has layers over a handful of passages."""

NO_FAMILIES: dict[str, Any] = {name: {"enabled": False} for name in ("lsh_tree", "zoom_graph", "tri_graph", "bm25")}
"""Families, with none of those that are enabled by default."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a build in a child ended: an exit code (negative for a signal), and what it could still tell."""

    code: int
    error: str = ""  # the class of the error
    message: str = ""
    outcome: BuildOutcome | None = None
    crossed: tuple[str, ...] = ()  # the boundaries of durable writes, in order


def settings(store: Path, *corpus: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    """The settings of a build with the deterministic encoder and small shards, fit to be sent as JSON."""
    plain: dict[str, Any] = {
        "store": str(store),
        "corpus": {"paths": [str(path) for path in corpus]},
        "embed": {"model": "hash"},
        "shards": {"document_tokens": 1_000, "entities": 64},
        "gates": {"max_shrink": 1.0},
    }
    for name, values in changes.items():
        plain[name] = plain.get(name, {}) | values
    return plain


def asking(server: LlmServer, **more: Any) -> dict[str, Any]:
    """The settings of a language model behind a server, whose key is in CANARY_KEY."""
    return {
        "backend": "openai",
        "model": "tester",
        "base_url": server.base_url,
        "api_key_env": "CANARY_KEY",
        **more,
    }


class Warnings(Silent):
    """What a run warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def build(
    chosen: dict[str, Any],
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[BuildOptions],
) -> BuildOutcome:
    """A build without Prefect, inline unless an executor is given."""
    configuration = Configuration.model_validate(chosen)
    return run_build(configuration, executor or InlineExecutor(), Build.run, progress=progress or Silent(), **options)


def collect(store: str) -> None:
    """`indexmill gc` that removes all but the newest version at once, however young; says nothing."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["gc", "--store", store, "--keep-last", "1", "--grace", "0s", "--now"]) == 0


class Forks:
    """A process that builds in children of its own, one at a time. modules: imported before, once for all."""

    def __init__(self, hash_seed: str = "random", modules: Sequence[str] = ()) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.flows.children", *modules],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def build(
        self,
        chosen: dict[str, Any],
        at: int = 0,
        mode: str = "kill",
        workers: int | None = None,
        after: float | None = None,
        waves: Waves | None = None,
    ) -> Ended:
        """Build in a child; the crossing `at` fails as `storage.faults` describes, `full` meaning every later write.

        workers: on a Dask cluster of so many processes; inline by default. after: it dies (SIGALRM, which nothing
        handles) after so many seconds. waves: a backfill.
        """
        order = {"settings": chosen, "at": at, "mode": mode, "workers": workers, "after": after}
        return self._order({**order, "waves": None if waves is None else dataclasses.asdict(waves)})

    def call(self, function: str, *arguments: Any, at: int = 0, mode: str = "kill") -> Ended:
        """Call a function, given as `module:name`, in a child, with a fault like a build's."""
        return self._order({"function": function, "arguments": arguments, "at": at, "mode": mode})

    def _order(self, order: dict[str, Any]) -> Ended:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        outcome = answer.pop("outcome", None)
        return Ended(
            outcome=None if outcome is None else BuildOutcome(**outcome),
            crossed=tuple(answer.pop("crossed", ())),
            **answer,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()


def _serve() -> None:
    recognise.recogniser_of("rules")  # what every child would make anew
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            os._exit(_build_and_tell(order, writing))
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        answer = {"code": os.waitstatus_to_exitcode(status), **(json.loads(told) if told else {})}
        print(json.dumps(answer), flush=True)


def _build_and_tell(order: dict[str, Any], writing: int) -> int:
    crossed: list[str] = []
    told: dict[str, Any] = {}
    code = 0
    if order["mode"] == "full":
        faults.install(_full_disk(order["at"], crossed))
    else:
        faults.install(crossed.append)
        faults.arm(order["at"], order["mode"])
    if order.get("after") is not None:
        signal.setitimer(signal.ITIMER_REAL, order["after"])
    try:
        if "function" in order:
            module, _, name = order["function"].partition(":")
            getattr(importlib.import_module(module), name)(*order["arguments"])
        else:
            told["outcome"] = dataclasses.asdict(_build(order))
    except IndexmillError as error:
        code = error.exit_code
        told.update(error=type(error).__name__, message=str(error))
    except BaseException as error:
        code = _UNEXPECTED
        told.update(error=type(error).__name__, message=str(error))
    told["crossed"] = crossed
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        json.dump(told, pipe)
    return code


def _build(order: dict[str, Any]) -> BuildOutcome:
    configuration = Configuration.model_validate(order["settings"])
    if order["waves"] is not None:
        return backfill_inline(configuration, Waves(**order["waves"]), progress=Silent())
    if order["workers"] is None:
        return build(order["settings"])
    from flows.cluster import private_cluster
    from flows.dask_executor import DaskExecutor

    with ExitStack() as stack:
        client = stack.enter_context(private_cluster(order["workers"], configuration.store))
        return build(order["settings"], DaskExecutor(client))


def _full_disk(at: int, crossed: list[str]) -> faults.Hook:
    def cross(name: str) -> None:
        crossed.append(name)
        if name == "write" and len(crossed) >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return cross


if __name__ == "__main__":
    _serve()
