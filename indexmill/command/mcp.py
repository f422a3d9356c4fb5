"""``indexmill mcp``: an index as tools for an assistant, over standard input and output."""

from __future__ import annotations

import click

from indexmill.command.options import Options, as_option, common, kept_option, together, trust_option
from indexmill.command.versions import selection
from indexmill.errors import BadInput
from indexmill.extras import not_installed
from indexmill.serve.index import Wanted, open_index

served_index = together(
    click.argument("place", metavar="[STORE]", required=False),
    kept_option(
        "--snapshot", "version", metavar="VERSION", help="Serve this version, and stay at it: a number, or an alias."
    ),
    kept_option("--alias", metavar="NAME", help="Serve the version that this alias points to, as it moves."),
    kept_option("--manifest", metavar="DIGEST", help="Serve nothing but the version whose manifest has this SHA-256."),
    click.option(
        "--poll",
        metavar="S",
        type=click.FloatRange(min=0.1),
        default=30.0,
        show_default=True,
        help="Look for another version every S seconds.",
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
    click.option(
        "--demand-rights", is_flag=True, help="Serve no version that does not say who may read its documents."
    ),
)
"""Adds STORE, and the options that choose the version, for ``wanted_of``."""


def wanted_of(
    options: Options, place: str | None, poll: float, processes: int, demand_rights: bool, **more: object
) -> Wanted:
    """Which index to serve."""
    if place is not None:
        if options.store not in (None, place):
            raise BadInput(f"STORE is {place} and --store is {options.store}; give one of them")
        options.store = place
    if options.version is not None and options.alias is not None:
        raise BadInput("--snapshot and --alias are given; expected one of them at most")
    number, alias = selection(options.version)
    path, trust = options.store_path(), options.trust
    if alias is not None:  # --snapshot prod: the version that it points to now
        from indexmill.store.reader import StoreReader

        number = StoreReader(path).resolve(alias=alias).version
    return Wanted(
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
@as_option("Read as a member of this group, where documents say who may read them; may be repeated.")
@common
def command(options: Options, place: str | None, poll: float, processes: int, demand_rights: bool) -> None:
    """Serve the index of STORE to an assistant, by the Model Context Protocol over standard input and output.

    The tools are search, read_document and list_versions. For an assistant that starts its servers itself:

        {"mcpServers": {"corpus": {"command": "indexmill", "args": ["mcp", "/srv/index"]}}}

    Without --snapshot, the newest version is served, or what --alias points to, as that moves. Over HTTP the same tools
    are at /mcp of `indexmill serve`.
    """
    try:
        import anyio

        from indexmill.mcp.tools import make_server
    except ImportError as error:
        raise not_installed("indexmill mcp", "mcp", error) from error
    from indexmill.serve.callers import Caller
    from indexmill.serve.engine import Engine
    from indexmill.serve.limits import Limits
    from indexmill.serve.logs import log_to_standard_error

    caller = Caller("stdio", options.principals or None)
    wanted = wanted_of(options, place, poll, processes, demand_rights)
    index = open_index(wanted)
    log_to_standard_error()
    engine = Engine(index, wanted, Limits())
    try:
        anyio.run(make_server(engine, caller).run_stdio_async)
    finally:
        engine.close()
