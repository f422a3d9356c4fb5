"""The language model of a command: its options, and the section ``llm`` of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from indexmill.command.options import Options, kept_option, print_cautions, together, with_anchored_files
from indexmill.errors import BadInput
from indexmill.models.endpoint import Endpoint
from indexmill.models.openai_llm import OpenAiLlm, open_llm
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import AnsweringOption
from indexmill.store.location import anchored

_KEYS = ("api_key_env", "api_key_file", "token_provider")


model_options = together(
    kept_option("--model", metavar="NAME", help="The language model; by default that of the configuration file."),
    kept_option(
        "--base-url", metavar="URL", help="The model's endpoint, such as http://localhost:8000/v1; OpenAI's by default."
    ),
    kept_option(
        "--api-key-env",
        metavar="NAME",
        help="The environment variable that contains the key; OPENAI_API_KEY by default.",
    ),
    kept_option(
        "--max-output-tokens",
        metavar="T",
        type=click.IntRange(min=1),
        help="Limit each answer of the model to T tokens, its reasoning included; raise it if answers are cut off.",
    ),
)
"""Adds the model's options, which ``model_of`` reads, and ``--max-output-tokens``."""


def _option_of(method: str, option: AnsweringOption) -> Callable[[Any], Any]:
    kind: dict[str, Any] = {"is_flag": True}
    if option.metavar is not None:
        kind = {"metavar": option.metavar, "type": click.IntRange(min=1)}
    return click.option(option.name, help=f"For {method}: {option.help}", **kind)


answering_options = together(
    *(_option_of(method.name, option) for method in METHODS.values() for option in method.answering_options)
)
"""Adds the options that methods declare for their answer modes, which ``answering_settings`` reads."""


def answering_settings(methods: Sequence[str], option_values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Collect the options' values as answer settings by method. Raises BadInput if no method accepts an option."""
    settings_of: dict[str, dict[str, object]] = {}
    for family in METHODS.values():
        values = {option: option_values[option.parameter] for option in family.answering_options}
        chosen = {option: value for option, value in values.items() if value}
        if not chosen:
            continue
        if family.name not in methods:
            named = " and ".join(option.name for option in chosen)
            raise BadInput(f"{named}: {', '.join(methods)} does not accept that; add --method {family.name}")
        settings_of[family.name] = {
            option.setting: option.value if option.metavar is None else value for option, value in chosen.items()
        }
    return settings_of


def model_of(options: Options, model: str | None = None) -> OpenAiLlm | None:
    """Open the model named by the options, or else by the configuration file; None if neither names a model.

    model: overrides ``--model``. Prints warnings about unsafe handling of the model's key on standard error.
    """
    named = {
        "model": model or options.model,
        "base_url": options.base_url,
        "api_key_env": options.api_key_env,
    }
    overrides = {name: value for name, value in named.items() if value is not None}
    section, folder = options.section("llm")
    if "model" not in overrides and section.get("backend") != "openai":
        if overrides:
            raise BadInput("--base-url and --api-key-env require --model")
        return None
    if "base_url" in overrides:  # the file's keys belong to the file's endpoint
        section = {name: value for name, value in section.items() if name not in _KEYS}
    settings = with_anchored_files({**section, **overrides}, folder)
    if "api_key_env" in overrides:
        settings |= {"api_key_file": None, "token_provider": None}
    llm = open_llm(Endpoint.of(settings))
    print_cautions(llm.keys.cautions(llm.base_url))
    return llm


def prompts_of(options: Options) -> Path | None:
    """Return the folder of prompts that replace the built-in ones, if the configuration file names one."""
    section, folder = options.section("llm")
    named = section.get("prompts")
    if named is not None and not isinstance(named, str):
        raise BadInput(f"llm.prompts is {named!r}; expected a folder")
    return None if named is None else Path(anchored(named, folder))
