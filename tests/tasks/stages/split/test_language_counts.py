"""The counts of languages are sums over words, whatever the documents around."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from indexmill.models import embedder
from indexmill.models.embedder import Tokeniser
from schemas.tables import LANGUAGES
from tasks.stages.split.language_counts import language_counts


def tokeniser() -> Tokeniser:
    vocabulary = ["[UNK]", "bridge", "br", "##uec", "##ke", *"мост", *(f"##{letter}" for letter in "мост")]
    whole = Tokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))  # noqa: S106
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokeniser(whole.to_str().encode(), 256)


ROWS = (
    ("a", "en", "The bridge, the bridge: A BRIDGE and Bridge2 and old."),
    ("b", "de", "bruecke"),
    ("b", "ru", "мост мостмост"),
    ("b", "ru", "桥梁建筑"),
)


def test_words_of_prose_are_counted_by_document_and_language() -> None:
    table = language_counts(ROWS, tokeniser())
    assert table.schema == LANGUAGES
    assert table.to_pylist() == [
        counted("a", "en", 1, 1, tokens=2, joints=10),
        counted("b", "de", 0, 1, tokens=3, joints=6, cuts=2),
        counted("b", "ru", 1, 2, tokens=13, unknown=1, joints=13, cuts=13),
    ]
    without = language_counts(ROWS, None).to_pylist()
    assert without == [counted("a", "en", 1, 1), counted("b", "de", 0, 1), counted("b", "ru", 1, 2)]
    assert language_counts([], tokeniser()).to_pylist() == []


def test_a_tokenizer_that_reads_every_character_of_chinese_as_a_word_cuts_nothing() -> None:
    whole = Tokenizer(models.WordPiece({token: i for i, token in enumerate(["[UNK]", *"东京塔"])}, unk_token="[UNK]"))  # noqa: S106
    whole.normalizer = normalizers.BertNormalizer()
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    by_character = Tokeniser(whole.to_str().encode(), 256)
    rows = [("a", "zh", "东京塔东京"), ("b", "zh", "东京桥")]
    assert language_counts(rows, by_character).to_pylist() == [
        counted("a", "zh", 1, 1, tokens=5, joints=4),
        counted("b", "zh", 1, 1, tokens=3, unknown=1, joints=2, cuts=2),
    ]


def test_a_byte_level_vocabulary_of_many_languages_counts_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Tokenizer(models.BPE())
    whole.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    whole.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert whole.get_vocab_size() == 256
    by_bytes = Tokeniser(whole.to_str().encode(), 256)
    rows = [("a", "el", "γέφυρα")]
    (row,) = language_counts(rows, by_bytes).to_pylist()
    assert row["cuts"] == row["joints"] == 5
    monkeypatch.setattr(embedder, "BYTES_OF_MANY_LANGUAGES", 256)
    assert language_counts(rows, Tokeniser(whole.to_str().encode(), 256)).to_pylist() == [counted("a", "el", 1, 1)]


def test_a_document_counts_the_same_alone() -> None:
    together = language_counts(ROWS, tokeniser())
    alone = [language_counts([row for row in ROWS if row[0] == document], tokeniser()) for document in "ab"]
    assert pa.concat_tables(alone).equals(together)


def counted(document: str, language: str, documents: int, passages: int, **counts: int) -> dict[str, object]:
    zeros = dict.fromkeys(("tokens", "unknown", "joints", "cuts"), 0)
    named = {"document_id": document, "language": language, "documents": documents, "passages": passages}
    return named | zeros | counts
