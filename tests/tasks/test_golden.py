"""A stage whose output changes must change its code version, or old parts would pass for new ones.

`golden.json` holds, per stage, its version and a digest of what it makes of each of two corpora with the deterministic
encoder: of rows and arrays, not of files, so that another version of a library does not matter. The sample is what
people write; the odd corpus is what the rules have their exceptions for, so that a change of one of them shows. After
a change that is meant, raise the stage's version and run with INDEXMILL_WRITE_GOLDEN=1.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import tasks
from flows.build_run import build_inline
from indexmill.store.canonical import canonical_json
from indexmill.store.packs import open_pack
from schemas.config import Configuration
from storage import lineage, refs
from storage.folder import open_folder
from storage.table_blobs import read_table
from tasks.core.report import Silent
from tasks.registry import STEPS
from tests.paths import ROOT

GOLDEN = Path(__file__).with_name("golden.json")
SAMPLE = ROOT / "sample" / "corpus.jsonl"

NAMING = {"count_names", "resolve"}
"""Stages that make something else where nothing is extracted."""

# What the rules of names, sentences, passages and documents are tried on.

NAMES = """\
Lothair II's mother met The Beatles, the The and “The Beatles’” men. King Louis XIV of France and Dr. Ada Venn wrote to
J. R. R. Tolkien and J.R.R. Tolkien; W.A.S.P. and WASP played in St. Louis. Beatrice I, Countess of Burgundy, wed Otto
von der Vell and the Count of Limburg- Styrum. Jean-Luc O’Brien's ship, the U.S. mail and the 2004 Sugar Bowl were in
"Cold River" and in «Le Monde du Vell», and she said "we have been here for many years and do not know any other place
in the whole wide world". However, Nora sang. Later the nora sang too. It was Daniel K. He left. Actually Gudrun stayed.
Queen Mother Ilse, Prime Minister Robert Falk and Captain Ann Rook of the HMS Marrow visited Sugar Bowl 2004 (again).
*Grey Hills* is a novel and *not this one* is none. Who? was released by A. Falk. I saw A in E. "Who Goes There, My Old
Friend, When All the Lamps of Tallow Town Are Out?" is long. C++ and C# are not C; C++11 is. AT&T, R&D, F# and .NET too.
Ada Venn's Marrow Bridge, Ada Venn`s and Ada Venn´s. Mount Tarrow 3 and Boeing 747, Apollo 11's crew, Route 66% and Falk
1956. The James Webb's O'Neill’s MacArthur DeLorean iPhone McDonald. By May Falk was gone. Ernst May left in May. May 5!
Lady Anne, Duchess of Vell, and Anne, Lady of Orrin. Mr Falk. Mr. Falk. Sir Ada of the House of the Grey of and Rook.
Anna ter Horst. It was late. — Mountains slept as mountains sleep. "Nobody came to this cold house" is a poem. Then came
"Go On Up To My Old Mill And See If It Is So". (Rivers rose, and rivers fell.) Ox met an ox.
Ask Ada.Venn@Grey.example or call -Wall.
"""
DATES = """\
On March 20, 1890, and on 20 March 1890; on the 20th of March 1890 and 20 mar 1890. From 1890-03-20 to 1999-12-31x, in
the 1990s, in 1956, at 12:30, in 300 BC. December 1999. Sept. 5 and Sep 7th, 2001. 9,984 people, 1,234,567 and 40.108
mi² of land, 40.108 mi². 9.5 million people, 45%, 45 %, 1956%, 3-4, 1990-1999, 1,5 m, 77 km/h, 100 MB, 5 feet,
12 inhabitants. v1.2.3 and 10.0.0.1. On Monday, Tuesday came. Version 2.5, Chapter 12, pp. 4. March! March on.
July 4 1776. 4 July, 1776.
See vol. 3 and vols. 4, no. 5, No. 7, p. 9, Fig. 2, ca. 1900, op. 12 and approx. 40. It ended. 3 men came. A. First of
all. B) Second. 1. Third one. He asked why? then left. i.e. this, e.g. that, etc. and so on. Mr. A. Falk et al. agreed.
"""
CODE = (
    """\
