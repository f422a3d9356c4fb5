"""What the rules recognise, and what they leave alone."""

from __future__ import annotations

import random
import shutil
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import ModelUnavailable
from indexmill.models import recogniser as recogniser_module
from indexmill.models.recogniser import (
    Mention,
    RulesRecogniser,
    SpacyRecogniser,
    WordListRecogniser,
    open_recogniser,
    question_names,
    question_runs,
)
from tests.deep import examples

RULES = RulesRecogniser()


def found(text: str, title: str = "") -> dict[str, str]:
    """Surface forms in the text with their kinds."""
    return {text[m.start : m.end]: m.kind for m in RULES.recognise(title, text) if m.field == "text"}


def titled(title: str, kind: str = "title") -> set[str]:
    return {title[m.start : m.end] for m in RULES.recognise(title, "") if m.kind == kind}


@pytest.mark.parametrize(
    "name",
    [
        "Countess of Burgundy",
        "Ermengarde of Tours",
        "Joan of Arc",
        "Lord of the Rings",
        "Ludwig van Beethoven",
        "J. R. R. Tolkien",
        "J.R.R. Tolkien",
        "St. Louis",
        "Jean-Luc Picard",
        "Limburg- Styrum",
        "O'Brien",
        "José Ñandú",
        "Simon & Schuster",
        "AT&T",
        "Apollo 11",
        "Alexander the Great",
        "Лев Толстой",
        "Ελλάδα",
    ],
)
def test_a_name_is_found_whole(name: str) -> None:
    assert found(f"Later she wrote about {name}, and was glad.") == {name: "name"}


def test_words_that_open_a_sentence_are_no_names() -> None:
    assert found("Inside the house lay a book. However, it rained. The book was old. Born in Tallow, he left.") == {
        "Tallow": "name"
    }


def test_a_word_the_document_writes_in_lower_case_is_no_name_at_the_start_of_a_sentence() -> None:
    assert found("Bridges are long. The town has bridges.") == {}
    assert found("Ilse is cold. The town is on it.") == {"Ilse": "name"}


def test_an_opener_is_taken_off_the_name_that_follows() -> None:
    assert found("In New York it rained. After Ada Venn came nobody.") == {"New York": "name", "Ada Venn": "name"}


def test_an_initial_before_a_full_stop_does_not_join_two_sentences() -> None:
    assert "Daniel K. He" not in found("We met Daniel K. He was there.")


def test_a_title_counts_with_and_without_its_qualifier() -> None:
    assert titled("Philippe Chevallier (actor)") == {"Philippe Chevallier (actor)", "Philippe Chevallier"}
    assert titled("(film)") == {"(film)"}
    assert titled("river") == {"river"}
    assert titled(" ") == set()


def test_a_style_after_a_comma_belongs_to_the_name() -> None:
    names = found("There Beatrice I, Countess of Burgundy, died.")
    assert set(names) == {"Beatrice I", "Countess of Burgundy", "Beatrice I, Countess of Burgundy"}


def test_names_inside_names_are_parts() -> None:
    assert found("by Lady Augusta FitzClarence")["Augusta FitzClarence"] == "part"
    owned = found("as in Stevie Wonder's Superstition")
    assert owned == {
        "Stevie Wonder's Superstition": "name",
        "Stevie Wonder": "part",
        "Superstition": "part",
    }


def test_an_article_before_a_year_makes_it_part_of_the_name() -> None:
    assert "2004 Sugar Bowl" in found("They won the 2004 Sugar Bowl.")
    assert "2004 Sony" not in found("It was in 2004 Sony came.")


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ('He starred in" Ma femme s\'appelle Maurice".', "Ma femme s'appelle Maurice"),
        ('the song "Cry! Cry! Cry!" was', "Cry! Cry! Cry!"),
        ("her „Sage vom Fluss“ of", "Sage vom Fluss"),
        ("彼は「運命」を書いた", "運命"),
        ("in *The Marrow Bridge* she", "The Marrow Bridge"),
    ],
)
def test_a_quoted_work_is_found(text: str, work: str) -> None:
    assert found(text)[work] == "work"


def test_a_quoted_sentence_is_no_work() -> None:
    assert "work" not in found('He said "There is nothing that you could ever do about it now".').values()


