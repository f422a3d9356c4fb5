"""The endpoint that encodes questions: the section ``embed`` of the configuration, where it names one."""

from __future__ import annotations

from pathlib import Path

import click

from indexmill.command.options import Options, anchored
from indexmill.models.endpoint import Endpoint
from indexmill.models.openai_embeddings import OpenAiEmbeddings, open_embeddings
from indexmill.text.printable import one_line

__all__ = ["encoder_of"]


def encoder_of(options: Options) -> OpenAiEmbeddings | None:
    """The endpoint that the configuration file names for vectors; None where it names none.

    Warns on standard error of what is unwise about its key. Raises ConfigurationError for settings that cannot work.
    """
    section, folder = options.section("embed")
    if section.get("backend") != "openai":
        return None
    settings = {
        name: Path(anchored(value, folder)) if name in ("api_key_file", "ca_file") and isinstance(value, str) else value
        for name, value in section.items()
    }
    encoder = open_embeddings(Endpoint.of(settings, "embed"))
    for caution in encoder.keys.cautions(encoder.base_url, encoder.names.url):
        click.echo(one_line(f"caution: {caution}"), err=True)
    return encoder
