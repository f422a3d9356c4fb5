"""Take a corpus through all commands: build, evaluate, refresh, query, export and serve."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from benchmarks.acceptance.commands import Programs
from benchmarks.acceptance.corpora import CorpusCut, Source
from benchmarks.acceptance.rows import AcceptanceRow, Group, Measure, at_least
from benchmarks.machine import differing
from benchmarks.sets import read_rows
from indexmill.retrieve.method_registry import METHODS
from tasks.registry import FAMILIES

_HITS = 5
_DOCUMENTS = (5, 10)
_UNTRUSTED = 3  # the exit code
_GRAPHRAG = ("documents", "text_units", "entities", "relationships", "communities", "community_reports")
_HERE = Path(__file__).parent

Floors = Mapping[str, tuple[float, float]]  # by method: the minimum evidence recall at 5 and 10 documents


class HitFields(NamedTuple):
    """The fields of a hit that every interface returns."""

    kind: str
    id: str
    score: float


def hits_of(rows: Iterable[Mapping[str, Any]]) -> list[HitFields]:
    """Return the hits in a response of a command, server or tool."""
    return [HitFields(row["kind"], row["id"], row["score"]) for row in rows]


def write_settings(folder: Path) -> Path:
    """Write a configuration that enables every family; return its path."""
    path = folder / "indexmill.yaml"
    families = {name: {"enabled": True} for name in ("community_tree", "heterograph")}
    path.write_text(json.dumps({"families": families}), encoding="utf-8")
    return path


@dataclass
class _Journey:
    """A cut, its store, and the programs that use it."""

    data: Path
    folder: Path
    programs: Programs
    source: Source
    floors: Floors

    @cached_property
    def corpus(self) -> CorpusCut:
        return self.source.make(self.data, self.folder)

    @cached_property
    def settings(self) -> Path:
        return write_settings(self.folder)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @cached_property
    def question(self) -> dict[str, Any]:
        return read_rows(self.corpus.questions)[0]

    @cached_property
    def hits(self) -> list[HitFields]:
        """The hits of `query`; all other interfaces must return the same."""
        return self.query(self.store)

    def build(self, store: Path, corpus: Path) -> Any:
        return self.programs.json("build", "--config", self.settings, "--store", store, "--corpus", corpus)

    def query(self, store: Path, *options: object) -> list[HitFields]:
        answer = self.programs.json("query", self.question["question"], "-k", _HITS, "--store", store, *options)
        return hits_of(answer["hits"])

    def same(self, hits: list[HitFields]) -> Measure:
        equal = sum(expected == hit for expected, hit in zip(self.hits, hits, strict=False))
        return Measure(f"{equal} equal hits", f"{len(self.hits)}", hits == self.hits)


def journey(name: str, source: Source, floors: Floors) -> Group:
    needs = {"build": (), "rebuild": ("night",)}
    rows = tuple(AcceptanceRow(name, check, needs.get(name, ("build",))) for name, check in _CHECKS.items())
    return Group(
        name, rows, lambda data, folder, programs: _Journey(data, folder, programs, source, floors), source.files
    )


def _build(subject: _Journey) -> Iterator[Measure]:
    documents = len(read_rows(subject.corpus.first))
    outcome = subject.build(subject.store, subject.corpus.first)
    families = set(subject.programs.json("show", "--store", subject.store)["families"])
    yield Measure(
        f"{outcome['documents']} documents, {len(families)} families, {outcome['vectors_made']} vectors",
        f"{documents}, {len(METHODS)}",
        outcome["published"] and outcome["documents"] == documents and families >= set(METHODS),
    )


def _recall(subject: _Journey) -> Iterator[Measure]:
    depths = ",".join(map(str, _DOCUMENTS))
    results = subject.programs.json("evaluate", subject.corpus.questions, "-k", depths, "--store", subject.store)
    methods = results["methods"]
    for method in sorted(methods.keys() | subject.floors.keys(), key=list(subject.floors).index):
        values = [methods[method][f"recall@{k}"] for k in _DOCUMENTS]
        yield at_least(values, subject.floors[method], f"of {method}")


def _night(subject: _Journey) -> Iterator[Measure]:
    before, after = (
        {row["id"]: row for row in read_rows(path)} for path in (subject.corpus.first, subject.corpus.night)
    )
    changes = {
        "added": len(after.keys() - before.keys()),
        "changed": sum(before[name] != after[name] for name in before.keys() & after.keys()),
        "removed": len(before.keys() - after.keys()),
    }
    plan = subject.programs.json(
        "plan", "--config", subject.settings, "--store", subject.store, "--corpus", subject.corpus.night
    )
    outcome = subject.build(subject.store, subject.corpus.night)
    planned = {name: plan["documents"][name] for name in changes}
    yield Measure(
        ", ".join(f"{count} {name}" for name, count in planned.items()),
        ", ".join(map(str, changes.values())),
        planned == changes and outcome["documents"] == len(after),
        "documents planned",
    )
    vectors, parts, calls = plan["vectors"], plan["parts"], plan["llm_calls"]
    yield _within(
        outcome["vectors_made"], round(0.98 * vectors), vectors, "vectors"
    )  # a new description may repeat an embedded text
    yield _within(outcome["parts_made"], parts["certain"], parts["made"], "parts")
    yield _within(outcome["llm_calls"], calls["low"], calls["high"], "LLM calls")


def _within(value: int, low: int, high: int, of: str) -> Measure:
    return Measure(f"{value}", f"{low} to {high}", low <= value <= high, of)


def _rebuild(subject: _Journey) -> Iterator[Measure]:
    fresh = subject.folder / "fresh"
    subject.build(fresh, subject.corpus.night)
    families = subject.programs.json("show", "--store", fresh)["families"]
    dependent = sorted(name for name, family in families.items() if family["history_dependent"])
    folders = {folder for name in dependent for folder in _folders(name)}
    differ = differing(subject.store, fresh)
    wrong = [name for name in differ if name.partition("/")[0] not in folders]
    yield Measure(
        f"{' '.join((f'{len(wrong)} artifacts differ', *wrong[:5]))}, and {len(differ) - len(wrong)} that may",
        f"0, but for those of {' and '.join(dependent)}",
        not wrong,
    )


def _folders(family: str) -> set[str]:
    """Return the folders of the artifacts that a family's own stages publish."""
    steps = next(declared.steps for declared in FAMILIES if declared.name == family)
    outputs = [output for step in steps for stage in step.stages for output in stage.outputs]
    names = [output.artifact.format(name=output.name, label="") for output in outputs if output.artifact]
    return {name.partition("/")[0] for name in names}