---
title: WM_PAINT & C#
tags: [a, 1, 2.50, 2020-01-31, null, true]
day: 2020-01-31
deep: {b: {c: [1, {d: e}]}, 7: seven}
source: elsewhere
---
Intro with `GetMessage` and `two words`, IDirect3DDevice9::Present, os.path.join(), foo.dll and README.md files.
Call open() or ~IADs::get_Class or WM\\_PAINT on 0xDEADBEEF with --dry-run and -v; sAMAccountName, Microsoft.Isam.Esent.
p->next, a_b, HTMLParser, TVs, e-mail ada@venn.example.org, see https://Example.org/Ada_Venn?x=Falk and [Tallow Town](
http://Ilse.example/Grey "Grey Hills"), [Orrin Bay](page.html "Port Lassen"), <b title="Vell">Bold Name</b> &amp;
AT&amp;T Ltd.

Setext One
==========
Text under it. More of it.

Setext Two
---
## Deep ##
### Deeper
#Not a heading. Really not.
- item One. Still item.
  goes on Here
- item Two

  after a blank

    and deeper. Not code.

  Again. And again.

      Deepest. Not code.
* star
1. first. 2. second
2) second
| Name | Town |
|------|------|
| Ada Venn | Tallow. End |
    not code. in a list

Paragraph out of the list.

    indented_code(Ada)
    second_line(Venn)

\tTabbed. Code.
```python
def ada_venn(x): return Falk. Here
# Not A Heading
class GreyHills(Base):
```still code. Still Here

    pass
```
~~~~
tilde ``` inside. Ada Venn
~~~
~~~~
After the fence. Then more.
```
"""
    + "\n".join(f"line_{n} = Call{n}(Grey{n}, 'text. More {n}')" for n in range(40))
    + """
```
#### Small
End of It.
````
never closed. Ada Venn
```
"""
)
CJK = """\
藤原乙牟漏は桓武天皇の皇后。ルートヴィヒ・ヴァン・ベートーヴェンは作曲家である！彼は『田園』を書いた。
《红楼梦》是曹雪芹的小说。「春」？他说。Ｆｕｊｉｔｓｕ と ＡＢＣ、カフェ々。漢。漢字仮名交文漢字仮名交文漢字。
東西南北東西南北。
서울은 대한민국의 수도이다. Владимир Ёлкин жил в Москве. Ἀθῆναι καὶ Σπάρτη. ΑΘΗΝΑΣ. Ὀδυσσεύς
"""
ACCENTS = """\
Bråk and Brak, Čapek and Capek, Ærøskøbing, Łódź, Straße and STRASSE, İstanbul, ﬁlm Noir, Zoë’s Café, Cafe\u0301 Noir.
Ångström — Øystein · Þór • Ñandú… Élodie-Anne L’Hôpital d’Été. Ⅻ ½ x² Ｃ＋＋ Ｃ＃ naïve ‘Éclair’ „Übung“ “Ölçü Çay”.
Her name: \ue000 Falk \ue001 too. Zero\u200bwidth Name, soft\u00adhyphen, no\u00a0break Space, tab\tName, Emoji 😀
Ada😀Venn.
"""
TITLES = """The The
The the Band
C++11
C#x
a++ b# c+++ d##
C＋＋ und Übung
March 20
March 20, 890
20 March 1890
\ue000 Falk \ue001 Ö#
’Tallow Lamps
Ada Venn`s Bridge
Ada Venn´s Bridge
Ada Venn‘s Bridge
Ada's's lamp
J. R. R. Tolkien
W.A.S.P.
The U.S.A.'s
A.B.Ölm
서울
がくせい
Weiß
ΑΘΗΝΑΣ
Ⅻ ﬁlms
1984
12 inhabitants of Vell
a
(b)
-
"""
WORDS = ["lamp", "river", "hill", "stone", "bridge", "clock", "town", "grey", "cold", "night"]


def prose(count: int, seed: int = 0) -> str:
    """So many sentences of no meaning, each of its own length."""
    return " ".join(
        " ".join(WORDS[(seed + n * n + i) % 10] for i in range(3 + (n * 7 + seed) % 13)).capitalize() + "."
        for n in range(count)
    )


LONG = (
    f"# One\n\n{prose(9)}\n\n## Two\n\n{prose(5, 1)}\n\n{prose(14, 2)}\n### Three\n{prose(4, 3)}\n\n"
    f"Ada Venn saw {prose(25, 4).replace('. ', ', ')}\n\n# Four\n{prose(30, 5)}"
)


def rows() -> list[dict[str, Any]]:
    """The records of the odd corpus, those among them that are to be refused."""
    said = {"text": "Ada Venn said so."}
    return [
        {"id": "names", "title": "The Beatles’ (band)", "text": NAMES},
        {"id": "dates", "title": "March 20, 1890", "text": DATES},
        {"id": "cjk", "title": "藤原乙牟漏", "text": CJK},
        {"id": "accents", "title": "Élodie-Anne's (née Été)", "text": ACCENTS},
        {
            "id": "crlf",
            "title": " A title\r\nof two lines ",
            "text": DATES.replace("\n", "\r\n") + "\rlone\r\r\n\r\nEnd.",
        },
        {"id": "long", "title": "A long Document", "text": LONG},
        {
            "id": "headings",
            "title": "",
            "text": "\n".join(f"# {n}\n{prose(2, n)}\n### {n}\n{prose(2)}" for n in range(30)),
        },
        {"id": "longer", "title": "", "text": prose(700, 6)},
        {"id": "unbroken", "title": "Unbroken", "text": "甲乙丙丁" * 1500},
        {"id": "base64", "title": "A key", "text": "Begin.\n" + "QUJDREVGR0hJSktMTU5PUA" * 40 + "==\n\nThe End of It."},
        {"id": "repeats", "title": "Repeats", "text": "\n\n".join([prose(6, 7)] * 9)},
        {"id": "long title", "title": "The very long Title of Ada Venn " * 3 + "at Tallow", "text": prose(12, 8)},
        {"id": "longer title", "title": "Straße nach Ærøskøbing " * 20, "text": "It is. " + prose(20, 9)},
        {"id": "unbroken title", "title": "x" * 300, "text": prose(15, 3)},
        {"id": "title of many tokens", "title": "a b c d " * 12, "text": prose(20, 5).replace(".", "")},
        {
            "id": "gap",
            "title": "Gap",
            "text": "Ada" + " " * 1000 + prose(40, 2).replace(".", "") + "\t" * 300 + "Venn.",
        },
        {"id": "none", "title": "", "text": "nothing here but small words, and no more of them."},
        {"id": "bracketed", "title": "(Ada Venn)", "text": "(Ada Venn) and Ada Venn (clockmaker)."},
        {"id": "spaces", "title": "\t", "text": "  \n\n Ada Venn.\n   \n\u3000Falk. \n"},
        {"id": "sign", "title": "C++", "text": "漢"},
        {"id": 7, "title": 8, **said},
        {"id": 7.0, "title": 8, **said},
        {"id": 1.5, "title": True, **said},
        {"id": -0.25, "title": None, **said, "url": "a", "n": 1.0},
        {"id": " spaced ", "title": ["a"], **said, "source": " ", "url": "http://a", "metadata": {"k": [1, None, "x"]}},
        {"id": "both", **said, "source": "s", "url": "u", "metadata": {"url": "other"}},
        {"id": "clash", **said, "a": 1, "metadata": {"a": 2}},
        {"id": "plain metadata", **said, "metadata": "text"},
        {"id": "deep", **said, "m": {"z": 1, "a": {"b": [True, 1e3, 1e-7, 12345678901234567890, "é"]}, "": ""}},
        *({"id": f"titled {title}", "title": title, **said} for title in TITLES.splitlines()),
        {"id": "same", "text": "One text."},
        {"id": "same", "text": "Another text."},
        {"id": "same", "text": "A third text."},
        {"id": "same", "title": "T", "text": "One text."},
        {"id": "x" * 1024, **said},
        {"id": "x" * 1025, **said},
        {"id": "too large", "text": "large " * 20_000},
        {"id": "sixty", **said, "m": nested(60)},
        {"id": "seventy", **said, "m": nested(70)},
        {"id": "nul", "text": "a\0b"},
        {"id": "nul below", **said, "m": ["\0"]},
        {"id": "half", "text": "a\ud800b"},
        {"id": "half below", **said, "m": "\ud800"},
        {"id": "number", "text": 7},
        {"id": "blank", "text": " \n\u3000"},
        {"id": "no text"},
        {"id": "", **said},
        {"id": True, **said},
        {"id": ["a"], **said},
        {"id": float("inf"), **said},
        {"id": "infinite", **said, "m": float("nan")},
        {**said},
    ]


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    return [nested(depth - 1)] if depth else "end"


def odd_corpus(folder: Path) -> Path:
    """Write the odd corpus: records, and a folder of texts."""
    (folder / "texts" / "below").mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows())
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    texts = {
        "code.md": CODE,
        "crlf.md": CODE.replace("\n", "\r\n"),
        "below/accents.txt": "\ufeff" + ACCENTS,
        "below/cafe\u0301.txt": CJK,
        "heading.md": "Not yet\n\n```\n# Fenced\n```\n\n### The First Heading ###\n" + prose(4),
    }
    for name, text in texts.items():
        (folder / "texts" / name).write_bytes(text.encode())
    return folder


def settings_of(name: str, folder: Path) -> dict[str, Any]:
    """The settings of one golden build."""
    plain: dict[str, Any] = {"store": folder / "store", "embed": {"model": "hash"}}
    plain["resolve"] = {"description": {"enabled": True, "most_pieces": 2}}
    plain["corpus"] = {"paths": [str(SAMPLE)]}
    if name == "nothing extracted":
        return plain | {"resolve": {}}
    plain["families"] = {"community_tree": {"enabled": True, "grain": 50, "largest": 12, "group": 16}}
    plain["families"]["heterograph"] = {"enabled": True, "grain": 50, "largest": 20, "group": 16}
    if name == "sample":
        return plain
    return plain | {
        "corpus": {"paths": [str(odd_corpus(folder / "corpus"))], "max_document_bytes": 100_000},
        "split": {"tokens": 64, "overlap": 32},
        "shards": {"document_tokens": 4_000, "entities": 64},
        "embed": {"model": "hash", "sentences": "separate"},
        "run": {"max_failed_share": 1.0},
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """The version of every stage that a build runs, and a digest of what it makes of each corpus."""
    found: dict[str, dict[str, object]] = {}
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(tasks.__path__, "tasks.")]
    versions = {one.STAGE.name: one.STAGE.version for one in modules if hasattr(one, "STAGE")}
    for name in ("sample", "odd", "nothing extracted"):
        for stage, digest in digests(settings_of(name, tmp_path_factory.mktemp(name))).items():
            if name == "nothing extracted" and stage not in NAMING:
                continue  # the others make of the sample what they make where something is extracted
            version = versions[stage]
            found.setdefault(stage, {"version": version})[name] = digest
    return found


def digests(settings: dict[str, Any]) -> dict[str, str]:
    """A digest of what every stage makes in a build with these settings."""
    outcome = build_inline(Configuration.model_validate(settings), progress=Silent())
    store = open_folder(settings["store"])
    manifest = refs.read(store, outcome.version).manifest
    lines: dict[str, list[str]] = {}
    for entry in lineage.read(store, json.loads(store.get_blob(manifest))["lineage"]).entries:
        for output, digest in sorted(entry.outputs.items()):
            lines.setdefault(entry.stage, []).append(f"{entry.shard} {output} {_content(store.open_local(digest))}")
    return {stage: hashlib.sha256("\n".join(of).encode()).hexdigest() for stage, of in sorted(lines.items())}


def _content(path: Path) -> str:
    """A digest of a blob's rows, arrays or bytes."""
    data = path.read_bytes()
    if data.startswith(b"PAR1"):
        table = read_table(open_folder(path.parents[3]), path.name).to_pylist()
        return hashlib.sha256(canonical_json(table)).hexdigest()
    if data.startswith(b"IMPACK1\n"):
        hashed = hashlib.sha256()
        for name, array in sorted(open_pack(path).items()):
            hashed.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return hashed.hexdigest()
    return hashlib.sha256(data).hexdigest()