@pytest.mark.parametrize(
    ("surface", "kind"),
    [
        ("20 March 851", "date"),
        ("March 20, 1890", "date"),
        ("2020-01-31", "date"),
        ("1956", "date"),
        ("1990s", "date"),
        ("40.108 mi²", "number"),
        ("9,984", "number"),
        ("12%", "number"),
        ("9.5 million people", "number"),
    ],
)
def test_dates_and_numbers_have_their_kinds(surface: str, kind: str) -> None:
    assert found(f"it was {surface} there") == {surface: kind}


@pytest.mark.parametrize(
    "code",
    [
        "IADs::get_Class",
        "IADs::get\\_Class",
        "WM_PAINT",
        "WM\\_PAINT",
        "foo.dll",
        "--flag",
        "GetMessage()",
        "sAMAccountName",
        "IDirect3DDevice",
        "Microsoft.Isam.Esent",
        "std::vector",
        "0x80004005",
    ],
)
def test_identifiers_and_file_names_are_code(code: str) -> None:
    assert found(f"then the {code} is used")[code] == "code"


def test_a_family_name_with_two_capitals_is_no_code() -> None:
    assert found("with Ronald McDonald and Ann FitzClarence") == {"Ronald McDonald": "name", "Ann FitzClarence": "name"}


def test_links_tags_and_addresses_hold_no_names() -> None:
    text = (
        "See [the guide](https://host/Foo_Bar.html 'A'), <span id=\"Deep\">it</span>, ada@Example.org, http://Host/X."
    )
    assert found(text) == {}


def test_only_identifiers_are_kept_from_a_code_fence() -> None:
    text = "```cpp\nif (Ready) { CreateWindow(hWnd); } // Of Some Comment\n```\nthen Window Manager"
    assert found(text) == {"CreateWindow": "code", "hWnd": "code", "Window Manager": "name"}


def test_a_run_of_chinese_or_japanese_characters_is_a_name_when_short() -> None:
    assert {"藤原乙牟漏", "ベートーヴェン"} <= set(found("藤原乙牟漏とベートーヴェンは"))
    assert found("之" * 40) == {}


_TEXT = st.text(alphabet=st.sampled_from("Aab .,'\"(-)_:`\n1漢ア/<>[]@É’"), max_size=80) | st.text(max_size=80)


@examples(20, deep=100)
@given(_TEXT, _TEXT)
def test_mentions_are_sorted_distinct_and_in_bounds(title: str, text: str) -> None:
    mentions = RULES.recognise(title, text)
    keys = [(m.field, m.start, m.end) for m in mentions]
    assert keys == sorted(set(keys))
    for m in mentions:
        assert 0 <= m.start < m.end <= len(title if m.field == "title" else text)
    assert RULES.recognise(title, text) == mentions


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "A",
        "A ",
        "Aa of ",
        '"A',
        "(",
        "1,",
        "a_",
        "A.",
        "```\n",
        "](",
        "<a",
        "a@",
        "A-",
        "::",
        "Ab' ",
        "A- a- ",
        "1 March ",
        "Aa. ",
    ],
)
def test_time_is_linear_in_a_hostile_line(piece: str) -> None:
    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        start = time.process_time()
        RULES.recognise(text, text)
        return time.process_time() - start

    # Eight times the text takes eight times as long if it is linear and 64 times if it is quadratic; the quickest of
    # three runs, and a bound far from both, leave a busy machine out of it.
    short, long = (min(seconds(length) for _ in range(3)) for length in (20_000, 160_000))
    assert long < 24 * max(short, 0.02)


def test_a_question_offers_its_word_runs_longest_first() -> None:
    runs = question_runs("When did Lothair Ii's mother die?")
    assert runs[0] == ("when did lothair ii mother die", 0, 6, True)
    by_name = {name: (start, end, capital) for name, start, end, capital in runs}
    assert by_name["lothair ii"] == (2, 4, True)
    assert by_name["mother"] == (4, 5, False)
    assert by_name.keys().isdisjoint({"did", "when did"})
    lengths = [end - start for _, start, end, _ in runs]
    assert lengths == sorted(lengths, reverse=True)


