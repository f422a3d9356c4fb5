"""Load a configuration file and resolve its relative paths."""

from __future__ import annotations

import contextlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from indexmill.errors import ConfigurationError
from indexmill.mistakes import mistakes
from indexmill.models.secrets import redacted
from indexmill.store.location import DEFAULT_STORE, anchored, store_location
from schemas.config.configuration import Configuration
from schemas.config.run_settings import TlsSettings
from schemas.config.settings_section import looks_like_a_path
from schemas.sources import PATHS_OF_SOURCES

_DATABASE = re.compile(r"((?:sqlite|duckdb):///)([^/:?$][^?]*)(\?.*)?$")
_SCP = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!:).")


def load_configuration(path: Path | None, overrides: dict[str, Any] | None = None) -> Configuration:
    """Load the configuration from a YAML file (if None, the defaults) and apply overrides.

    overrides: nested like the file. Relative paths in the file, and the default store, are resolved against the file's
    folder; a model or recogniser is a path if it looks like one and exists. Raises ConfigurationError, which names the
    file and every invalid setting.
    """
    content: Any = {}
    if path is not None:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError as error:
            raise ConfigurationError(f"{path}: no such configuration file; `indexmill init` writes one") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{path}: cannot be read as YAML: {redacted(str(error))}") from None
        if not isinstance(content, dict):
            raise ConfigurationError(f"{path}: expected settings by name, found {type(content).__name__}")
        _anchor_paths(content, path.parent)
    try:
        return Configuration.model_validate(_merged(content, overrides or {}))
    except ValidationError as error:
        where = path if path is not None else "the settings"
        wrong = mistakes(error, _schema())
        listed = wrong[0] if len(wrong) == 1 else "\n  ".join([f"{len(wrong)} settings are wrong", *wrong])
        raise ConfigurationError(f"{where}: {listed}") from error


@cache
def _schema() -> dict[str, Any]:
    return Configuration.model_json_schema()


def _anchor_paths(content: dict[str, Any], folder: Path) -> None:
    """Resolve the configuration's relative paths against the file's folder, not against the working directory."""
    store = content.setdefault("store", DEFAULT_STORE)
    if isinstance(store, str):
        with contextlib.suppress(ValueError):  # the model reports it with the setting's name
            content["store"] = store_location(store, folder)
    corpus = content.get("corpus")
    if isinstance(corpus, dict):
        _anchor(corpus, "paths", folder)
        sources = corpus.get("sources")
        for source in sources if isinstance(sources, list) else []:
            for name in PATHS_OF_SOURCES if isinstance(source, dict) else ():
                _anchor(source, name, folder)
    for *sections, setting in (
        ("gates", "questions"),
        ("embed", "api_key_file"),
        ("embed", "ca_file"),
        ("llm", "api_key_file"),
        ("llm", "ca_file"),
        ("llm", "prompts"),
        ("run", "report"),
        ("run", "signing_key_file"),
        ("run", "log"),
        *(("run", "dask", "tls", file) for file in TlsSettings.model_fields),
    ):
        settings: Any = content
        for section in sections:
            settings = settings.get(section) if isinstance(settings, dict) else None
        if isinstance(settings, dict) and isinstance(value := settings.get(setting), str):
            settings[setting] = anchored(value, folder)
    for section, setting in (("embed", "model"), ("embed", "tokenizer"), ("recognise", "recogniser")):
        settings = content.get(section)
        if not isinstance(settings, dict) or not isinstance(value := settings.get(setting), str):
            continue
        if looks_like_a_path(value) and Path(anchored(value, folder)).exists():
            settings[setting] = anchored(value, folder)


def _anchor(section: dict[str, Any], name: str, folder: Path) -> None:
    """Resolve the setting `name` if it is a path or a list of paths; URLs and other values stay as they are."""
    value = section.get(name)
    if name == "repository" and isinstance(value, str) and _SCP.match(value) and not (folder / value).exists():
        return  # a git address, `USER@HOST:PATH`
    if isinstance(value, str):
        section[name] = _placed(value, folder)
    elif isinstance(value, list):
        section[name] = [_placed(path, folder) if isinstance(path, str) else path for path in value]


def _placed(path: str, folder: Path) -> str:
    """Resolve a path, or the path in a database URL, against a folder; other URLs stay as they are."""
    if file := _DATABASE.match(path):
        return f"{file[1]}{anchored(file[2], folder)}{file[3] or ''}"
    return path if "://" in path else anchored(path, folder)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged
