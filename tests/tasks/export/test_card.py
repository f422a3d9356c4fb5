"""The data card: what the manifest says, the same for the same snapshot, whatever names and settings hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from markdown_it import MarkdownIt

from indexmill.store.artifact_listing import Artifact
from indexmill.store.manifest import Corpus, FamilyRecord, Manifest
from tasks.export.card import card

READER = MarkdownIt("commonmark").enable("table")

DIGEST = "ab" * 32

HOSTILE = "`x` | <b>\n\n# Title\n\n| a |\n| --- |\n[link](http://a)\x1b[31m\u202e```\n"


def manifest(**fields: Any) -> Manifest:
    given = {
        "corpus": Corpus(fingerprint="f" * 64, documents=1, passages=1200, counts={"entities": 7, "mentions": 30}),
        "configuration": {"split": {"language": "de", "tokens": 256}},
        "environment": {"python": "3.11", "numpy": "2.0"},
        "models": {
            "encoder": {"model": "all-MiniLM-L6-v2", "weights": "5" * 64, "backend": "openvino", "dimension": 384},
            "recogniser": {"name": "rules", "fingerprint": "rules/1"},
            "llm": {"backend": "extractive", "tokens": 100},
        },
        "families": {
            "lsh_tree": FamilyRecord(parameters={"ratio": 0.5}, counts={"layers": 2, "stand_ins": 0}),
            "community_tree": FamilyRecord(counts={"communities": 4, "stand_ins": 3}, history_dependent=True),
        },
        "artifacts": (Artifact(name="passages/p", kind="table", digest="1" * 64, bytes=1000, rows=1200),),
        "lineage": "2" * 64,
    }
    return Manifest(**(given | fields))


def sections(text: str) -> dict[str, str]:
    """The text of each section by its title."""
    first, *others = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return {"": first, **dict(zip(others[::2], others[1::2], strict=True))}


def test_it_says_which_snapshot_it_is_and_what_it_holds() -> None:
    found = sections(card(manifest(), DIGEST, form="snapshot", version=7))
    assert "| Version | first published as version 7 of its store |" in found[""]
    assert f"| Manifest | SHA-256 `{DIGEST}` |" in found[""]
    assert f"| Corpus | 1 document in 1,200 passages; fingerprint of the set of documents `{'f' * 64}` |" in found[""]
    assert "| Format | 2; readers of format 5 and later open it |" in found[""]
    assert "| `passages` | 1,200 |\n| `entities` | 7 |\n| `mentions` | 30 |" in found["Counts"]
    assert '| `lsh_tree` | 2 `layers`, 0 `stand_ins` | `{"ratio": 0.5}` |' in found["Index families"]
    assert "| `community_tree` | 4 `communities`, 3 `stand_ins` | the defaults | also on the" in found["Index families"]
    assert '| `encoder` | `all-MiniLM-L6-v2` | not recorded | `{"backend": "openvino"' in found["Models"]
    assert "| `summaries` | `extractive` | - |" in found["Models"]
    assert "rules of the language `de`" in found["Settings that shaped it"]
    assert '"tokens": 256' in found["Settings that shaped it"]
    assert "| `numpy` | `2.0` |\n| `python` | `3.11` |" in found["The environment that built it"]
    assert f'indexmill.open("DIR", manifest="{DIGEST}")' in found["Open it"]
    assert "Nothing: no language model was used." in found["What a language model wrote"]


def test_it_says_what_language_models_wrote_and_what_stands_in_for_it() -> None:
    wrote = {"backend": "openai", "model": "gpt-x", "temperature": 0.0}
    models = {
        "encoder": {"model": "e", "weights": "", "backend": "hash", "dimension": 64},
        "recogniser": {"name": "llm", "fingerprint": f"llm/org/gpt-y/{'3' * 32}"},
        "llm": wrote,
        "reports": {**wrote, "model": "gpt-z"},
        "attributes": {"backend": "extractive"},
        "of tomorrow": wrote,
    }
    found = sections(card(manifest(models=models), DIGEST, form="graphrag"))["What a language model wrote"]
    told = re.findall(r"\| `([^`]*)` \| `([^`]*)` \|", found)
    assert told == [
        ("summaries", "gpt-x"),
        ("of tomorrow", "gpt-x"),
        ("mentions", "org/gpt-y"),
        ("communities", "gpt-z"),
    ]
    assert "a fallback replaces it: 3 of `community_tree`" in found


@pytest.mark.parametrize("form", ["snapshot", "graphrag", "graphml", "vectors", "another"])
def test_nothing_in_a_manifest_breaks_it(form: str) -> None:
    hostile = manifest(
        corpus=Corpus(fingerprint=HOSTILE, documents=1, passages=1, counts={HOSTILE: 3}),
        configuration={HOSTILE: [HOSTILE], "split": {"language": HOSTILE}, "llm": {"model": HOSTILE}},
        environment={HOSTILE: HOSTILE},
        models={"encoder": {"model": HOSTILE, "dimension": HOSTILE}, "llm": {"model": HOSTILE, "backend": HOSTILE}}
        | {HOSTILE: HOSTILE},
        families={"lsh_tree": FamilyRecord(parameters={HOSTILE: HOSTILE}, counts={HOSTILE: 1})},
    )
    bill = {"components": [{"type": "machine-learning-model", "licenses": [{"license": {"name": HOSTILE}}, 3]}, 4]}
    files = [("passages.parquet", "3 rows: `id`")]
    plain = manifest(
        corpus=Corpus(fingerprint="f", documents=1, passages=1, counts={"x": 3}),
        configuration={"split": {"language": "en"}},
        environment={"x": "y"},
        models={"encoder": {"model": "m", "dimension": 3}, "llm": {"model": "m", "backend": "b"}, "x": "y"},
        families={"lsh_tree": FamilyRecord(parameters={"x": "y"}, counts={"x": 1})},
    )
    clean = {"components": [{"type": "machine-learning-model", "licenses": [{"license": {"name": "MIT"}}]}]}
    made = [
        card(one, DIGEST, form=form, version=1, files=files, sbom=licences)
        for one, licences in ((hostile, bill), (plain, clean))
    ]
    ours, expected = ([token.type for token in READER.parse(text)] for text in made)
    assert ours == expected
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", made[0])


def test_the_same_snapshot_has_the_same_card_whatever_the_order_of_its_fields() -> None:
    one = manifest()
    other = manifest(models=dict(reversed(one.models.items())), environment=dict(reversed(one.environment.items())))
    assert card(one, DIGEST, form="vectors", version=1) == card(other, DIGEST, form="vectors", version=1)


def test_licences_and_components_come_from_the_bill_of_materials() -> None:
    bill = {
        "components": [
            {"type": "library", "name": "a", "licenses": [{"expression": "GPL-3.0-only"}]},
            {"type": "machine-learning-model", "name": "e", "licenses": [{"license": {"id": "Apache-2.0"}}]},
        ]
    }
    found = sections(card(manifest(), DIGEST, form="snapshot", sbom=bill))
    assert "| `encoder` | `all-MiniLM-L6-v2` | `Apache-2.0` |" in found["Models"]
    assert "`sbom.cdx.json` (CycloneDX): 2 components" in found["The environment that built it"]
    assert "GPL" not in found["Models"]


def test_what_a_manifest_does_not_say_is_left_out() -> None:
    bare = Manifest(corpus=Corpus(fingerprint="f", documents=0, passages=0), lineage="0" * 64)
    found = sections(card(bare, DIGEST, form="snapshot"))
    assert found.keys() == {"", "Counts", "What a language model wrote", "Settings that shaped it", "Open it"}
    assert "Version" not in found[""]
    assert "`b` | `c`" in card(bare.model_copy(update={"environment": {"b": "c"}}), DIGEST, form="snapshot")
