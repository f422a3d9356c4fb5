"""A small index of all families, in which every document is for a group of its own and holds words of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import indexmill
from flows.build_run import build_inline
from indexmill.store.layout import BRANCH, ref_name
from indexmill.store.manifest import Ref
from schemas.config import Configuration
from storage.folder import FolderStore
from tasks.core.report import Silent

COUNT = 14
PUBLIC = (1, 9)
"""The documents without groups."""

_SYLLABLES = ("ba", "ko", "mi", "tu", "re", "lo", "zi", "fa", "pe", "nu", "do", "vi", "sa", "gy")
_KINDS = ("per", "pla", "thi", "raw", "idn", "tit", "src", "key", "sub", "val")

SPELLINGS = ("Marrow Bridge", "MARROW Bridge", "Marrow BRIDGE", "MARROW BRIDGE")
"""Of one name. The last is written most often, and so the one that is shown."""


def word(number: int, kind: str) -> str:
    """A word that one document has and no other."""
    return f"{kind}q{_SYLLABLES[number]}{_SYLLABLES[-number - 1]}x"


def group(number: int) -> str:
    """The group that may read one document and no other."""
    return f"group {number}"


GROUPS = [*(group(number) for number in range(COUNT)), "half 0", "half 1", "nobody's"]


def _document(number: int) -> dict[str, Any]:
    person, place, thing, title = (word(number, kind).capitalize() for kind in ("per", "pla", "thi", "tit"))
    bridge = SPELLINGS[min(number % 7, 3)]
    junior = " Ada Marl Junior came, too. Ada Marl Junior is small." if number == 0 else ""
    again = f" {bridge} is long. Ada Marl sold {bridge}. {bridge} is cold." if bridge.isupper() else ""
    text = (
        f"{person} Venn met Ada Marl at {place} Hall. Ada Marl built {bridge} with {person} Venn.{again}{junior}\n\n"
        f"{place} Hall lies by the River Ane and keeps a {word(number, 'raw')} lamp. Ada Marl gave the {thing} Stone "
        f"to {place} Hall. Bruno Vell visited {place} Hall, and Bruno Vell crossed {bridge}."
    )
    groups: dict[str, Any] = {} if number in PUBLIC else {"groups": [group(number), f"half {number % 2}"]}
    if number == 5:
        groups = {"groups": group(5)}
    return {
        "id": word(number, "idn"),
        "title": f"{title} Hall" if number % 3 else f"{person} Venn",
        "text": text,
        "source": f"https://example.org/{word(number, 'src')}",
        "year": 2000 + number,
        word(number, "key"): {word(number, "sub"): word(number, "val")},
        **groups,
    }


DOCUMENTS = [_document(number) for number in range(COUNT)]


def _canaries() -> dict[str, frozenset[int]]:
    said = [json.dumps(one) for one in DOCUMENTS]
    words = ["junior", *(word(number, kind) for number in range(COUNT) for kind in _KINDS)]
    found = {one: frozenset(n for n, text in enumerate(said) if one in text.casefold()) for one in words}
    found |= {one: frozenset(n for n, text in enumerate(said) if one in text) for one in SPELLINGS}
    return {one: owners for one, owners in found.items() if owners}


CANARIES: Mapping[str, frozenset[int]] = _canaries()
"""What only some documents hold, and which: words in any case, and spellings as they are."""


def leaks(text: str, readable: Iterable[int]) -> set[str]:
    """The canaries in a text that none of the readable documents holds."""
    folded, may = text.casefold(), frozenset(readable)
    return {
        one
        for one, owners in CANARIES.items()
        if owners.isdisjoint(may) and one in (text if one in SPELLINGS else folded)
    }


def readable(principals: Iterable[str]) -> set[int]:
    """The documents that some principals may read in version 1."""
    asking = set(principals)
    groups = [one.get("groups", []) for one in DOCUMENTS]
    lists = [[some] if isinstance(some, str) else some for some in groups]
    return {*PUBLIC, *(number for number, some in enumerate(lists) if asking & set(some))}


def ids(numbers: Iterable[int]) -> list[str]:
    """The ids of some documents."""
    return [DOCUMENTS[number]["id"] for number in sorted(numbers)]


def republish(store: FolderStore, version: int, access: Mapping[str, Any] | None) -> None:
    """Publish what version 1 holds again, with another word on who may read it."""
    with indexmill.open(store.root, version=1) as snapshot:
        before, configuration = snapshot.manifest, dict(snapshot.manifest.configuration)
    configuration.pop("corpus", None)
    if access is not None:
        configuration["corpus"] = {"access": dict(access)}
    manifest = before.model_copy(update={"configuration": configuration})
    ref = Ref(
        version=version,
        manifest=store.put_blob(manifest.to_bytes()),
        parent=version - 1,
        epoch=version,
        run_id=f"run-{version}",
        created="2026-01-02T02:00:00Z",
    )
    assert store.create(ref_name(BRANCH, version), ref.to_bytes())


def build(folder: Path) -> Path:
    """Build version 1, in which documents without groups are for everyone; the path of its store."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS), encoding="utf-8")
    settings = {
        "store": folder / "store",
        "corpus": {"paths": [str(corpus)], "access": {"field": "groups", "required": False}},
        "embed": {"model": "hash"},
        "split": {"tokens": 64},
        "shards": {"document_tokens": 1_000, "entities": 64},
        "families": {
            "zoom_graph": {"threshold": 0.5, "cap": 8},
            "lsh_tree": {"smallest": 2, "largest": 4},
            "community_tree": {"enabled": True, "fewest": 3, "grain": 20, "largest": 8, "group": 4},
            "heterograph": {"enabled": True, "neighbours": 4, "grain": 0, "largest": 8, "group": 4},
        },
    }
    build_inline(Configuration.model_validate(settings), progress=Silent())
    return folder / "store"
