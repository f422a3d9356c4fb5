"""Measure the rules that find names: precision and recall by language, on sentences whose names a person has marked.

    python -m benchmarks.names DATA [--missed]

`names.jsonl` has sixty sentences in twelve languages, which the rules were written with, and thirty in five languages
that were held out (rows `held out`). Sentences of six languages are ranges of documents in DATA/languages. A name that
the rules find is right if it and a marked name cover each other by half or more. The rules of English are those of
RulesRecogniser, whatever the language. --missed prints the names that differ.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import argument_parser
from indexmill.models.recogniser import Recogniser, RulesRecogniser
from tasks.stages.recognise.names_by_language import RulesByLanguage

Span = tuple[int, int]

RULES: dict[str, Recogniser] = {"rules of English": RulesRecogniser(), "rules of the language": RulesByLanguage()}


def sentences(data: Path) -> Iterator[tuple[str, str, list[str], bool]]:
    """Yield the language, the text and the marked names of each sentence, and whether it was held out."""
    texts = {}
    for corpus in sorted((data / "languages").glob("*/corpus.jsonl")):
        for document in map(json.loads, corpus.read_text("utf-8").splitlines()):
            texts[document["id"]] = document["text"]
    for row in map(json.loads, Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()):
        text = row["text"] if "text" in row else texts[row["id"]][row["start"] : row["end"]]
        yield row["language"], text, row["names"], "held_out" in row


def marked(text: str, names: Sequence[str]) -> list[Span]:
    """Return the spans of all occurrences of names, except those within longer names."""
    spans = []
    for name in names:
        start = text.index(name)
        while start >= 0:
            spans.append((start, start + len(name)))
            start = text.find(name, start + 1)
    return [span for span in spans if not any(other != span and _holds(other, span) for other in spans)]


def _holds(outer: Span, inner: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def covers(first: Span, second: Span) -> bool:
    """Return True if two spans share at least half of the characters of both together."""
    shared = min(first[1], second[1]) - max(first[0], second[0])
    return 2 * shared >= max(first[1], second[1]) - min(first[0], second[0])


def counts_of(
    text: str, gold: Sequence[Span], recogniser: Recogniser, language: str
) -> tuple[Counter[str], list[Span]]:
    """Count the names of a sentence that are marked, recalled, returned and right; also return the spans."""
    mentions = recogniser.recognise("", text, language)
    spans = sorted({(mention.start, mention.end) for mention in mentions if mention.kind in ("name", "work")})
    recalled = sum(any(covers(span, name) for span in spans) for name in gold)
    right = sum(any(covers(span, name) for name in gold) for span in spans)
    return Counter(marked=len(gold), recalled=recalled, returned=len(spans), right=right), spans


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argument_parser(__doc__)
    parser.add_argument("data", type=Path, help="the folder of the benchmark data")
    parser.add_argument("--missed", action="store_true", help="print the names that differ")
    options: Any = parser.parse_args(arguments)
    table: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for language, text, names, held_out in sentences(options.data):
        rows = (f"{language}, held out", "all, held out") if held_out else (language, "all")
        gold = marked(text, names)
        for title, recogniser in RULES.items():
            counts, spans = counts_of(text, gold, recogniser, language)
            for row in rows:
                table[row][title] += counts
        if options.missed and not counts["recalled"] == counts["marked"] == counts["right"] == counts["returned"]:
            print(f"{language}: {text}")
            for title, of_title in (("marked", gold), ("returned", spans)):
                print(f"  {title}", [text[start:end] for start, end in of_title])
    print("| language |", " | ".join(f"{title}: precision | recall" for title in RULES), "|")
    print("| --- |" + " --- | --- |" * len(RULES))
    for language, by_rules in sorted(table.items(), key=lambda row: (row[0].startswith("all"), row[0])):
        cells = [f"{_share(c, 'right', 'returned')} | {_share(c, 'recalled', 'marked')}" for c in by_rules.values()]
        print(f"| {language} |", " | ".join(cells), "|")


def _share(counts: Counter[str], part: str, whole: str) -> str:
    return f"{counts[part]}/{counts[whole]} = {counts[part] / counts[whole]:.2f}" if counts[whole] else "-"


if __name__ == "__main__":
    main()
