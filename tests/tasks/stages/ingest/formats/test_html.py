"""Web pages: documentation is read whole, articles without what surrounds them."""

from __future__ import annotations

import io

import pytest

from tasks.stages.ingest.formats import html
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError

PARAGRAPHS = [
    f"The {ordinal} keeper of the lighthouse wrote into the book of the harbour what the winter had cost the town."
    for ordinal in ("first", "second", "third", "fourth", "fifth", "sixth")
]


def extract(page: str, text_bytes: int = 10_000_000) -> Extracted:
    return html.extract(io.BytesIO(page.encode()), ExtractionLimits(text_bytes))


def body(inner: str, head: str = "") -> str:
    return extract(f"<html><head>{head}</head><body>{inner}</body></html>").text


def test_headings_lists_tables_and_code_are_those_of_the_page() -> None:
    page = (
        "<main><h1>Install</h1><p>Run <code>make</code>.</p><h2>Options</h2><ul><li>one<ul><li>inner</li></ul></li>"
        "<li><p>two:</p><pre>$ make two\n</pre></li></ul><table><tr><th>day</th><th>hours</th></tr>"
        "<tr><td>Mon</td><td><ul><li>10 to 20</li></ul></td></tr></table><dl><dt>Raises</dt><dd>Error</dd></dl></main>"
    )
    assert body(page) == (
        "# Install\n\nRun `make`.\n\n## Options\n\n- one\n  - inner\n- two:\n\n```\n$ make two\n```\n\n"
        "| day | hours |\n| --- | --- |\n| Mon | 10 to 20 |\n\nRaises\n\nError"
    )


@pytest.mark.parametrize(
    "excluded",
    [
        "<nav>Home</nav>",
        "<header><h1>Site</h1></header>",
        "<footer>Imprint</footer>",
        '<div role="navigation">Quick search</div>',
        "<div hidden>later</div>",
        '<div style="color: red; Display : none">later</div>',
        '<p style="visibility:hidden">later</p>',
        '<span aria-hidden="true">x</span>',
        "<script>var a;</script><style>p {}</style><template><p>t</p></template>",
        "<!-- a comment -->",
        "<button>Copy</button><select><option>1.0</option></select>",
        "<svg><title>Icon</title></svg>",
    ],
)
def test_what_surrounds_the_content_or_is_not_shown_is_left_out(excluded: str) -> None:
    assert body(f"{excluded}<p>Text.</p>") == "Text."
    assert body(f"<p>Text.</p>{excluded}behind") == "Text.\n\nbehind"


def test_the_header_of_an_article_and_what_is_only_named_like_a_sidebar_are_content() -> None:
    page = (
        "<main><header><h1>Title</h1></header><div class='sidebar'>Sidebars</div>"
        "<section id='comments'>Comments</section><aside>A note.</aside><footer>Since 2.0</footer></main>"
    )
    assert body(page) == "# Title\n\nSidebars\n\nComments\n\nA note.\n\nSince 2.0"


def test_headers_of_sections_and_title_blocks_are_content() -> None:
    page = (
        '<header id="title-block-header"><h1>Vell</h1><p class="author">Ada</p></header>'
        "<section><header><h2>Install</h2></header><p>Run it.</p></section>"
        "<blockquote><p>Said.</p><footer>Goran</footer></blockquote>"
    )
    assert body(page) == "# Vell\n\nAda\n\n## Install\n\nRun it.\n\nSaid.\n\nGoran"


def test_tables_that_arrange_a_page_are_written_as_blocks_and_hidden_tabs_are_read() -> None:
    page = "<table><tr><td><h1>Old</h1><ul><li>a</li><li>b</li></ul></td><td>Side</td></tr></table>"
    assert body(page) == "# Old\n\n- a\n- b\n\nSide"
    assert body('<table role="presentation"><tr><td>a</td><td>b</td></tr></table>') == "a\n\nb"
    assert body('<div role="tabpanel" hidden>conda install vell</div><p>Text.</p>') == "conda install vell\n\nText."


def test_an_article_that_loses_most_of_its_page_is_read_whole() -> None:
    remark = "<div class='comments-api'><p>Remark {} of the keeper of the station.</p></div>"
    lines = "".join(map(remark.format, range(30)))
    page = f"<article><h1>Vell</h1><p>The interface returns remarks of the keepers in order.</p>{lines}</article>"
    read = body(page, "<meta property='og:type' content='article'>")
    assert read.count("Remark") == 30