def test_no_stage_changed_its_output_under_the_same_version(made: dict[str, dict[str, object]]) -> None:
    if os.environ.get("INDEXMILL_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n")
    golden = json.loads(GOLDEN.read_text())
    changed = {stage for stage in made if made[stage] != golden.get(stage)}
    assert not changed, f"{sorted(changed)}: raise the version if the change is meant, then write golden.json anew"


def test_every_stage_of_a_build_is_held_to_its_digest(made: dict[str, dict[str, object]]) -> None:
    # The deterministic encoder is not converted, entities are not compared unless the settings ask for it, quality is
    # measured of a snapshot, not for it, and a bill of materials says what is installed. The methods of trees go
    # through several stages for each layer, that of the heterograph through several that take turns.
    layers = {"lsh_segments", "lsh_summaries"}
    layers |= {"community_graph", "community_clusters", "community_levels", "community_reports"}
    layers |= {"hetero_first", "attributes", "hetero_graph", "hetero_groups", "hetero_elements_read", "elements"}
    sums = {"count_names", "count_pieces"}
    assert {*made, "encoder", "scan", "quality", "sbom"} == {*(step.name for step in STEPS), *layers, *sums}
    for stage, held in made.items():
        assert set(held) == {"odd", "sample", "version", *({"nothing extracted"} if stage in NAMING else ())}
