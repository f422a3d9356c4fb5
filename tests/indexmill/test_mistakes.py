"""What is wrong with settings, in words, and without what may be a secret."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter

from indexmill.errors import BadInput, ConfigurationError
from indexmill.mistakes import allowed_values, shown_value, unknown_setting
from indexmill.models.endpoint import Endpoint
from indexmill.retrieve.retrieval_method import override_parameters
from indexmill.retrieve.term_index import Bm25Parameters
from tests.llm_server import CANARY


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Annotated[int, Field(gt=0, lt=9)], "a whole number greater than 0 and less than 9"),
        (Annotated[str, Field(max_length=3)], "a string of at most 3 characters"),
        (int | None, "a whole number, or null"),
        (bool, "true or false"),
        (dict[str, int], "a section, one `name: value` per line"),
    ],
)
def test_what_is_allowed_is_said_in_words(kind: Any, words: str) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert allowed_values(schema, schema) == words


def test_what_may_be_a_secret_is_not_repeated() -> None:
    assert shown_value("many", "split.tokens") == "'many'"
    assert shown_value(CANARY, "llm.temperature") == "a string of 26 characters"
    assert shown_value("hunter2", "llm.api_key_env") == "a string of 7 characters"
    assert shown_value("word " * 9, "split.tokens") == "a string of 45 characters"
    assert (shown_value({"a": CANARY}), shown_value([CANARY]), shown_value(None)) == ("a section", "a list", "null")


def test_a_name_of_another_section_is_meant_only_where_it_is_nearly_the_same() -> None:
    elsewhere = unknown_setting("tokens", ["a"], ["split.tokens", "a"])
    assert elsewhere == "there is no such setting here; did you mean split.tokens?"
    assert (
        unknown_setting("tokes_of", ["a", "b"], ["split.tokens"]) == "there is no such setting; the settings are a, b"
    )


def test_a_setting_of_one_retrieval_and_of_an_endpoint_is_refused_in_words_of_ours() -> None:
    with pytest.raises(
        BadInput, match=r"^--set: b is 2; expected a number greater than or equal to 0 and less than or"
    ):
        override_parameters(Bm25Parameters(), {"b": 2}, "--set")
    with pytest.raises(ConfigurationError, match=r"^llm\.temperature: expected a number .* or null, found 'warm'$"):
        Endpoint.of({"model": "m", "temperature": "warm"})
