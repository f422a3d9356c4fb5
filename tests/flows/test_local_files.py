"""Workers of other machines see the store in a bucket, and no file of the machine that builds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from flows.remote_cluster import LocalFilesExecutor
from tasks.core.executor import Call, InlineExecutor, StoppedError
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.storage.services import bucket_of, s3_environment, s3_service


class OtherMachine(InlineExecutor):
    """Has none of the files that a local call needs."""

    def __init__(self, *gone: Path) -> None:
        super().__init__()
        self.ran = 0
        self._gone = gone

    def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
        for call in calls:
            assert not call.local, call.key
            assert not any(str(path) in repr(call.arguments) for path in self._gone), call
            self.ran += 1
            yield from super().run([call], **options)


@pytest.mark.slow
def test_workers_of_a_bucket_get_no_path_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(8))
    monkeypatch.setenv("INDEXMILL_CACHE", str(tmp_path / "cache"))
    expected = build(settings(tmp_path / "store", corpus))
    there, here = OtherMachine(corpus, tmp_path / "cache"), InlineExecutor()
    with s3_service() as service, s3_environment(service):
        store = f"{bucket_of(service)}/index"
        made = build({**settings(tmp_path, corpus), "store": store}, LocalFilesExecutor(there, here))
    assert (made.version, made.manifest) == (1, expected.manifest)
    assert there.ran > 5


def test_stopping_stops_both() -> None:
    there, here = InlineExecutor(), InlineExecutor()
    both = LocalFilesExecutor(there, here)
    both.stop()
    for local in (True, False):
        with pytest.raises(StoppedError):
            list(both.run([Call("a", len, ("ab",), local=local)]))
    with pytest.raises(StoppedError):
        both.wait(0)


def test_results_of_both_come_with_their_calls() -> None:
    calls = [Call(str(n), abs, (-n,), local=bool(n % 2)) for n in range(4)]
    both = LocalFilesExecutor(OtherMachine(), InlineExecutor())
    assert {call.key: value for call, value in both.run(calls)} == {str(n): n for n in range(4)}
