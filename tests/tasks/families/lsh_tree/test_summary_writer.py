"""The question for a summary, what determines summaries, and what an answer says."""

from __future__ import annotations

from pathlib import Path

from schemas.config import LlmSettings
from tasks.families.lsh_tree.summary_writer import WRITER, parse, request
from tasks.llm.prompts import prompt
from tasks.stages.write.summarise import fingerprint, most_output
from tests.tasks.stages.write.test_summarise import LAMP


def test_the_prompt_has_no_text_of_the_corpus_and_the_content_only_data() -> None:
    asked = request(LAMP, 100, prompt("summary"), about=["a", "b"], makes="n")
    assert asked.instructions == prompt("summary")[0].replace("{words}", "75")
    assert all(text in asked.content and text not in asked.instructions for text in LAMP)
    assert asked.max_output_tokens == most_output(100) > 100
    assert (asked.task, asked.about, asked.makes) == ("summary", ("a", "b"), "n")


def test_what_shapes_summaries_is_in_the_fingerprint_and_nothing_else(tmp_path: Path) -> None:
    def of(settings: LlmSettings, tokens: int = 100, language: str = "en") -> dict[str, object]:
        return fingerprint(settings, WRITER.prompt(settings), tokens, language)

    plain = LlmSettings(backend="openai", model="m", base_url="http://one")
    assert of(plain) == of(plain.model_copy(update={"base_url": "http://two"}), language="de")
    (tmp_path / "summary.md").write_text("Summarise.")
    changes: list[dict[str, object]] = [{"model": "n"}, {"temperature": 1.0}, {"prompts": tmp_path}]
    others = [of(plain, 200), of(LlmSettings()), *(of(plain.model_copy(update=change)) for change in changes)]
    assert all(other != of(plain) for other in others)
    assert of(LlmSettings()) != of(LlmSettings(), language="de")


def test_an_answer_becomes_plain_text() -> None:
    assert parse({"summary": " A\n\nb\0\tc\ud800 "}, 100) == "A b c"
    assert parse({"summary": "\n"}, 100) == ""
    assert len(parse({"summary": "word " * 10_000}, 100)) <= 32 * 100
