"""The ``indexmill`` command. Each subcommand is imported when it is called, so that ``indexmill --help`` is fast.

The pipeline's commands (``flows.command``) belong to the distribution indexmill-pipeline, which a reader need not
install. They are imported by name; without that distribution, they fail with a message. No other module imports across
layers by name.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from indexmill.command.options import Options, shared_options
from indexmill.errors import ConfigurationError, DiskFull, IndexmillError
from indexmill.extras import install
from indexmill.store.free_space import temporary_folder
from indexmill.telemetry_sdk import configure
from indexmill.text.printable import printable

_READER = {
    "answer": "Answer a question from the index, with a language model or by a quotation.",
    "diff": "Show what changed between two versions: documents, passages, entities, sizes, settings.",
    "evaluate": "Measure how well retrieval methods find known evidence.",
    "explore": "Draw the neighbourhood of an entity, a community or a question as a page.",
    "mcp": "Serve the index to an assistant, by the Model Context Protocol.",
    "query": "Retrieve the passages that answer a question.",
    "report": "Write a page about a version: what its run changed and cost, its history, its content.",
    "serve": "Serve the index over HTTP, with tokens, limits and metrics.",
    "show": "Show what a snapshot contains: its families, their parameters, its artifacts.",
    "snapshots": "List the versions of the index.",
    "verify": "Check every byte of a snapshot against its digests.",
}

_PIPELINE = {
    "backfill": "Build the index of a large corpus in waves; stop and resume at any time.",
    "batches": "List the batch jobs at an endpoint, or cancel one.",
    "build": "Bring the index up to date with the corpus and publish it.",
    "copy": "Copy a version into another store, a folder or a bucket.",
    "coverage": "Show what became of each file of the corpus, and how many words are left out.",
    "config": "Show every setting, its value and where it comes from, without secrets.",
    "export": "Copy a snapshot into a plain folder that any tool can read.",
    "forget": "Remove documents for good, from every version.",
    "gc": "Remove data that no kept version needs.",
    "init": "Write a configuration file and a small sample corpus.",
    "promote": "Point an alias, such as prod, to a version.",
    "publish": "Publish the candidate of a run that a gate refused.",
    "ledger": "Count, export or import the paid answers of language models.",
    "plan": "Show what the next build would do and cost; changes nothing.",
    "quarantine": "List quarantined rows of the corpus and prompts, with the reasons.",
    "repair": "Restore damaged files from copies, or let a build recompute them.",
    "resume": "Allow builds again after a rollback.",
    "rollback": "Make an earlier version the newest again, and put builds on hold.",
    "runs": "List the runs of the pipeline and how they ended.",
    "schedule": "Run the build on a schedule, on this machine.",
    "sign": "Sign a version, so that readers can verify who published it.",
    "store": "Check whether an object store gives the guarantees that an index needs.",
    "status": "Show how fresh the index is, for operators and monitors.",
}


class _Lazy(click.Group):
    """A group that knows the names and help lines of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({**_READER, **(_PIPELINE if _has_pipeline() else {})})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _READER:
            command: click.Command = importlib.import_module(f"indexmill.command.{cmd_name}").command
            return command
        if cmd_name in _PIPELINE:
            return _pipeline_command(cmd_name) or _absent(cmd_name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command of the first argument; the error for an unknown name suggests similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            alike = difflib.get_close_matches(args[0], sorted({**_READER, **_PIPELINE}))
            if not alike:
                raise
            raise click.UsageError(f"No such command {args[0]!r}: did you mean {' or '.join(alike)}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = {"Reading": _READER, **({"The pipeline": _PIPELINE} if _has_pipeline() else {})}
        for title, commands in listed.items():
            with formatter.section(title):
                formatter.write_dl(sorted(commands.items()))
        if _PIPELINE not in listed.values():
            formatter.write_paragraph()
            formatter.write_text(f"To build indexes: {install('prefect')}. It adds {', '.join(sorted(_PIPELINE))}.")


def _has_pipeline() -> bool:
    return importlib.util.find_spec("indexmill_pipeline") is not None


def _pipeline_command(name: str) -> click.Command | None:
    """Import one of the pipeline's commands; None without the pipeline."""
    if not _has_pipeline():
        return None
    importlib.import_module("indexmill_pipeline")  # finds the flows
    command: click.Command = importlib.import_module(f"flows.command.{name}").command
    return command


def _absent(name: str) -> click.Command:
    @click.command(name, context_settings={"ignore_unknown_options": True}, help=_PIPELINE[name])
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def absent(arguments: tuple[str, ...]) -> None:
        raise ConfigurationError(
            f"indexmill {name}: this command belongs to the pipeline, which is not installed: {install('prefect')}"
        )

    return absent


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="indexmill", prog_name="indexmill")
@shared_options
def cli() -> None:
    """Versioned graph-RAG indexes of a growing corpus: built every night, published atomically, opened read-only."""


def run() -> NoReturn:
    """Run the ``indexmill`` command and end the process with its exit code.

    After the exit handlers the process ends without tearing down its modules, which would take a second after a build.
    """
    code = 1

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)  # registered first, so called last
    if os.getpid() == 1:  # in a container: the kernel ignores signals without a handler
        signal.signal(signal.SIGTERM, _interrupt)
    code = main()
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; an expected error is printed as one line on standard error."""
    options = Options()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals without UTF-8
    if (problem := configure()) is not None:
        _tell(f"warning: {problem}", trace=False)
    try:
        done = cli.main(
            args=None if argv is None else list(argv), prog_name="indexmill", standalone_mode=False, obj=options
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except IndexmillError as error:
        _tell(f"error: {error}", options.debug)
        return error.exit_code
    except ModuleNotFoundError as error:
        _tell(f"error: the package {error.name!r} is not installed: {install(error.name or '')}", options.debug)
        return 2
    except Exception as error:
        if (disk_full := DiskFull.of_any(error, temporary_folder())) is not None:
            _tell(f"error: {disk_full}", options.debug)
            return disk_full.exit_code
        _tell(f"error: {type(error).__name__}: {error} (a fault of the program: report these lines)", trace=True)
        return 1
    return done if isinstance(done, int) else 0


def _tell(message: str, trace: bool) -> None:
    """Print an error or a warning, with secrets redacted; with `trace`, print the traceback first."""
    from indexmill.models.secrets import redacted
    from indexmill.text.durations import stamp, stamps_wanted
    from indexmill.text.terminal import style_of

    style, before = style_of(sys.stderr), f"{stamp()} " if stamps_wanted() else ""
    for text in (traceback.format_exc() if trace else "", message):
        if text:
            line = printable(redacted(text.rstrip("\n")))
            for word, marked in (("error:", style.error), ("warning:", style.warning)):
                if line.startswith(word):
                    line = marked(word) + line.removeprefix(word)
            click.echo(before + line, err=True, color=style.colours)
