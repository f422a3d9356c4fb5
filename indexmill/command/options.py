"""The options that every command accepts, and how a command prints.

    @click.command()
    @common
    def query(options: Options) -> None: ...

Shared options may precede or follow the command's name; an option after the name wins. Options that only some commands
share (``candidate``, ``pinned``, and those of ``retrieval.py`` and ``model.py``) are stored in the same object.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

import indexmill
from indexmill.command.versions import selection
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput, ConfigurationError
from indexmill.extras import not_installed
from indexmill.store.blob_cache import CACHE_VARIABLE
from indexmill.store.location import DEFAULT_STORE, anchored, store_location
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.snapshot import Snapshot
    from indexmill.store.signatures import Trust

CONFIGURATION_FILE = "indexmill.yaml"
"""The file that is read from the current folder if ``--config`` is not given."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(slots=True)
class Options:
    """The values of the shared options: one object per invocation, which the options' callbacks fill.

    Each field has the name of its option's parameter, and is empty if the option is not given.
    """

    store: str | None = None
    config: Path | None = None
    corpus: tuple[str, ...] = ()
    json: bool = False
    debug: bool = False

    version: str | None = None
    """A number, an alias, or ``newest``."""
    alias: str | None = None
    run: str | None = None
    manifest: str | None = None
    trust: Trust | None = None

    where: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    unrestricted: bool = False
    settings: tuple[str, ...] = ()
    rerank: str | None = None
    rerank_model: str | None = None
    rerank_depth: int | None = None

    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    max_output_tokens: int | None = None

    def configuration_path(self) -> Path | None:
        """Return the configuration file: ``--config``, else ``indexmill.yaml`` in the current folder, else None.

        Raises ConfigurationError if the file named by ``--config`` does not exist.
        """
        if self.config is not None:
            if not self.config.is_file():
                raise ConfigurationError(f"{self.config}: no such configuration file; `indexmill init` writes one")
            return self.config
        default = Path(CONFIGURATION_FILE)
        return default if default.is_file() else None

    def store_path(self) -> str:
        """Return the location of the store: ``--store``, else ``store:`` in the configuration file, else ``store``.

        Paths in the configuration file are relative to the file's folder. Raises ConfigurationError if the file cannot
        be read.
        """
        where, store, folder = "--store", self.store, Path()
        if store is None:
            path = self.configuration_path()
            if path is None:
                return DEFAULT_STORE
            where, store, folder = f"{path}: store:", _read_yaml(path).get("store", DEFAULT_STORE), path.parent
        if not isinstance(store, str):
            raise ConfigurationError(f"{where} is {store!r}; expected a path")
        try:
            return store_location(store, folder)
        except ValueError as error:
            raise ConfigurationError(f"{where.removesuffix(':')}: {error}") from error

    def section(self, name: str) -> tuple[dict[str, Any], Path]:
        """Return an unvalidated section of the configuration file and the folder of its paths; empty without a file.

        Raises ConfigurationError if the file cannot be read, or the section is not a mapping.
        """
        path = self.configuration_path()
        content = None if path is None else _read_yaml(path).get(name)
        if content is None:
            return {}, Path() if path is None else path.parent
        if path is None or not isinstance(content, dict):
            raise ConfigurationError(f"{path}: {name}: contains a {type(content).__name__}; expected settings")
        return content, path.parent

    def open_snapshot(self, processes: int = 1) -> Snapshot:
        """Open the snapshot that a command reads; raises as ``indexmill.open`` does."""
        from indexmill.opening import open_candidate

        if self.run is not None:
            if (self.version, self.alias, self.manifest) != (None, None, None):
                raise BadInput(
                    "--run names a candidate, not a version: it cannot be combined with VERSION, --alias or --manifest"
                )
            store = self.store_path()
            with Waiting(f"opening the candidate of run {self.run} in {store}", only_terminals=True):
                return self._with_encoder(open_candidate(store, self.run, processes))
        number, alias = self.selected()
        store = self.store_path()
        with Waiting(f"opening the snapshot in {store}", only_terminals=True):
            snapshot = indexmill.open(store, number, alias, processes, self.manifest, trust=self.trust)
        return self._with_encoder(snapshot)

    def selected(self) -> tuple[int | None, str | None]:
        """Return the number or the alias of the version that the options name; both are None for the newest."""
        if self.version is not None and self.alias is not None:
            raise BadInput(
                f"the version {self.version} and --alias {self.alias} are both given; expected at most one of them"
            )
        number, alias = selection(self.version)
        return number, alias or self.alias

    def _with_encoder(self, snapshot: Snapshot) -> Snapshot:
        """Set the configuration file's endpoint if this snapshot needs an endpoint to encode questions."""
        if snapshot.asks_endpoint:
            try:
                snapshot.use_encoder(self.encoder())
            except BaseException:
                snapshot.close()
                raise
        return snapshot

    def encoder(self) -> OpenAiEmbeddings | None:
        """Open the embedding endpoint of the configuration file; None if there is none.

        Prints warnings about unsafe handling of its key on standard error. Raises ConfigurationError.
        """
        section, folder = self.section("embed")
        if section.get("backend") != "openai":
            return None
        from indexmill.models.endpoint import Endpoint
        from indexmill.models.openai_embeddings import open_embeddings

        encoder = open_embeddings(Endpoint.of(with_anchored_files(section, folder), "embed"))
        print_cautions(encoder.keys.cautions(encoder.base_url, encoder.names.url))
        return encoder

    def snapshot_name(self, version: int | None) -> str:
        """Return the name of the opened snapshot for output, such as "version 7"."""
        if version is not None:
            return f"version {version}"
        return "exported snapshot" if self.run is None else f"candidate of run {self.run}, not published"

    def print_json(self, value: Any) -> None:
        """Print the JSON object of a command with ``--json``, in UTF-8 whatever the terminal's encoding."""
        click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace"))


