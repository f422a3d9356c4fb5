"""The language model's context: what the settings or the endpoint say of it, and the source texts that fit into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from indexmill.models.openai_llm import open_llm
from indexmill.store.manifest import Manifest
from schemas.config import Configuration
from schemas.config.settings_section import Settings

_TEXTS = {"community_tree": 1, "heterograph": 3}
"""The number of source texts in the prompts of a family, each of up to `input_tokens`."""


def with_context(
    configuration: Configuration, published: Manifest | None, note: Callable[[str], None] = lambda message: None
) -> Configuration:
    """Return the configuration with the context of its language model, and with source texts that fit into it.

    The context is that of `llm.context_tokens`, or what the endpoint says, or, if that does not answer, that of the
    published version. If none of them says it, if it is large enough, or if no texts are written, the configuration
    does not change. note: called if texts are shortened.
    """
    llm = configuration.llm
    if not llm.asks or not configuration.writes:
        return configuration
    tokens = llm.context_tokens or asyncio.run(open_llm(llm).context())
    if tokens is None and published is not None:
        recorded = published.models.get("context_tokens")
        tokens = recorded if isinstance(recorded, int) else None
    if tokens is None:
        return configuration
    llm = llm.model_copy(update={"context_tokens": tokens})
    families = configuration.families
    sections = {name: getattr(families, name) for name in _TEXTS}
    sections["description"] = configuration.resolve.description
    fitted = {name: _fitted(section, llm.sources_room(_TEXTS.get(name, 1))) for name, section in sections.items()}
    if fitted == sections:
        return configuration  # so that nothing depends on a context that is large enough
    note(f"the context of {llm.model} has {tokens:,} tokens: its prompts contain fewer source texts")
    resolve = configuration.resolve.model_copy(update={"description": fitted.pop("description")})
    update = {"llm": llm, "families": families.model_copy(update=fitted), "resolve": resolve}
    return configuration.model_copy(update=update)


def _fitted(section: Settings, room: int | None) -> Settings:
    """Return the settings of a section with at most `room` input tokens."""
    most: int = section.model_dump(include={"input_tokens"})["input_tokens"]
    return section if room is None or room >= most else section.model_copy(update={"input_tokens": room})
