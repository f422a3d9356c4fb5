"""The page: it needs nothing but itself, holds what documents say as text alone, and is the same for the same store."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import ModelUnavailable
from indexmill.report import render_report
from indexmill.report.report_page import GENERATOR
from indexmill.store.layout import run_name
from tests.indexmill.report.records import (
    end_record,
    new_record,
    quality,
    stage,
    start_record,
    two_nights,
    write_run,
)
from tests.indexmill.small_snapshot import Text, export, publish, writer_of
from tests.paths import ROOT

HOSTILE = (
    "</title></style><script src=//x>alert(\"1\")</script><img src=x onerror='a'>{{ 7*7 }}\x00\x1b[31m\u202e\u2028"
)

VOID = {"meta", "link", "br", "img", "hr", "input", "rect", "path", "circle"}


class Page(HTMLParser):
    """A page, taken apart: its elements with their attributes, its texts, and how its elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.style = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nights") / "store"
    two_nights(path)
    return path


@pytest.fixture(scope="module")
def page(nights: Path) -> str:
    return render_report(nights, compare=1)


def hostile_store(path: Path) -> Path:
    """A store whose every text that a report shows would do harm if it were markup."""
    first = writer_of(path, {"p": [Text(HOSTILE, HOSTILE, "One."), Text("b", HOSTILE, "Two.")]})
    first.tri_graph()
    first.publish()
    writer = writer_of(path, {"p": [Text(HOSTILE, HOSTILE, "One, longer."), Text("c", HOSTILE, "Three.")]})
    writer.tri_graph()
    writer.publish(2, note=HOSTILE)
    end = new_record()
    report: dict[str, Any] = end["report"]
    report["warnings"] = [HOSTILE]
    report["refused"] = {HOSTILE: 2}
    files = {"files": 3, "words": 9, "left_out": {HOSTILE: 2}}
    report["coverage"] = {name: {HOSTILE: 2} for name in ("files", "passed_over")}
    report["coverage"] |= {"formats": {HOSTILE: files}, "folders": [{"name": HOSTILE, **files}, {"name": "b"}]}
    report["coverage"]["worst"] = [{"name": HOSTILE, **files}]
    report["stages"][HOSTILE] = stage()
    report["timeline"]["workers"] = [HOSTILE, HOSTILE]
    report["timeline"]["spans"].append([1, HOSTILE, 0.0, 99.0, 1])
    report["stand_ins"] = {HOSTILE: {"texts": 1, "stand_ins": 1}}
    report["quality"]["recall"] = {HOSTILE: 0.5}
    report["quality"]["by_question"] = {"questions": [HOSTILE], "recall": {HOSTILE: [0.0]}}
    report["quality"]["missed"] = [
        {"question": HOSTILE, "method": HOSTILE, "missed": [HOSTILE, "gone"], "found": ["c", HOSTILE]}
    ]
    end["error"], end["plan"] = HOSTILE, {HOSTILE: {"planned": 1, "actual": 2}}
    write_run(writer.store, "run-2", end, parent=1, command=HOSTILE)
    before = quality(by_question={HOSTILE: [1.0]})
    before["by_question"]["questions"], before["recall"] = [HOSTILE], {HOSTILE: 1.0}
    write_run(writer.store, "run-1", end_record("run-1", quality=before))
    return path


