"""The page: whole in itself, closed to everything else, and text whatever the documents say."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from indexmill.errors import ModelUnavailable
from indexmill.explore import explorer_page
from indexmill.explore.explorer_page import page_of
from indexmill.explore.neighbourhood import neighbourhood
from indexmill.explore.subgraph import Edge, Node, RetrievalStep, Start, Subgraph
from indexmill.snapshot import Snapshot

ATTACKS = ("</script><script>alert(1)</script>", "\" onload='x", "<!--", "]]>", "{{ 7 * 7 }}", "\u2028\ud800", "&lt;")


class Parsed(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self._open = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open][-1] += data
        else:
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def hostile(text: str) -> Subgraph:
    node = Node(
        id=f"entity:{text}",
        kind="entity",
        label=text,
        text=text,
        section=(text,),
        document_ids=(text,),
        url=f"https://example.org/{text}",
        role="hit",
        rank=1,
        score=0.5,
        why=(text,),
    )
    other = Node(id=f"summary:{text}", kind=text, label=text)
    start = Start("question", text, text)
    path = (
        RetrievalStep("seed", 0, None, 1.0, text),
        RetrievalStep("bridge", 1, 0, 0.5, text),
        RetrievalStep("hit", 0, None, 0.1, text),
    )
    return Subgraph(version=1, start=start, nodes=(node, other), edges=(Edge(0, 1, text, text, path=True),), path=path)


@pytest.fixture(scope="module")
def html(snapshot: Snapshot) -> str:
    return page_of(neighbourhood(snapshot, question="Who built Marrow Bridge?", nodes=80)).html.decode()


def test_the_policy_allows_what_is_inlined_and_nothing_else(html: str) -> None:
    parsed = Parsed(html)
    (policy,) = (one["content"] for one in parsed.named("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    run = [text for text, one in zip(parsed.inside["script"], parsed.named("script"), strict=True) if "type" not in one]
    assert rules["script-src"].split() == [digest(text) for text in run]
    assert rules["style-src"] == digest(parsed.inside["style"][0])
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert "unsafe" not in policy
    first = [tag for tag, _ in parsed.elements].index("style")
    assert parsed.elements[:first].count(("meta", {"http-equiv": "Content-Security-Policy", "content": policy})) == 1


def test_the_page_loads_nothing_and_carries_the_licences(html: str) -> None:
    parsed = Parsed(html)
    names = [one for _, attributes in parsed.elements for one in attributes]
    assert not {"src", "srcset", "data", "style"} & set(names)
    assert not parsed.named("link")
    assert not [one for one in names if one.startswith("on")]
    assert all((one.get("href") or "").startswith(("#node=", "https://")) for one in parsed.named("a"))
    text = "".join(parsed.text)
    assert "Guillaume Plique" in text
    assert "Alexis Jacomy" in text


def test_every_node_can_be_linked_to_and_links_lead_to_nodes(html: str) -> None:
    parsed = Parsed(html)
    ids = [one["id"] for one in parsed.named("details") if "data-node" in one]
    assert len(set(ids)) == len(ids) > 10
    links = {one["href"] for one in parsed.named("a") if (one.get("href") or "").startswith("#")}
    assert links
    assert links <= {f"#{one}" for one in ids}
    data = json.loads(next(text for text in parsed.inside["script"] if text.startswith("{")))
    assert [f"node={one['id']}" for one in data["nodes"]] == [
        one["id"] for one in sorted(parsed.named("details")[:-1], key=lambda one: int(one["data-node"] or 0))
    ]


@pytest.mark.parametrize("text", [*ATTACKS, "x" * 10_000, "\u202e\u05e9\u05dc\u05d5\u05dd"])
def test_what_a_document_says_stays_text(text: str) -> None:
    found = page_of(hostile(text)).html
    plain = page_of(hostile("plain")).html.decode()
    parsed, expected = Parsed(found.decode()), Parsed(plain)
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in expected.elements]
    assert [sorted(attributes) for _, attributes in parsed.elements] == [
        sorted(attributes) for _, attributes in expected.elements
    ]
    kept = text.encode("utf-8", "replace").decode()
    assert kept in "".join(parsed.text)
    data = json.loads(next(one for one in parsed.inside["script"] if one.startswith("{")))
    assert data["nodes"][0]["label"] == text


def test_hostile_documents_of_an_index_stay_text(snapshot: Snapshot) -> None:
    found = page_of(neighbourhood(snapshot, nodes=2_000)).html.decode()
    parsed = Parsed(found)
    assert len(parsed.named("script")) == 4
    assert "alert('x')</script>" in "".join(parsed.text)
    assert not [one for one in parsed.named("a") if (one.get("href") or "").startswith("javascript")]


@pytest.mark.slow
def test_the_same_part_makes_the_same_bytes_in_another_process(snapshot: Snapshot, hostile_store: Path) -> None:
    program = (
        "import sys, indexmill; from indexmill.explore.neighbourhood import neighbourhood; "
        "from indexmill.explore.explorer_page import page_of; "
        f"sys.stdout.buffer.write(page_of(neighbourhood(indexmill.open({str(hostile_store)!r}), nodes=60)).html)"
    )
    elsewhere = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LANG": "C", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **elsewhere}, capture_output=True, check=True
    )
    assert done.stdout == page_of(neighbourhood(snapshot, nodes=60)).html


def test_a_missing_template_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    explorer_page._template.cache_clear()
    with pytest.raises(ModelUnavailable, match=r"pip install 'indexmill\[pages\]'"):
        page_of(hostile("x"))


def test_a_script_of_ours_that_would_end_its_element_is_refused() -> None:
    with pytest.raises(ValueError, match="ends its element"):
        explorer_page._safe("let x = '</SCRIPT>';")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_draws_the_page_without_a_network(html: str, tmp_path: Path) -> None:
    """The script has run to its end: it shows the tools of the drawing, and follows the fragment of the address."""
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    node = re.findall(r'id="(node=entity:[0-9a-f]+)"', html)[3]
    options = ["--headless", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", f"--user-data-dir={tmp_path}/u"]
    address = (tmp_path / "page.html").as_uri() + f"#{node}"
    command = [str(shutil.which("chromium")), *options, "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    parsed = Parsed(done.stdout)
    assert [one for one in parsed.named("div") if one.get("id") == "tools" and "hidden" not in one]
    assert len(parsed.named("canvas")) > 3
    (chosen,) = (one for one in parsed.named("details") if one.get("class") == "chosen")
    assert chosen["id"] == node
    assert "open" in chosen
