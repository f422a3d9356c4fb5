"""Names in other languages than English, with capitals and without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.stages.recognise import names_without_capitals
from tasks.stages.recognise.names_by_language import RulesByLanguage
from tasks.stages.recognise.names_without_capitals import CASELESS
from tasks.stages.recognise.rules import languages_of, recognise
from tests.deep import examples
from tests.tasks.tables import documents, passages_and_sentences


def names(text: str, language: str, *kinds: str) -> list[str]:
    mentions = RulesByLanguage().recognise("", text, language)
    return [text[mention.start : mention.end] for mention in mentions if mention.kind in (kinds or ("name", "work"))]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("de", "Der Ausschuss tagte in Berlin, Herr Müller von der Firma Bosch sprach.", ["Berlin", "Müller", "Bosch"]),
        ("de", "Die Kosten der Prüfung trägt die Europäische Union.", ["Europäische Union"]),
        ("de", "Der Antrag lag vor, und Antrag ist nicht Urteil. Das Urteil fiel in der Schweiz.", ["Schweiz"]),
        ("de", "Sie wohnt in Berlin und der Schweiz.", ["Berlin", "Schweiz"]),
        ("fr", "La ville de 北京 et la planète Mars.", ["北京", "Mars"]),
        ("he", 'ארה"ב וצה"ל', []),
        ("zh", "中华人民共和国的研究所，腾讯有限公司。", ["中华人民共和国", "腾讯有限公司"]),
        ("zh", "沿海地区和海地。", ["沿海地区", "海地"]),
        ("ja", "田中教授はタイのタイトル。", ["田中", "タイ", "タイトル"]),
        ("es", "En 1950 nació en La Habana. El Salvador la recibió.", ["La Habana", "El Salvador"]),
        ("tr", "Karadeniz'i Marmara Denizi'ne bağlar.", ["Karadeniz", "Marmara Denizi"]),
        ("el", "Στη Θεσσαλονίκη ζουν πολλοί.", ["Θεσσαλονίκη"]),
        ("zh", "暂时关闭了新西兰国家通信安全局。", ["新西兰", "新西兰国家通信安全局"]),
        ("zh", "王天成，中国湖南省双牌县人，见《切韵》。", ["王天成", "中国", "中国湖南省", "双牌县", "切韵"]),
        ("zh", "病逝于成都市温江区人民医院。", ["成都市", "温江区", "人民医院"]),
        ("zh", "在NFL中，由Apple和Google赞助。", ["NFL", "Apple", "Google"]),
        ("ja", "琵琶湖は滋賀県にある。", ["琵琶湖", "滋賀県"]),
        ("ja", "東京帝国大学で田中さんに会った。", ["東京", "東京帝国大学", "田中"]),
        ("ko", "김대중 대통령은 서울에서 노벨 평화상을 받았다.", ["김대중", "서울", "노벨 평화상"]),
        ("th", "แม่น้ำโขงระหว่างประเทศลาว", ["แม่น้ำโขง", "ประเทศลาว", "ลาว"]),
        ("ar", "ولد في مدينة فريسنو وعاش بفرنسا.", ["مدينة فريسنو", "فرنسا"]),
        ("ar", 'كتب "فائدة المال" هناك.', ["فائدة المال"]),
        ("hi", "दिल्ली विश्वविद्यालय भारत में है।", ["दिल्ली विश्वविद्यालय", "भारत"]),
    ],
)
def test_names_of_a_text(language: str, text: str, expected: list[str]) -> None:
    assert names(text, language) == expected


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Das Wasser der Dampfturbine treibt zwei Rotoren."),
        ("zh", "水在一百度时沸腾。"),
        ("ja", "水は摂氏百度で沸騰し、気体に変化する。"),
        ("ko", "물은 섭씨 백 도에서 끓는다."),
        ("th", "น้ำเดือดที่อุณหภูมิหนึ่งร้อยองศา"),
        ("ar", "يغلي الماء عند مئة درجة."),
        ("hi", "पानी सौ डिग्री पर उबलता है।"),
    ],
)
def test_texts_without_names(language: str, text: str) -> None:
    assert names(text, language) == []


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("de", "Die Kosten trägt Bonn. Kosten und Dampfturbinen.", ["Kosten", "Kosten", "Dampfturbinen"]),
        (
            "zh",
            "法音与汉音不同，法音来自南朝，汉音晚于法音和汉音之说。",
            ["法音", "汉音"] * 3,
        ),
        ("ar", "يختلف البناء عن التصنيع. يبدأ البناء ثم يستمر البناء.", ["البناء", "البناء", "البناء"]),
    ],
)
def test_terms_of_a_text(language: str, text: str, expected: list[str]) -> None:
    assert names(text, language, "term") == expected


def test_a_date_of_the_language_is_no_name() -> None:
    (mention,) = (m for m in RulesByLanguage().recognise("", "Es war Juli 2015 in Wien.", "de") if m.start == 7)
    assert mention.kind == "date"


def test_words_that_are_repeated_beside_the_same_neighbours_are_parts_of_a_longer_name() -> None:
    repeated = names_without_capitals._repeated("abxabyabz\0qrsqrs\0", (2, 2))
    assert sorted(repeated) == [(0, 2), (3, 5), (6, 8), (10, 13), (13, 16)]


def test_the_language_of_most_passages_decides() -> None:
    whole = documents(("d", "", "Die Kosten trägt Bonn."))
    passages, sentences = passages_and_sentences(whole)
    column = passages.schema.get_field_index("language")
    german = passages.set_column(column, "language", [["de"] * passages.num_rows])
    assert languages_of(whole, german) == ["de"]
    assert set(recognise(whole, german, sentences, RulesByLanguage())["name"].to_pylist()) == {"kosten", "bonn"}
    assert "die kosten" in recognise(whole, passages, sentences, RulesByLanguage())["name"].to_pylist()


TEXTS = (
    st.text(
        st.sampled_from(
            "Aa .,'\n的国大学阿斯特夏は県アイ서울은 에 กรุงเทพ مدينة في दिल्ली नदी Der Bonn İstanbul12(（《》"
        )
    )
    | st.text()
)


@given(TEXTS, st.sampled_from(sorted(CASELESS | {"de", "es", "tr", "ru", "vi", "xx"})))
@examples(60, deep=2_000)
def test_mentions_are_distinct_spans_of_the_text_in_order(text: str, language: str) -> None:
    mentions = RulesByLanguage().recognise(text[:40], text, language)
    spans = [(mention.field, mention.start, mention.end) for mention in mentions]
    assert spans == sorted(set(spans))
    assert all(0 <= m.start < m.end <= len(text if m.field == "text" else text[:40]) for m in mentions)
    assert mentions == RulesByLanguage().recognise(text[:40], text, language)
