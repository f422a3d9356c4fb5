"""``indexmill explore``: draw the neighbourhood of an entity, a community or a question as a page."""

from __future__ import annotations

from pathlib import Path

import click

from indexmill.command.options import Options, as_option, common, kept_argument, kept_option
from indexmill.command.retrieval import principals_of, warn_of_hidden_documents
from indexmill.text.counted import byte_size, counted
from indexmill.text.printable import one_line

_DEFAULT_NODES = 300
_MOST_NODES = 2_000


@click.command("explore")
@kept_argument("version", metavar="[VERSION]", required=False)
@kept_option("--alias", metavar="NAME", help="Explore the version that this alias points to.")
@click.option("--entity", metavar="NAME", help="Start from this entity: its name in any spelling, or its id.")
@click.option("--community", metavar="ID", help="Start from this community.")
@click.option("--question", metavar="TEXT", help="Start from the hits for this question, and show the path to them.")
@click.option("--method", "-m", metavar="NAME", help="Retrieve by this method; by default the best in the snapshot.")
@click.option(
    "--nodes",
    metavar="N",
    type=click.IntRange(1, _MOST_NODES),
    default=_DEFAULT_NODES,
    show_default=True,
    help="Maximum number of nodes.",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    default="explore.html",
    show_default=True,
    help="Write the page here; - prints it.",
)
@as_option("Read as a member of this group; documents it may not read are excluded. May be repeated.")
@kept_option("--unrestricted", is_flag=True, help="Read all documents, regardless of access rights.")
@common
def command(
    options: Options,
    entity: str | None,
    community: str | None,
    question: str | None,
    method: str | None,
    nodes: int,
    output: str,
) -> None:
    """Write a page that shows a part of the index as a graph.

    VERSION is a number, an alias or `newest`.

    The page shows entities, passages and communities around an entity, a community or a question; by default around the
    most connected entities. For a question it also shows the path of the retrieval: the entities in the question, the
    sentences that led from one entity to another, and the passages found with their scores. It is one file that needs
    no network: open it in a browser, or pass it on. It contains texts of documents; with --as, only those that the
    group may read. The command does not overwrite a file unless it is a page of this command.

    With --json, the graph is printed and no page is written.
    """
    from indexmill.explore.neighbourhood import neighbourhood

    principals = principals_of(options)
    with options.open_snapshot() as snapshot:
        subgraph = neighbourhood(
            snapshot,
            entity=entity,
            community=community,
            question=question,
            method=method,
            nodes=nodes,
            principals=principals,
        )
        warn_of_hidden_documents(snapshot, principals)
    if options.json:
        options.print_json(subgraph.to_dict())
        return
    from indexmill.explore.explorer_page import GENERATOR, page_of
    from indexmill.store.pages import write_page

    html = page_of(subgraph).html
    if output == "-":
        click.echo(html, nl=False)
        return
    write_page(Path(output), html.decode("utf-8"), GENERATOR)
    size = f"{counted(len(subgraph.nodes), 'node')}, {counted(len(subgraph.edges), 'link')}, {byte_size(len(html))}"
    click.echo(f"{one_line(output)}: {size}")