def print_cautions(cautions: Iterable[str]) -> None:
    """Print each caution as a line on standard error."""
    for caution in cautions:
        click.echo(one_line(f"caution: {caution}"), err=True)


def with_anchored_files(section: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of an endpoint, with relative paths of files resolved from the configuration's folder."""
    files = {name: section[name] for name in ("api_key_file", "ca_file") if isinstance(section.get(name), str)}
    return {**section, **{name: Path(anchored(path, folder)) for name, path in files.items()}}


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise not_installed(f"{path}: reading it", "yaml", error, "give --store") from error
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        from indexmill.models.secrets import redacted

        raise ConfigurationError(f"{path}: cannot be read: {redacted(str(error))}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"{path}: contains a {type(content).__name__}; expected settings, one `name: value` per line"
        )
    return content


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value not in (None, False, ()) and parameter.name is not None:
        setattr(ctx.ensure_object(Options), parameter.name, value)


def _use_cache(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Set the cache in the environment, which the processes of a build inherit."""
    if value is not None:
        os.environ[CACHE_VARIABLE] = os.path.abspath(value)  # noqa: PTH100 - a str


kept_option = functools.partial(click.option, callback=_keep, expose_value=False)
"""An option whose value is stored in ``Options`` and not passed to the command."""


def as_option(text: str) -> Decorator:
    """Make the option ``--as``, stored as ``Options.principals``. text: the help text."""
    return kept_option("--as", "principals", metavar="GROUP", multiple=True, help=text)


kept_argument = functools.partial(click.argument, callback=_keep, expose_value=False)


def together(*options: Decorator) -> Decorator:
    """Combine options into one decorator; the help lists them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.reduce(lambda decorated, option: option(decorated), reversed(options), function)

    return decorate


shared_options = together(
    kept_option(
        "--store", metavar="DIR", help="The store or exported folder, or the URL of a store: s3://, gs://, az://."
    ),
    click.option(
        "--cache",
        metavar="DIR",
        callback=_use_cache,
        expose_value=False,
        help="The folder that caches files of an object store and arrays assembled from a version; by default "
        "INDEXMILL_CACHE, or for an object store the user's cache folder.",
    ),
    kept_option(
        "--config",
        "-c",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"The configuration file; {CONFIGURATION_FILE} here by default.",
    ),
    kept_option("--corpus", metavar="PATH", multiple=True, help="A corpus file, folder or glob; may be repeated."),
    kept_option("--json", is_flag=True, help="Print one JSON object, and nothing else, on standard output."),
    kept_option("--debug", is_flag=True, help="Show the traceback of an expected error, too."),
)
"""Adds the shared options to a command or group; they are not passed to its function."""


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command, and pass it ``Options`` as its first argument."""

    @functools.wraps(function)
    def command(*arguments: Any, **settings: Any) -> Any:
        return function(click.get_current_context().ensure_object(Options), *arguments, **settings)

    return shared_options(command)


class GroupedCommand(click.Command):
    """A command whose help groups its options. groups: parameter names by title; all others come first as "Options"."""

    def __init__(self, *arguments: Any, groups: Mapping[str, Collection[str]], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each option under the title of its group."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], **{title: [] for title in self.groups}}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                titles = (title for title, names in self.groups.items() if parameter.name in names)
                sections[next(titles, "Options")].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


SHARED_GROUPS: Mapping[str, Collection[str]] = {
    "Reranking": ("rerank", "rerank_model", "rerank_depth"),
    "Who asks": ("principals", "unrestricted"),
    "Which index": ("version", "alias", "run", "manifest", "trust", "store", "cache", "config", "corpus"),
    "Output": ("explain", "json", "debug"),
}
"""The groups of options that several commands share."""


def _read_trust(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from indexmill.store.signatures import Trust

        ctx.ensure_object(Options).trust = Trust.of(value)


trust_option = click.option(
    "--trust",
    metavar="FILE",
    callback=_read_trust,
    expose_value=False,
    help="Accept only versions with the signatures that this file requires; `indexmill sign` explains it.",
)
"""Adds ``--trust``, stored as ``Options.trust``."""


candidate = together(
    kept_option("--run", metavar="ID", help="Read the candidate of this run, which a gate refused."),
    kept_option("--manifest", metavar="DIGEST", help="Require that the manifest has this SHA-256."),
    trust_option,
)
"""Adds ``--run``, for a candidate that a gate refused, ``--manifest`` and ``--trust``."""

pinned = together(
    candidate,
    kept_option(
        "--snapshot",
        "version",
        metavar="VERSION",
        help="Read this version: a number, an alias, or `newest`, which is the default.",
    ),
    kept_option("--alias", metavar="NAME", help="Read the version that this alias points to."),
)
"""Adds the options of ``candidate``, and ``--snapshot`` and ``--alias``, which choose the version to read."""


def parameters_by_method(settings: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, object]]:
    """Parse ``--set`` into parameters by method.

    ``dense.title=0.1`` sets ``title`` of dense if dense is among the methods. Any other name is a parameter of the only
    method, even if it contains dots. The last setting of a name wins. Raises BadInput for an invalid setting, and for a
    name without a method if there are several methods.
    """
    parameters: dict[str, dict[str, object]] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise BadInput(f"--set is {setting!r}; expected a name and a value, such as --set title=0.1")
        method, dot, rest = name.partition(".")
        if not dot or method not in methods:
            if len(methods) != 1:
                raise BadInput(
                    f"--set {setting}: name the method, such as {methods[0]}.{name}: there are {', '.join(methods)}"
                )
            method, rest = methods[0], name
        parameters.setdefault(method, {})[rest] = _scalar(value.strip())
    return parameters


def _scalar(text: str) -> object:
    """Parse a value of ``--set`` as JSON and YAML do: a number, true, false, null, or a string."""
    words: dict[str, object] = {"true": True, "false": False, "null": None, "none": None, "~": None, "": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        value: object = json.loads(text)
    except ValueError:
        try:
            return float(text)  # such as .5 or 1e-3; also nan, which the method rejects
        except ValueError:
            return text
    return text if isinstance(value, (list, dict)) else value


class Duration(click.ParamType):  # type: ignore[type-arg] # generic only in newer releases of click
    """A length of time such as 90m, 26h, 2d or 1d12h, in seconds."""

    name = "duration"
    _UNITS: ClassVar[dict[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a string to seconds; a number is returned unchanged."""
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip().lower()
        pieces = re.findall(r"([0-9]{1,9}(?:[.][0-9]{1,9})?)([smhdw])", text)
        if not pieces or "".join(number + unit for number, unit in pieces) != text:
            self.fail(f"{value!r} is not a duration; write 90m, 26h, 2d or 1d12h (s, m, h, d, w)", param, ctx)
        return sum(float(number) * self._UNITS[unit] for number, unit in pieces)


def numbers(text: str) -> list[int]:
    """Parse the whole numbers of ``-k``."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise BadInput(f"-k is {text!r}; expected whole numbers separated by commas, such as 5,10") from error
    if not numbers:
        raise BadInput("-k is empty; expected whole numbers separated by commas, such as 5,10")
    return numbers
