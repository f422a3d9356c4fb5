"""What the pipeline's commands have in common."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from indexmill.command.options import Options
from schemas.config import Configuration, load_configuration

if TYPE_CHECKING:
    from tasks.report import Progress

__all__ = ["blank", "configured", "progress_of"]


def configured(options: Options, overrides: dict[str, Any] | None = None) -> Configuration:
    """The configuration file with the command line laid over it."""
    overrides = dict(overrides or {})
    if options.corpus:
        overrides["corpus"] = {"paths": list(options.corpus)}
    if options.store:
        overrides["store"] = options.store
    return load_configuration(options.configuration_path(), overrides)


def progress_of() -> Progress:
    """Bars on a terminal, plain lines elsewhere."""
    from flows.progress import Lines, TerminalBars

    return TerminalBars() if sys.stderr.isatty() else Lines()


def blank(value: object) -> object:
    """A value as a table shows it: nothing for None."""
    return "" if value is None else value