def test_the_policy_allows_the_pages_own_style_and_nothing_else(page: str) -> None:
    parsed = Page(page)
    (policy,) = [one["content"] for one in parsed.of("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(parsed.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert len(parsed.of("style")) == 1
    assert not re.search(r"url\(|@import", parsed.style)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["page", "hostile"])
def test_a_page_runs_nothing_loads_nothing_and_leads_nowhere(page: str, tmp_path: Path, store: str) -> None:
    parsed = Page(page if store == "page" else render_report(hostile_store(tmp_path / "s"), compare=1))
    assert not {tag for tag, _ in parsed.elements} & {"script", "img", "iframe", "link", "object", "base", "form"}
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")} | ({"style", "src", "srcset", "action"} & names)
    assert all(str(one.get("href")).startswith("#") for one in parsed.of("a"))


def test_what_documents_and_records_say_is_shown_as_text(tmp_path: Path) -> None:
    page = render_report(hostile_store(tmp_path / "s"), compare=1)
    assert page.count("&lt;script src=//x&gt;") > 10
    assert "<script" not in page
    assert "{{ 7*7 }}" in page
    assert not set(page) & set("\x00\x1b\u202e\u2028")


@pytest.mark.slow
def test_half_of_a_character_in_a_record_is_no_error(tmp_path: Path) -> None:
    end = new_record()
    end["report"]["warnings"] = ["\ud800 and the rest"]
    two_nights(tmp_path / "s", end)
    assert "and the rest" in render_report(tmp_path / "s").encode().decode()


@pytest.mark.slow
def test_the_same_store_gives_the_same_bytes_in_another_process(nights: Path, page: str) -> None:
    program = (
        "import sys; from indexmill.report import render_report; "
        f"sys.stdout.buffer.write(render_report({str(nights)!r}, compare=1).encode())"
    )
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        assert done.stdout == page.encode()


def test_headings_are_in_order_and_the_page_has_landmarks_and_a_language(page: str) -> None:
    parsed = Page(page)
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [len(parsed.of(tag)) for tag in ("header", "main", "nav", "footer", "title")].count(1) >= 4
    assert parsed.of("html") == [{"lang": "en"}]


def test_charts_have_text_alternatives_and_ids_are_unique(page: str) -> None:
    parsed = Page(page)
    ids = [str(attributes["id"]) for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for chart in parsed.of("svg"):
        if chart.get("role") == "img":
            assert set(str(chart["aria-labelledby"]).split()) <= set(ids)
        else:
            assert chart["aria-hidden"] == "true"
    assert {str(one["href"])[1:] for one in parsed.of("a")} <= set(ids)


def test_what_scrolls_can_be_reached_by_keyboard_and_has_a_name(page: str) -> None:
    regions = [one for one in Page(page).of("div") if one.get("class") == "scroll"]
    assert len(regions) > 5
    assert all(one["tabindex"] == "0" and one["role"] == "region" and one["aria-label"] for one in regions)


def test_the_first_screen_answers_what_changed_how_good_it_is_and_what_it_cost(page: str) -> None:
    text = Page(page).text
    first = text[text.index("What changed") : text.index("Documents")]
    for said in (
        "3 documents",
        "1 added, 1 changed, 1 removed",
        "Worse by 0.250",
        "recall at 5: fused 0.500, was 0.750",
        "1 expected document of version 1 gone",
        "0.25",
        "4 calls, 1,200 tokens",
        "money planned: 0.10 to 0.20",
        "More than planned",
        "1 warning",
        "3 quarantined rows",
        "4 fallback texts",
        "8 files that no reader takes, more than are read",
        "10% of the words of 2 pdf files missing",
    ):
        assert said in first


@pytest.mark.parametrize(
    ("before", "now", "answer"),
    [
        ({"fused": 0.5, "dense": 0.5}, {"fused": 0.6, "dense": 0.5}, "Better by 0.100"),
        ({"fused": 0.5, "dense": 0.5}, {"fused": 0.6, "dense": 0.4}, "Mixed"),
        ({"fused": 0.5}, {"fused": 0.5}, "As good"),
    ],
)
def test_quality_beside_the_version_before(
    tmp_path: Path, before: dict[str, float], now: dict[str, float], answer: str
) -> None:
    end = new_record()
    end["report"]["quality"]["recall"] = now
    end["report"]["quality"]["compared"] |= {"before": before, "now": now}
    two_nights(tmp_path / "s", end)
    assert f'<p class="answer">{answer}</p>' in render_report(tmp_path / "s")


def test_recall_at_different_depths_is_said_over_time(tmp_path: Path, page: str) -> None:
    end = new_record()
    end["report"]["quality"]["k"] = 10
    two_nights(tmp_path / "s", end)
    said = "Recall was measured at different depths: 5, 10."
    assert said in Page(render_report(tmp_path / "s")).text
    assert said[:20] not in Page(page).text


@pytest.mark.slow
def test_a_plan_that_is_exceeded_by_its_rounding_alone_is_kept(tmp_path: Path) -> None:
    end = new_record()
    end["plan"] = {"cost": {"planned": {"low": 0.1, "high": 0.2495}, "actual": 0.25}}
    two_nights(tmp_path / "s", end)
    text = Page(render_report(tmp_path / "s")).text
    assert "above the plan" not in text
    assert "More than planned" not in text


def test_an_older_record_says_what_it_did_not_record(tmp_path: Path) -> None:
    two_nights(tmp_path / "s", end_record("run-2", stages={"ingest": stage(quarantined=4)}))
    text = Page(render_report(tmp_path / "s")).text
    assert "The run did not record which worker did what." in text
    assert "4 rows quarantined; the run did not record why." in text
    assert "The run did not record its warnings." in text
    assert "The run measured no questions." in text


def test_a_run_that_was_killed_is_not_said_to_have_done_nothing(tmp_path: Path) -> None:
    store = publish(tmp_path / "s").store
    write_run(store, "run-1", None)
    text = Page(render_report(tmp_path / "s")).text
    assert "The run has no record of its end: it was killed after publishing." in text
    assert "What did it cost? Not recorded" in text
    for said in ("No language model was asked", "None was asked", "No row of the corpus", "measured no questions"):
        assert said not in text


@pytest.mark.slow
def test_a_store_without_records_has_a_page(tmp_path: Path) -> None:
    publish(tmp_path / "s")
    text = Page(render_report(tmp_path / "s")).text
    assert "It is the first version: every document is new." in text
    assert "The store has no record of the run." in text


def test_an_empty_version_has_a_page(tmp_path: Path) -> None:
    publish(tmp_path / "s", {})
    assert "0 documents" in Page(render_report(tmp_path / "s")).text


def test_an_exported_folder_has_a_page(snapshot: Any, tmp_path: Path) -> None:
    export(snapshot, tmp_path / "e")
    text = Page(render_report(tmp_path / "e")).text
    assert "An exported version" in text
    assert "An exported folder holds one version." in text


@pytest.mark.slow
def test_rights_are_said_at_the_head(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "s", {"p": [Text("secret", "Secret", "One.", {"access": ["staff"]})]})
    writer.configuration = {"corpus": {"access": {"field": "access", "required": True}}}
    writer.publish()
    page = render_report(tmp_path / "s")
    assert "This report names documents and entities regardless of them" in page[: page.index("<main")]
    assert "regardless" not in render_report(publish(tmp_path / "t").store.root)


@pytest.mark.slow
def test_a_page_stays_small_however_much_a_run_recorded(tmp_path: Path) -> None:
    end = new_record()
    report = end["report"]
    report["timeline"] = {
        "workers": [f"tcp://10.0.0.{number}:40000" for number in range(40)],
        "spans": [[n % 40, f"stage_{n % 30}", n * 10.0, n * 10.0 + 9, 1] for n in range(2000)],
    }
    report["stages"] = {f"stage_{number}": stage() for number in range(60)}
    report["warnings"] = ["w" * 2000] * 100
    asked = [f"{number} " + "why? " * 100 for number in range(5000)]
    report["quality"] = quality(0.5, version=1) | {
        "by_question": {"questions": asked, "recall": {"fused": [1.0] * 5000}},
        "missed": [
            {"question": one, "method": "fused", "missed": ["m" * 200] * 50, "found": ["f" * 200] * 50}
            for one in asked[:50]
        ],
    }
    end["plan"] = {f"figure {number}": {"planned": number, "actual": number} for number in range(500)}
    two_nights(tmp_path / "s", end)
    assert len(render_report(tmp_path / "s", compare=1).encode()) < 1_000_000


def test_without_the_package_that_renders_it_the_error_says_what_to_install(
    nights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'indexmill\[pages\]'"):
        render_report(nights)


def test_a_page_says_what_wrote_it(page: str) -> None:
    assert page.startswith("<!DOCTYPE html>")
    assert f'<meta name="generator" content="{GENERATOR}">' in page[:4096]


def test_what_a_person_allowed_and_what_a_record_left_out_are_said(tmp_path: Path) -> None:
    store = publish(tmp_path / "s").store
    end = new_record("run-1")
    end["report"]["warnings_left_out"] = 20
    end["report"]["timeline"]["left_out"] = 7
    start = start_record() | {"details": {"allowed": ["shrink", "rights_change"]}}
    assert store.create(run_name("run-1", "start"), json.dumps(start).encode())
    assert store.create(run_name("run-1", "end"), json.dumps(end).encode())
    text = Page(render_report(tmp_path / "s")).text
    assert "allowed by hand: shrink, rights change" in text
    assert "21 warnings" in text
    assert "and 20 more that the run did not record" in text
    assert "The shortest spans, of 7 parts, are left out." in text


@pytest.mark.slow
def test_the_best_methods_missed_questions_come_first_ten_of_them_at_once(tmp_path: Path) -> None:
    end = new_record()
    end["report"]["quality"]["recall"] = {"bm25": 0.4, "fused": 0.8}
    end["report"]["quality"]["missed"] = [
        {"question": f"{method} {number}?", "method": method, "missed": ["ilse"], "found": []}
        for method in ("bm25", "fused")
        for number in range(18)
    ]
    two_nights(tmp_path / "s", end)
    page = render_report(tmp_path / "s")
    part = page[page.index("Questions that miss documents") : page.index("<footer")]
    assert re.findall(r"(?:fused|bm25) \d+\?", part) == [
        *(f"fused {number}?" for number in range(18)),
        *(f"bm25 {number}?" for number in range(15)),
    ]
    seen = re.sub("<details>.*?</details>", "", part, flags=re.DOTALL)
    assert re.findall(r"\w+ \d+\?", seen) == [f"fused {number}?" for number in range(10)]
    assert re.findall("<summary>(.*?)</summary>", part) == ["8 more", "bm25, recall 0.400: 15 questions"]
    assert re.findall('<ol class="questions" start="([0-9]+)">', part) == ["1", "11", "1"]
    assert "and 3 more: <code>indexmill report --json</code> has them" in part


def test_numbers_and_texts_that_no_run_records_neither_break_the_page_nor_swell_it(tmp_path: Path) -> None:
    end = new_record()
    report = end["report"]
    report["stages"]["embed"] |= {"seconds": 1e308, "wall_seconds": 1e308, "began_seconds": 1e308, "llm_tokens": 1e308}
    report["stages"]["ingest"] |= {"seconds": 1e308, "wall_seconds": 1e308}
    report["stages"]["x" * 1_000_000] = stage()
    report["timeline"]["spans"] += [[0, "y" * 1_000_000, 0.0, 99.0, 1], [0, "embed", 0, 1e308, 1]]
    report["quality"]["recall"] = {f"method {number}": 0.1 for number in range(20_000)}
    report["quality"]["missed"] = [{"question": "q", "method": "m" * 1_000_000, "missed": ["a"], "found": []}]
    end["plan"] = {"z" * 1_000_000: {"planned": 1e308, "actual": 1e308}}
    two_nights(tmp_path / "s", end)
    assert len(render_report(tmp_path / "s", compare=1)) < 150_000
