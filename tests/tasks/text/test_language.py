from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from indexmill.errors import ModelUnavailable
from schemas.corpus import CorpusSettings
from tasks.stages.ingest import shard_plan, spill
from tasks.stages.ingest.documents import Document, with_language
from tasks.stages.ingest.source_files import find
from tasks.text import language
from tasks.text.language import language_of, languages_of


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("en", "Install the package with the package manager of your system."),
        ("de", "Die Sitzung wurde auf nächsten Montag verschoben."),
        ("fr", "La réunion a été reportée à lundi prochain."),
        ("pt", "O governo anunciou que as escolas vão reabrir na próxima semana, mas não disse como."),
        ("nl", "De Tweede Wereldoorlog was een van de grootste conflicten in de geschiedenis, en was in heel Europa."),
        ("da", "Regeringen vil i dag fremlægge et forslag om at der skal bygges flere boliger i de store byer."),
        ("cs", "Praha je hlavní a největší město Česka a leží na řece Vltavě, a je i sídlem prezidenta."),
        ("es", "La reunión se ha aplazado hasta el próximo lunes."),
        ("pl", "Spotkanie zostało przełożone na przyszły poniedziałek."),
        ("ru", "Встреча перенесена на следующий понедельник."),
        ("ja", "会議は来週の月曜日に延期されました。詳細は後ほどお知らせします。"),
        ("zh", "会议已推迟到下周一，详细信息稍后通知大家，请注意查收邮件。"),
        ("ar", "تم تأجيل الاجتماع إلى يوم الاثنين المقبل."),
        ("hi", "बैठक अगले सोमवार तक के लिए स्थगित कर दी गई है।"),
    ],
)
def test_a_sentence_tells_its_language(expected: str, text: str) -> None:
    assert language_of(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "OK", "1234 5678 9999 0000", "a b c d e f g h i j k l m n o p q r s t u v w x y z", "\ud800" * 50, "\0" * 99],
)
def test_what_does_not_tell_has_none(text: str) -> None:
    assert language_of(text) is None


def test_code_links_and_addresses_do_not_count() -> None:
    code = "```python\nfor word in the_words_of_this_text:\n    print(word, and_then_some_more)\n```\n"
    assert language_of(code * 20) is None
    german = "Die Sitzung wurde auf nächsten Montag verschoben."
    assert language_of(code * 20 + german) == "de"
    assert language_of(f"[{german}](https://example.org/this-is-the-english-name-of-the-page)" * 3) == "de"


def test_a_fence_that_never_closes_takes_no_time() -> None:
    assert language_of("```\n" * 50_000 + "~~~~\n" * 50_000) is None


def test_long_runs_of_letters_cost_little() -> None:
    for text in ("a" * 16_000, "a-" * 8_000, "a.b" * 5_000, "0" * 16_000, "漢" * 16_000):
        language_of(text)  # more than three seconds of processor time fail any test


def document(text: str, metadata: str = "{}") -> Document:
    return Document("d", "", text, None, metadata, "00", len(text))


def test_english_loads_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    language._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    assert language_of("Install the package with the package manager of your system, not with your own.") == "en"
    assert language_of("会议已推迟到下周一，详细信息稍后通知大家。") == "zh"


def test_a_passage_in_another_script_has_a_language_of_its_own() -> None:
    german, chinese = "Die Sitzung wurde auf nächsten Montag verschoben.", "会议已推迟到下周一，详细信息稍后通知大家。"
    mixed = german * 2 + chinese
    assert language_of(mixed) == "de"
    assert languages_of(mixed, [german * 2, chinese, "1234"], "de") == ["de", "zh", "de"]
    assert languages_of("1234", ["1234"], "") == [""]
    assert languages_of("", [], "") == []


def test_a_stated_language_is_kept() -> None:
    german = "Die Sitzung wurde auf nächsten Montag verschoben."
    stated = document(german, '{"language":"en"}')
    assert with_language(stated) is stated
    found = with_language(document(german, '{"a":1}'))
    assert json.loads(found.metadata) == {"a": 1, "language": "de"}
    assert found.content_hash != with_language(document(german, '{"a":2}')).content_hash
    assert json.loads(with_language(document(german, '{"language":""}')).metadata) == {"language": "de"}


def test_a_scan_finds_languages_where_the_settings_ask_for_them(tmp_path: Path) -> None:
    corpus, folder = tmp_path / "corpus", tmp_path / "spill"
    corpus.mkdir()
    folder.mkdir()
    (corpus / "a.txt").write_text("Die Sitzung wurde auf nächsten Montag verschoben.", encoding="utf-8")
    record = {"id": "b", "text": "The meeting has been moved to next Monday.", "language": "xx"}
    (corpus / "b.jsonl").write_text(json.dumps(record), encoding="utf-8")
    for asked, expected in (((), [None, "xx"]), (("language",), ["de", "xx"])):
        chosen = CorpusSettings(paths=(str(corpus),), file_metadata=asked)
        planned = shard_plan.plan([spill.scan(find(chosen).files, chosen, folder)], folder)
        rows = [row for shard in planned.shards for row in shard_plan.documents_of(shard, folder).to_pylist()]
        found = {row["document_id"]: json.loads(row["metadata"]).get("language") for row in rows}
        assert [found["a.txt"], found["b"]] == expected


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    language._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(ModelUnavailable, match=r"indexmill\[pipeline\]"):
        language_of("Die Sitzung wurde auf nächsten Montag verschoben.")
    monkeypatch.undo()
    language._model.cache_clear()
