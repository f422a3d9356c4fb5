"""A corpus that changes night by night is the same index, wherever its documents are kept, whenever it was built.

Each place gets the same changes: documents that are new, edited, deleted, and deleted and back again. Builds follow
some of the nights, and each gives the manifest of a first build of the corpus as it is then.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pytest

from tasks.stages.ingest import scan_process
from tests.corpora import Documents, documents, write_corpus
from tests.deep import WHOLE
from tests.flows.children import SMALL_TREE, Forks, build, settings
from tests.flows.postgres import database
from tests.flows.readers import whole_versions
from tests.storage.quick import quick_folder
from tests.storage.services import S3Bucket, s3_environment, s3_service

Night = Mapping[str, tuple[str, str] | None]
"""What changes in a night: title and text by id, None for a deletion."""

SECRET = "n0t-in/any:log"  # noqa: S105 - of a database that ends with the test
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
QUERY = "SELECT id, title, text, changed, gone FROM documents WHERE changed > :cursor"


def nights(count: int, first: int, changes: int, seed: int = 0) -> list[Night]:
    """The first night has so many documents, each other one so many changes."""
    chance = random.Random(seed)  # noqa: S311 - test data
    pool = documents(first + count * changes, words=70)
    fresh = iter(sorted(pool))
    held = {name: pool[name] for name in itertools.islice(fresh, first)}
    gone: list[str] = []
    made: list[Night] = [dict(held)]
    for number in range(1, count):
        night: dict[str, tuple[str, str] | None] = {}
        for _ in range(changes):
            kind = chance.random()
            if kind < 0.25:
                name = next(fresh)
                night[name] = pool[name]
            elif kind < 0.5 and len(held) > 4:
                name = chance.choice(sorted(held.keys() - night.keys()))
                night[name] = None
                gone.append(name)
            elif kind < 0.57 and gone:
                name = gone.pop()
                night[name] = pool[name]
            else:
                name = chance.choice(sorted(held.keys()))
                night[name] = (pool[name][0], f"{pool[name][1]} Fenna Rook came to Vell in night {number}.")
        for name, document in night.items():
            held.pop(name, None)
            if document is not None:
                held[name] = document
        gone = [name for name in gone if name not in held]
        made.append(night)
    return made


def corpus_after(some: Sequence[Night]) -> Documents:
    """The documents once some nights have passed."""
    held: Documents = {}
    for night in some:
        for name, document in night.items():
            held.pop(name, None)
            if document is not None:
                held[name] = document
    return held


class Place(Protocol):
    """Where documents are kept. corpus: its settings."""

    @property
    def corpus(self) -> dict[str, Any]: ...

    def change(self, night: Night) -> None: ...


class Folder:
    """A file for each document."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "documents"
        self.folder.mkdir()

    @property
    def corpus(self) -> dict[str, Any]:
        return {"paths": [str(self.folder)]}

    def change(self, night: Night) -> None:
        for name, document in night.items():
            path = self.folder / f"{name}.json"
            path.unlink(missing_ok=True)
            if document is not None:
                path.write_bytes(file_of(name, document))


