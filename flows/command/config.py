"""``indexmill config``: the settings that a build would use, and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

from flows.command.shared import configuration_of
from indexmill.command.options import Options, common
from indexmill.errors import IndexmillError
from indexmill.models.openai_connection import OpenAiConnection
from indexmill.models.openai_embeddings import open_embeddings
from indexmill.models.openai_llm import open_llm
from indexmill.models.secrets import without_secrets
from indexmill.store.location import DEFAULT_STORE, anchored
from indexmill.text.printable import printable
from indexmill.text.text_table import table
from schemas.config import Configuration, EndpointSettings
from schemas.corpus import CorpusSettings

S = TypeVar("S", bound=EndpointSettings)


@click.command("config")
@click.option("--changed", is_flag=True, help="Print only the settings that differ from the defaults.")
@common
def command(options: Options, changed: bool) -> None:
    """Print every setting with its value and where it comes from: the file, an option, or the default.

    Passwords in URLs are hidden. Keys of models behind endpoints are never printed, only whether one was found
    and where; no model is called. Exit code 2: the configuration is invalid.
    """
    configuration = configuration_of(options)
    key, cautions = _key(configuration.llm, open_llm)  # first, so that `redacted` knows the key
    encoder_key, more = _key(configuration.embed, open_embeddings)
    cautions += more
    settings = without_secrets(configuration.model_dump(mode="json"))
    path = options.configuration_path()
    written = None if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
    origins = {name: _origin(name, options, written) for name, _ in _leaves(settings)}
    if changed:
        defaults = _defaults(path)
        differing = [name for name, value in _leaves(settings) if name not in defaults or value != defaults[name]]
        origins = {name: origins[name] for name in differing}
        settings = _only(settings, origins)
    if options.json:
        file = None if path is None else str(path)
        options.print_json(
            {
                "file": file,
                "settings": settings,
                "from": origins,
                "key": key,
                "encoder_key": encoder_key,
                "cautions": cautions,
            }
        )
        return
    rows = [[name, json.dumps(value, ensure_ascii=False), origins[name]] for name, value in _leaves(settings)]
    click.echo(table(["setting", "value", "from"], rows) if rows else "every setting has its default")
    click.echo(printable(f"key of the language model: {_key_text(key)}"))
    if configuration.embed.asks:
        click.echo(printable(f"key of the encoder: {_key_text(encoder_key)}"))
    for caution in cautions:
        click.echo(printable(f"warning: {caution}"), err=True)


def _key(settings: S, opened: Callable[[S], OpenAiConnection]) -> tuple[dict[str, Any], list[str]]:
    """Describe an endpoint's key as {"needed", "found", "from", "problem"}; return also the warnings about its use."""
    key: dict[str, Any] = {"needed": False, "found": False, "from": None, "problem": None}
    if not settings.asks:
        return key, []
    model = opened(settings)
    key["needed"] = model.keys.required
    try:
        key["found"] = model.keys.check()
        key["from"] = model.keys.description if key["found"] else None
        model.check()
    except IndexmillError as error:
        key["problem"] = str(error)
    return key, model.keys.cautions(model.base_url, model.names.url)


def _key_text(key: Mapping[str, Any]) -> str:
    if key["problem"]:
        return str(key["problem"])
    if key["found"]:
        return f"found in {key['from']}"
    return "none is needed" if not key["needed"] else "none"


def _defaults(path: Path | None) -> dict[str, Any]:
    """Return the default settings by dotted name, with those of ``corpus`` as for a corpus that sets only paths."""
    store = anchored(DEFAULT_STORE, Path() if path is None else path.parent)
    corpus = CorpusSettings(paths=("unset",)).model_dump(mode="json", exclude={"paths"})
    settings = Configuration().model_dump(mode="json") | {"store": store, "corpus": corpus}
    return {"corpus": None, **dict(_leaves(settings))}


def _only(settings: Mapping[str, Any], names: Collection[str], above: str = "") -> dict[str, Any]:
    selected: dict[str, Any] = {}
    for name, value in settings.items():
        if f"{above}{name}" in names:
            selected[name] = value
        elif isinstance(value, dict) and (below := _only(value, names, f"{above}{name}.")):
            selected[name] = below
    return selected


def _leaves(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting by its dotted name; an empty section counts as a setting."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _origin(name: str, options: Options, written: Any) -> str:
    if (name == "store" and options.store) or (name == "corpus.paths" and options.corpus):
        return "option"
    for part in name.split("."):
        if not isinstance(written, dict) or part not in written:
            return "default"
        written = written[part]
    return "file"