def _query(subject: _Journey) -> Iterator[Measure]:
    answer = subject.programs.json("query", subject.question["question"], "-k", _HITS, "--store", subject.store)
    documents = {name for hit in answer["hits"] for name in hit["document_ids"]}
    evidence = documents.intersection(subject.question["gold_ids"])
    yield Measure(f"{len(answer['hits'])} hits, evidence among them: {len(evidence)}", f"{_HITS}, 1", bool(evidence))


def _answer(subject: _Journey) -> Iterator[Measure]:
    answer = subject.programs.json("answer", subject.question["question"], "--store", subject.store)
    quoted = any(answer["answer"] in hit["text"] for hit in answer["hits"])
    yield Measure(f"{len(answer['answer'])} characters of its {len(answer['hits'])} hits", "a quotation", quoted)


def _report(subject: _Journey) -> Iterator[Measure]:
    page = subject.folder / "report.html"
    facts = subject.programs.json("report", "--store", subject.store, "-o", page)
    text = page.read_text(encoding="utf-8")
    named = [method for method in facts["methods"] if method in text]
    yield Measure(
        f"{len(named)} methods on a page of {len(text) // 1_000} kB",
        f"{len(subject.floors)}, without scripts",
        len(named) == len(subject.floors) and "<script" not in text,
    )


def _explore(subject: _Journey) -> Iterator[Measure]:
    page = subject.folder / "explore.html"
    question = subject.question["question"]
    message = subject.programs.indexmill("explore", "--question", question, "--store", subject.store, "-o", page)
    counts = re.search(r"(\d+) nodes, (\d+) links", message)
    nodes, links = map(int, counts.groups()) if counts else (0, 0)
    yield Measure(f"{nodes} nodes, {links} links", "20, 20", min(nodes, links) >= 20 and page.stat().st_size > 0)


