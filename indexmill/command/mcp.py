"""``indexmill mcp``: serve an index as tools for an assistant, over standard input and output."""

from __future__ import annotations

import click

from indexmill.command.options import Options, as_option, common, kept_option, together, trust_option
from indexmill.command.versions import selection
from indexmill.errors import BadInput
from indexmill.extras import not_installed
from indexmill.serve.served_index import IndexChoice, open_index

served_index = together(
    click.argument("place", metavar="[STORE]", required=False),
    kept_option(
        "--snapshot", "version", metavar="VERSION", help="Serve this version and never switch: a number, or an alias."
    ),
    kept_option("--alias", metavar="NAME", help="Serve the version that this alias points to, and follow it."),
    kept_option("--manifest", metavar="DIGEST", help="Serve only the version whose manifest has this SHA-256."),
    click.option(
        "--poll",
        metavar="S",
        type=click.FloatRange(min=0.1),
        default=30.0,
        show_default=True,
        help="Check for another version every S seconds.",
    ),
    click.option(
        "--processes",
        metavar="N",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Answer large batches with N helper processes.",
    ),
    trust_option,
    click.option("--demand-rights", is_flag=True, help="Reject versions without access control."),
)
"""Adds the argument STORE, and the options that choose the version; see ``wanted_of``."""


def wanted_of(
    options: Options, place: str | None, poll: float, processes: int, demand_rights: bool, **more: object
) -> IndexChoice:
    """Return the index to serve, as the options and ``place``, the argument STORE, choose it. Raises BadInput."""
    if place is not None:
        if options.store not in (None, place):
            raise BadInput(f"STORE is {place} and --store is {options.store}; give one of them")
        options.store = place
    if options.version is not None and options.alias is not None:
        raise BadInput("--snapshot and --alias are both given; expected at most one of them")
    number, alias = selection(options.version)
    path, trust = options.store_path(), options.trust
    if alias is not None:  # --snapshot prod: pin the version that it points to now
        from indexmill.store.reader import StoreReader

        number = StoreReader(path).resolve(alias=alias).version
    return IndexChoice(
        path,
        number,
        options.alias,
        options.manifest,
        poll=poll,
        processes=processes,
        trust=trust,
        encoder=options.encoder(),
        demand_rights=demand_rights,
        **more,  # type: ignore[arg-type]
    )


@click.command("mcp")
@served_index
@as_option("Read as a member of this group; documents it may not read are excluded. May be repeated.")
@common
def command(options: Options, place: str | None, poll: float, processes: int, demand_rights: bool) -> None:
    """Serve the index of STORE to an assistant, by the Model Context Protocol over standard input and output.

    The tools are search, read_document and list_versions. Configuration of an assistant that starts its servers itself:

        {"mcpServers": {"corpus": {"command": "indexmill", "args": ["mcp", "/srv/index"]}}}

    Without --snapshot, it follows the newest version or --alias. `indexmill serve` offers the same tools over HTTP at
    /mcp.
    """
    try:
        import anyio

        from indexmill.mcp.tools import make_server
    except ImportError as error:
        raise not_installed("indexmill mcp", "mcp", error) from error
    from indexmill.serve.callers import Caller
    from indexmill.serve.engine import Engine
    from indexmill.serve.limits import ServerLimits
    from indexmill.serve.logs import log_to_standard_error

    caller = Caller("stdio", options.principals or None)
    choice = wanted_of(options, place, poll, processes, demand_rights)
    index = open_index(choice)
    log_to_standard_error()
    engine = Engine(index, choice, ServerLimits())
    try:
        anyio.run(make_server(engine, caller).run_stdio_async)
    finally:
        engine.close()