class Repository(Folder):
    """The same in git, with a commit for each change."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._git("init", "-q", "-b", "main")

    @property
    def corpus(self) -> dict[str, Any]:
        return {"paths": [], "sources": [{"kind": "git", "repository": str(self.folder), "ref": "main"}]}

    def change(self, night: Night) -> None:
        pieces = [night] if len(night) > 20 else [{name: document} for name, document in night.items()]
        for piece in pieces:
            super().change(piece)
            self._git("add", "-A")
            self._git("commit", "-q", "--allow-empty", "-m", "a change")

    def commits(self) -> int:
        return int(self._git("rev-list", "--count", "main"))

    def _git(self, *arguments: str) -> str:
        who = {f"GIT_{role}_{what}": "tester" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(
            ["git", "-C", self.folder, *arguments],  # noqa: S607
            env={**os.environ, **who, **nothing}, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout


class Bucket:
    """The same as objects of a bucket."""

    def __init__(self, endpoint: str) -> None:
        self._bucket = S3Bucket(endpoint)

    @property
    def corpus(self) -> dict[str, Any]:
        return {"paths": [], "sources": [{"kind": "bucket", "url": f"{self._bucket.url}/wiki"}]}

    def change(self, night: Night) -> None:
        for name, document in night.items():
            key = f"wiki/{name}.json"
            if document is None:
                self._bucket.delete(key)
            else:
                self._bucket.put(key, file_of(name, document))


class Table:
    """Rows of a database that say when they changed, and whether they are deleted."""

    def __init__(self, url: str, run: Callable[[str, Sequence[Any]], Any], marks: str, stamp: str) -> None:
        self._url, self._run, self._marks = url, run, marks
        self._moment = START
        run(f"CREATE TABLE documents (id text PRIMARY KEY, title text, text text, changed {stamp}, gone boolean)", ())

    @property
    def corpus(self) -> dict[str, Any]:
        place = {"kind": "sql", "url": self._url, "query": QUERY, "cursor": "changed", "deleted": "gone"}
        return {"paths": [], "sources": [place]}

    def change(self, night: Night) -> None:
        for name, document in night.items():
            self._moment += datetime.timedelta(microseconds=1)
            title, text = document or ("", "")
            self._run(f"DELETE FROM documents WHERE id = {self._marks}", (name,))  # noqa: S608
            values = (name, title, text, self._moment.isoformat(timespec="microseconds"), document is None)
            self._run(f"INSERT INTO documents VALUES ({', '.join([self._marks] * 5)})", values)  # noqa: S608


class Feed:
    """Events of a change feed, in a file for each few nights, which grows and is rotated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "feed"
        self.folder.mkdir()
        self._night = 0

    @property
    def corpus(self) -> dict[str, Any]:
        return {"paths": [], "sources": [{"kind": "feed", "paths": [str(self.folder)]}]}

    def change(self, night: Night) -> None:
        self._night += 1
        with (self.folder / f"events-{self._night // 3:03d}.jsonl").open("a", encoding="utf-8") as file:
            for name, document in night.items():
                event: dict[str, Any] = {"op": "delete", "id": name}
                if document is not None:
                    event = {"op": "upsert", "id": name, "title": document[0], "text": document[1]}
                file.write(json.dumps(event) + "\n")


def file_of(name: str, document: tuple[str, str]) -> bytes:
    return json.dumps({"id": name, "title": document[0], "text": document[1]}).encode()


def of_sqlite(folder: Path) -> Table:
    connection = sqlite3.connect(folder / "wiki.db", isolation_level=None)
    return Table(f"sqlite:///{folder}/wiki.db", connection.execute, "?", "text")


@contextlib.contextmanager
def of_postgres() -> Iterator[Table]:
    psycopg = pytest.importorskip("psycopg", reason="not installed: psycopg (pip install 'indexmill[sql]')")
    with (
        database("wiki", SECRET) as port,
        patch.dict(os.environ, {"INDEXMILL_TEST_WORD": SECRET}),
        psycopg.connect(
            host="127.0.0.1", port=port, user="wiki", password=SECRET, dbname="wiki", autocommit=True
        ) as connection,
    ):
        url = f"postgresql://wiki:$INDEXMILL_TEST_WORD@127.0.0.1:{port}/wiki"
        yield Table(url, connection.execute, "%s", "timestamptz")


@contextlib.contextmanager
def of_bucket() -> Iterator[Bucket]:
    with s3_service() as endpoint, s3_environment(endpoint):
        yield Bucket(endpoint)


@contextlib.contextmanager
def kept(kind: str, folder: Path) -> Iterator[Place]:
    """A place of a kind, while the service behind it runs and its credentials are set."""
    scan_process.close()  # a process that waits for a scan has the environment of an earlier test
    served: dict[str, Callable[[], contextlib.AbstractContextManager[Place]]] = {
        "postgres": of_postgres, "bucket": of_bucket,
    }  # fmt: skip
    local: dict[str, Callable[[Path], Place]] = {
        "folder": Folder, "sqlite": of_sqlite, "feed": Feed, "git": Repository,
    }  # fmt: skip
    try:
        if kind in served:
            with served[kind]() as place:
                yield place
        else:
            yield local[kind](folder)
    finally:
        scan_process.close()