def _export(subject: _Journey) -> Iterator[Measure]:
    folder = subject.folder / "exported"
    subject.programs.indexmill("export", folder, "--store", subject.store)
    hits = subject.programs.python(_HERE / "library.py", folder, subject.question["question"], _HITS)
    yield subject.same(hits_of(hits))


def _graphrag(subject: _Journey) -> Iterator[Measure]:
    folder = subject.folder / "graphrag"
    subject.programs.indexmill("export", folder, "--tables", "graphrag", "--store", subject.store)
    corpus = subject.programs.json("show", "--store", subject.store)["corpus"]
    rows = {name: pl.read_parquet(folder / f"{name}.parquet").height for name in _GRAPHRAG}
    exact = (rows["documents"], rows["text_units"]) == (corpus["documents"], corpus["passages"])
    yield Measure(
        ", ".join(f"{count} {name}" for name, count in rows.items()),
        f"{corpus['documents']}, {corpus['passages']}, 1 each",
        exact and all(rows.values()),
    )


def _verify(subject: _Journey) -> Iterator[Measure]:
    checked = subject.programs.json("verify", "--store", subject.store)
    yield Measure(f"{len(checked['problems'])} problems in {checked['artifacts']} artifacts", "0", checked["ok"])


def _copy(subject: _Journey) -> Iterator[Measure]:
    copied = subject.programs.json("copy", subject.store, subject.folder / "copied")
    manifest = subject.programs.json("show", "--store", subject.store)["manifest"]
    there = subject.programs.json("show", "--store", subject.folder / "copied")["manifest"]
    yield Measure(f"manifest {there[:8]}, {copied['blobs']} blobs", manifest[:8], there == manifest)


def _sign(subject: _Journey) -> Iterator[Measure]:
    publisher, stranger = (_new_key(subject, name) for name in ("publisher", "stranger"))
    subject.programs.indexmill("sign", "--key", subject.folder / "publisher.key", "--store", subject.store)
    yield subject.same(subject.query(subject.store, "--trust", publisher))
    question = subject.question["question"]
    subject.programs.indexmill("query", question, "--store", subject.store, "--trust", stranger, code=_UNTRUSTED)
    yield Measure(f"exit code {_UNTRUSTED}", f"{_UNTRUSTED}", True, "by a stranger")


def _new_key(subject: _Journey, name: str) -> Path:
    """Create a key, and a trust file for it; return the trust file's path."""
    key = subject.programs.json("sign", "--new-key", subject.folder / f"{name}.key")["key"]
    path = subject.folder / f"{name}.json"
    path.write_text(json.dumps({"keys": {name: key}, "threshold": 1}), encoding="utf-8")
    return path


def _serve(subject: _Journey) -> Iterator[Measure]:
    with subject.programs.starting("serve", subject.store, "--port", 0, "--linger", 0) as server:
        server.wait_for(lambda: "\n" in server.err)
        url = json.loads(server.err.splitlines()[0])["url"]
        body = json.dumps({"question": subject.question["question"], "k": _HITS}).encode()
        request = urllib.request.Request(f"{url}/retrieve", body, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - this machine's own
            hits = hits_of(json.load(response)["hits"])
        server.terminate()
        if code := server.wait():
            raise server.failure(f"ended with exit code {code} after SIGTERM")
    yield subject.same(hits)


def _assistant(subject: _Journey) -> Iterator[Measure]:
    command = Path(sys.executable).with_name("indexmill")
    hits = subject.programs.python(_HERE / "assistant.py", command, subject.store, subject.question["question"], _HITS)
    yield subject.same(hits_of(hits))


_CHECKS = {
    "build": _build,
    "recall": _recall,
    "night": _night,
    "rebuild": _rebuild,
    "query": _query,
    "answer": _answer,
    "report": _report,
    "explore": _explore,
    "export": _export,
    "graphrag tables": _graphrag,
    "verify": _verify,
    "copy": _copy,
    "sign": _sign,
    "serve": _serve,
    "mcp": _assistant,
}