def test_permalinks_are_left_out_and_a_button_in_a_heading_is_its_text() -> None:
    page = (
        "<h1>Module frob<a class='headerlink' href='#frob'>¶</a></h1><h2><a href='#a'>#</a> Use</h2>"
        "<h3><button>Refunds</button></h3><h4>Item <button>Copy</button></h4><p>See <a href='#b'>below</a>.</p>"
    )
    assert body(page) == "# Module frob\n\n## Use\n\n### Refunds\n\n#### Item\n\nSee below."


def test_the_main_element_is_the_content_if_it_has_most_of_the_words() -> None:
    main = "<main><h2>Ownership</h2><p>A set of rules that govern a program.</p></main>"
    page = f"<h1>The book</h1><p>Press ? for help.</p>{main}"
    assert body(page) == "## Ownership\n\nA set of rules that govern a program."
    assert extract(f"<title>Ownership - The book</title>{page}").title == "Ownership - The book"
    assert body(f"{page}<p>{PARAGRAPHS[0]}</p>").startswith("# The book")


@pytest.mark.parametrize(
    ("head", "headings", "title"),
    [
        ("<title>Frob - Project 1.0</title>", "<h1>Frob<a href='#x'>¶</a></h1>", "Frob"),
        ("<title>Page</title>", "<h1>Frob</h1>", "Frob"),
        ("<title>Frob - Project</title>", "<h1>Project Logo</h1><h1>Frob</h1>", "Frob"),
        ("<title>All of it</title>", "<h1>One</h1><h1>Two</h1>", "All of it"),
        ("<title> All\n of it </title>", "<h2>One</h2>", "All of it"),
        ("", "<h2>One</h2>", ""),
        ("", "<h1>class<div>frob.<b>Run</b>ner</div></h1>", "class frob.Runner"),
    ],
)
def test_the_title_is_the_heading_of_the_page_without_the_sites_name(head: str, headings: str, title: str) -> None:
    assert extract(f"<html><head>{head}</head><body>{headings}<p>Text</p></body></html>").title == title


TEASERS = "".join(
    f"<div class='teaser'><h3>Teaser {n}</h3><p>Read on about item number {n}.</p></div>" for n in range(5)
)
ARTICLE = "<article>" + "".join(f"<p>{text}</p>" for text in PARAGRAPHS) + "</article>"


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        '<meta property="og:type" content="article">',
        '<meta property="article:published_time" content="2020-01-02">',
        '<meta name="generator" content="WordPress 6.1">',
        '<script type="application/ld+json">{"@graph": [{"@type": ["Thing", "NewsArticle"]}]}</script>',
        '<meta property="og:title" content="Keepers">',
    ],
)
def test_an_article_is_read_without_teasers(head: str) -> None:
    text = body(f"<div><h1>The keepers</h1>{ARTICLE}<div class='related'>{TEASERS}</div></div>", head)
    assert all(paragraph in text for paragraph in PARAGRAPHS)
    assert "Teaser" not in text


@pytest.mark.slow
def test_an_article_whose_headings_or_lists_would_be_lost_is_read_whole() -> None:
    items = "".join(f"<li><h4>Step {n}</h4></li>" for n in range(9))
    page = ARTICLE.replace("</p><p>The third", f"</p><div class='widget-menu'><ul>{items}</ul></div><p>The third")
    text = body(f"{page}{TEASERS}", '<meta property="og:title" content="Keepers">')
    assert "Step 8" in text
    assert "Teaser 4" in text


@pytest.mark.parametrize("data", ["{", '{"@type": 1}', "[" * 100_000, '"Article"', '{"@graph": {"@graph": []}}'])
def test_metadata_that_are_not_an_articles_say_nothing(data: str) -> None:
    assert body("<p>Text.</p>", f'<script type="application/ld+json">{data}</script>') == "Text."


def test_a_fragment_and_a_page_that_no_parser_likes_are_read() -> None:
    assert body("<p>One</b></div><td>Two") == "One\n\nTwo"
    assert extract("Just this.").text == "Just this."


def test_a_page_over_a_limit_is_refused() -> None:
    with pytest.raises(UnreadableError, match="the file has more than 65,836 bytes"):
        extract("x" * 66_000, text_bytes=100)
    with pytest.raises(UnreadableError, match=r"its text is over 1,000 bytes"):
        extract(f"<p>{'x' * 2_000}</p>", text_bytes=1_000)