@pytest.fixture(params=["folder", "sqlite", "feed", "git", "bucket", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with kept(request.param, tmp_path) as place:
        yield place


def chosen(store: Path, place_corpus: dict[str, Any]) -> dict[str, Any]:
    """The settings of a build; of each record id, title and text are kept, so that places can be compared."""
    corpus = {**place_corpus, "fields": {"metadata": []}}
    return settings(store, families=SMALL_TREE, corpus=corpus)


def fresh_build(folder: Path, rows: Documents) -> str:
    """The manifest of a first build of some documents."""
    corpus = write_corpus(folder / "fresh.jsonl", rows)
    with quick_folder() as store:
        return build(chosen(store / "fresh", {"paths": [str(corpus)]})).manifest


HISTORY = nights(14, 30, 5)
BUILT_AFTER = {4, 5, 13}


@pytest.fixture(scope="module")
def expected(memory: Path) -> dict[int, str]:
    """The manifests of first builds of the corpus, by the nights after which they are built."""
    found = {}
    for number in sorted(BUILT_AFTER):
        folder = memory / f"fresh-{number}"
        folder.mkdir()
        found[number] = fresh_build(folder, corpus_after(HISTORY[: number + 1]))
    return found


def test_the_nights_change_documents_in_every_way() -> None:
    last = corpus_after(HISTORY)
    assert len(set(last) - set(HISTORY[0])) > 5
    assert len(set(HISTORY[0]) - set(last)) > 2
    assert sum(name in HISTORY[0] and last[name] != HISTORY[0][name] for name in last) > 5
    events = [(name, document is None) for night in HISTORY for name, document in night.items()]
    deleted = {name for name, is_gone in events if is_gone}
    assert any(name in last for name in deleted)


@pytest.mark.slow
def test_a_place_read_night_by_night_gives_the_index_of_a_first_build(
    place: Place, expected: dict[int, str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    for number, night in enumerate(HISTORY):
        place.change(night)
        if number in BUILT_AFTER:
            made = build(chosen(store, place.corpus))
            assert made.manifest == expected[number], f"night {number}"
            assert (made.published, made.quarantined) == (True, 0)
    assert not build(chosen(store, place.corpus)).published
    full = build(chosen(store, place.corpus), full=True)
    assert (full.manifest, full.published) == (expected[max(BUILT_AFTER)], False)
    if isinstance(place, Repository):
        assert place.commits() >= 60
    for path in store.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


class Disturbed:
    """A place with a night that was built and one that is to be; and the manifests before, after, and a night later."""

    def __init__(self, forks: Forks, place: Place, folder: Path) -> None:
        some = nights(3, 6, 4, seed=3)
        self._forks, self._folder = forks, folder
        self.place = place
        self.later = some[2]
        self.place.change(some[0])
        self.start = folder / "start"
        first = build(self.settings(self.start))
        self.place.change(some[1])
        shutil.copytree(self.start, folder / "undisturbed")
        ended = forks.build(self.settings(folder / "undisturbed"))
        assert ended.outcome is not None, ended.message
        assert ended.outcome.manifest == fresh_build(folder, corpus_after(some[:2])) != first.manifest
        self.crossed = ended.crossed
        self.manifests = {1: first.manifest, 2: ended.outcome.manifest}
        self.manifests[3] = fresh_build(folder, corpus_after(some))

    def settings(self, store: Path) -> dict[str, Any]:
        return chosen(store, self.place.corpus)

    def kill(self, boundaries: Sequence[int]) -> list[Path]:
        """The stores of builds that died at some boundaries and were started again, all with the second version."""
        stores = []
        for at in boundaries:
            store = self._folder / f"killed-{at}"
            shutil.copytree(self.start, store)
            assert self._forks.build(self.settings(store), at).code == -signal.SIGKILL
            newest = whole_versions(store, self.manifests)
            again = build(self.settings(store))
            assert (again.version, again.manifest) == (2, self.manifests[2]), at
            assert again.published == (newest < 2)
            stores.append(store)
        return stores

    def sample(self, count: int) -> list[int]:
        """So many boundaries, and those around the commit."""
        total = len(self.crossed)
        commit = [at for at, name in enumerate(self.crossed, 1) if "refs/" in name]
        return sorted({*(total * part // count + 1 for part in range(count)), *commit, min(total, commit[-1] + 1)})


KINDS = ["sqlite", "postgres", "git", "bucket", "feed"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_death_at_many_boundaries_neither_loses_nor_doubles_a_change(kind: str) -> None:
    with quick_folder() as folder, kept(kind, folder) as place, Forks() as forks:
        job = Disturbed(forks, place, folder)
        stores = job.kill(job.sample(len(job.crossed) if WHOLE else 4))
        place.change(job.later)
        for store in stores:  # the cursor of the version counts, not that of a build that died
            made = build(job.settings(store))
            assert (made.version, made.manifest) == (3, job.manifests[3]), store.name
            assert whole_versions(store, job.manifests) == 3