def test_a_question_in_capitals_or_lower_case_offers_the_same_names() -> None:
    upper, lower = (question_runs(text) for text in ("WHO MADE GOD'S GIFT TO WOMEN", "who made god's gift to women"))
    assert [name for name, *_ in upper] == [name for name, *_ in lower]
    assert question_runs("") == []


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("绍兴在哪里？", "绍兴"),
        ("東京タワーはいつ建てられましたか？", "東京タワー"),
        ("서울은 어디에 있습니까?", "서울"),
        ("กรุงเทพอยู่ที่ไหน", "กรุงเทพ"),
        ("أين تقع القاهرة؟", "القاهرة"),
        ("कृष्ण कौन था?", "कृष्ण"),
        ("איפה נמצאת חיפה?", "חיפה"),
        ("Where is 绍兴?", "绍兴"),
        ("Who is アーノルド・シュワルツェネッガー?", "アーノルド シュワルツェネッガー"),
        ("한국전쟁 이후의 서울 재건 계획 보고서는?", "한국전쟁 이후의 서울 재건 계획"),
        ("თბილისი სად არის?", "თბილისი"),
    ],
)
def test_a_name_of_one_word_is_offered_in_scripts_without_capitals(question: str, name: str) -> None:
    run = next(run for run in question_runs(question) if run[0] == name)
    assert run[3] or run[2] - run[1] > 1, "linked only if it has a capital, or several words"


def test_the_names_of_a_question_are_recognised() -> None:
    assert question_names('Did Ada Venn\'s band sing "Cold River" in 1956 in Tallow?') == [
        "ada venn",
        "cold river",
        "tallow",
    ]
    assert question_names("what is this") == []


def test_the_word_list_finds_its_words_only() -> None:
    recogniser = WordListRecogniser(["Ada Venn", "Ilse"])
    text = "Ada Venn saw the Ilse; Ilsebill did not."
    assert recogniser.recognise("Ilse", text) == [
        Mention("text", 0, 8, "name"),
        Mention("text", 17, 21, "name"),
        Mention("title", 0, 4, "title"),
    ]
    assert recogniser.fingerprint != WordListRecogniser(["Ilse"]).fingerprint


@pytest.mark.slow
def test_recognisers_open_by_name() -> None:
    assert isinstance(open_recogniser("rules"), RulesRecogniser)
    with pytest.raises(ModelUnavailable, match="no_such_pipeline"):
        open_recogniser("no_such_pipeline")


def test_an_installed_pipeline_is_wrapped(tmp_path_factory: pytest.TempPathFactory) -> None:
    spacy = pytest.importorskip("spacy")
    path = tmp_path_factory.mktemp("pipeline")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "PERSON", "pattern": "Ada Venn"}, {"label": "DATE", "pattern": "1956"}])
    pipeline.to_disk(path)
    recogniser = SpacyRecogniser(str(path))
    assert recogniser.recognise("Ilse (river)", "Ada Venn left in 1956.") == [
        Mention("text", 0, 8, "name"),
        Mention("text", 17, 21, "date"),
        Mention("title", 0, 4, "title"),
        Mention("title", 0, 12, "title"),
    ]
    assert recogniser.fingerprint == SpacyRecogniser(str(path)).fingerprint


@pytest.mark.slow
def test_the_fingerprint_of_a_pipeline_is_its_bytes_and_not_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "PERSON", "pattern": "Ada Venn"}])
    pipeline.to_disk(tmp_path / "here")
    before = SpacyRecogniser(str(tmp_path / "here"))
    before.recognise("Ada Venn", "A text with words that the vocabulary has not met.")
    assert version("spacy") in before.fingerprint

    shutil.copytree(tmp_path / "here", tmp_path / "moved")
    assert SpacyRecogniser(str(tmp_path / "moved")).fingerprint == before.fingerprint

    ruler.add_patterns([{"label": "DATE", "pattern": "1956"}])
    pipeline.to_disk(tmp_path / "here")
    assert SpacyRecogniser(str(tmp_path / "here")).fingerprint != before.fingerprint

    monkeypatch.setattr(recogniser_module, "version", lambda _: "99.0")
    assert SpacyRecogniser(str(tmp_path / "moved")).fingerprint != before.fingerprint


def test_a_pipeline_without_a_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spacy = pytest.importorskip("spacy")
    monkeypatch.setattr(spacy, "load", lambda _: spacy.blank("en"))
    with pytest.raises(ModelUnavailable, match="to_disk"):
        SpacyRecogniser("made_in_memory")


def test_order_of_documents_does_not_matter() -> None:
    documents = [(f"T{i}", f"Then Ada Venn {i} met Ilse Grey in 19{i:02d}.") for i in range(20)]
    first = {d: RULES.recognise(*d) for d in documents}
    random.Random(1).shuffle(documents)  # noqa: S311 - a test's order, no secret
    assert {d: RulesRecogniser().recognise(*d) for d in documents} == first
