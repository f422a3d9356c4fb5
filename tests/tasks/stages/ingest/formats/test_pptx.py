"""A presentation's slides in reading order, with the boxes of their shapes, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import pptx as made_by
import pytest
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tasks.stages.ingest.formats.extraction import ExtractionLimits
from tests.tasks.stages.ingest.formats.office_files import (
    LAUGHS,
    chart,
    core,
    docx,
    extracted,
    pptx,
    refused,
    series,
    shape,
)

TITLE = '<p:ph type="title"/>'
BODY = '<p:ph idx="1"/>'


def _text(*slides: str, **parts: Any) -> str:
    return extracted("pptx", pptx(slides, **parts)).text


def _point(text: str, properties: str = "", level: int = 0) -> str:
    return f'<a:p><a:pPr lvl="{level}">{properties}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>'


def test_each_slide_is_a_section_named_by_its_title_or_its_number() -> None:
    slides = (shape("text", place=(0, 0, 9, 9)) + shape("The title", held=TITLE), shape("only text"))
    assert _text(*slides) == "## The title\n\ntext\n\n## Slide 2\n\nonly text"


def test_shapes_are_read_by_rows_from_the_top_and_from_the_left() -> None:
    shapes = (
        shape("right", place=(400, 102, 100, 50))
        + shape("bottom", place=(0, 400, 100, 50))
        + shape("left", place=(10, 105, 100, 50))
        + shape("top", place=(300, 10, 100, 50))
    )
    assert _text(shapes) == "## Slide 1\n\ntop\n\nleft\n\nright\n\nbottom"


def test_boxes_of_one_row_are_read_from_the_left_wherever_it_lies_and_lines_below_each_other_are_not_a_row() -> None:
    tops = {"a": 107.6, "b": 108.4, "c": 107.2, "d": 108.0}
    row = "".join(shape(text, place=(100 * n, top, 80, 40)) for n, (text, top) in enumerate(tops.items()))
    lines = shape("second", place=(10, 320, 80, 14)) + shape("first", place=(50, 304, 80, 14))
    assert _text(lines + row).split("\n\n")[1:] == ["a", "b", "c", "d", "first", "second"]


def test_locations_are_slides_with_the_boxes_of_shapes_in_points() -> None:
    layout = shape("", held='<p:ph type="title"/>', place=(36, 20, 648, 60))
    slide = shape("Title", held=TITLE) + shape("a", place=(10, 200, 100, 50)) + shape("b", place=(10, 300, 20, 30))
    found = extracted("pptx", pptx([slide, shape("c")], layout=layout))
    assert [(one.page, one.box, found.text[one.start :].split("\n")[0]) for one in found.locations] == [
        (1, (36.0, 20.0, 684.0, 80.0), "## Title"),
        (1, (10.0, 200.0, 110.0, 250.0), "a"),
        (1, (10.0, 300.0, 30.0, 330.0), "b"),
        (2, None, "## Slide 2"),
    ]
    assert found.metadata["pages"] == 2


def test_shapes_in_groups_lie_where_the_group_puts_them() -> None:
    place = '<a:off x="1270000" y="2540000"/><a:ext cx="1270000" cy="1270000"/>'
    inner = '<a:chOff x="0" y="0"/><a:chExt cx="2540000" cy="2540000"/>'
    held = shape("in", place=(100, 100, 50, 50))
    group = f"<p:grpSp><p:grpSpPr><a:xfrm>{place}{inner}</a:xfrm></p:grpSpPr>{held}</p:grpSp>"
    found = extracted("pptx", pptx([group]))
    assert found.locations[-1].box == (150.0, 250.0, 175.0, 275.0)


def test_bullets_are_those_of_the_paragraph_the_layout_or_the_master() -> None:
    levels = "<a:lvl1pPr><a:buChar char='•'/></a:lvl1pPr><a:lvl2pPr><a:buNone/></a:lvl2pPr>"
    master = f"<p:txStyles><p:bodyStyle>{levels}</p:bodyStyle></p:txStyles>"
    points = _point("a") + _point("b", "<a:buNone/>") + _point("c", "", 1) + _point("d", "<a:buChar char='-'/>", 1)
    assert _text(shape(points, held=BODY), master=master) == "## Slide 1\n\n- a\n\nb\n\nc\n\n- d"
    assert _text(shape(points), master=master) == "## Slide 1\n\na\n\nb\n\nc\n\n- d"


def test_numbered_points_count_by_level() -> None:
    number = '<a:buAutoNum type="arabicPeriod"/>'
    letter = '<a:buAutoNum type="alphaLcParenR"/>'
    points = [_point("a", number), _point("b", letter, 1), _point("c", letter, 1), _point("d", number)]
    points += [_point("e", letter, 1), _point("f", '<a:buAutoNum type="arabicPeriod" startAt="9"/>', 2)]
    assert _text(shape("".join(points))) == ("## Slide 1\n\n1. a\n   - a. b\n   - b. c\n2. d\n   - a. e\n     9. f")


def test_notes_follow_their_slide() -> None:
    found = extracted("pptx", pptx([shape("a", place=(1, 1, 1, 1)), shape("b")], notes={1: "Say *this*."}))
    assert found.text == "## Slide 1\n\na\n\nNotes:\n\nSay \\*this\\*.\n\n## Slide 2\n\nb"
    assert [(one.page, one.box is None) for one in found.locations] == [(1, True), (1, False), (1, True), (2, True)]


def test_hidden_slides_dates_footers_and_numbers_are_left_out_and_count_as_pages() -> None:
    held = "".join(shape("no", held=f'<p:ph type="{kind}"/>') for kind in ("dt", "ftr", "sldNum"))
    hidden = shape("gone", about='hidden="1"')
    found = extracted("pptx", pptx([shape("no"), shape("yes") + held + hidden], attributes={1: 'show="0"'}))
    assert (found.text, found.locations[0].page) == ("## Slide 2\n\nyes", 2)


def test_tables_have_their_merged_cells() -> None:
    def cell(text: str, about: str = "") -> str:
        return f"<a:tc {about}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"

    rows = (
        cell("Wide", 'gridSpan="2"') + cell("", 'hMerge="1"') + cell("x|y"),
        cell("Deep", 'rowSpan="2"') + cell("1") + cell("2"),
        cell("", 'vMerge="1"') + cell("3") + cell("4"),
    )
    table = "<a:tbl>" + "".join(f"<a:tr>{row}</a:tr>" for row in rows) + "</a:tbl>"
    held = f"<a:graphic><a:graphicData>{table}</a:graphicData></a:graphic>"
    frame = f"<p:graphicFrame><p:nvGraphicFramePr/>{held}</p:graphicFrame>"
    assert _text(frame) == (
        "## Slide 1\n\n| Wide |  | x\\|y |\n| --- | --- | --- |\n| Deep | 1 | 2 |\n| Deep | 3 | 4 |"
    )


def test_diagrams_links_line_breaks_and_pictures_are_read() -> None:
    points = "".join(
        f'<dgm:pt type="{kind}"><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>'
        for kind, text in (("doc", "no"), ("node", "Plan"), ("node", "Do"), ("pres", "no"))
    )
    spaces = (
        'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    )
    data = f"<dgm:dataModel {spaces}><dgm:ptLst>{points}</dgm:ptLst></dgm:dataModel>"
    diagram = '<a:graphic><a:graphicData><dgm:relIds r:dm="d"/></a:graphicData></a:graphic>'
    run = '<a:r><a:rPr><a:hlinkClick r:id="h"/></a:rPr><a:t>linked</a:t></a:r>'
    text = f"<a:p>{run}<a:br/><a:r><a:t>next</a:t></a:r></a:p>"
    picture = "<p:pic><p:nvPicPr><p:cNvPr descr='A *map*'/></p:nvPicPr></p:pic>"
    links = {"d": ("diagramData", "../diagrams/data1.xml"), "h": ("hyperlink", "https://example.org/")}
    slide = f"<p:graphicFrame>{diagram}</p:graphicFrame>{shape(text)}{picture}"
    assert _text(slide, links=links, more={"ppt/diagrams/data1.xml": data}) == (
        "## Slide 1\n\n- Plan\n- Do\n\n[linked](https://example.org/)\nnext\n\n![A \\*map\\*]()"
    )


def test_symbols_formulas_and_descriptions_of_shapes_and_groups_are_read_and_the_rest_is_counted() -> None:
    def run(text: str, font: str) -> str:
        return f"<a:r><a:rPr>{font}</a:rPr><a:t>{text}</a:t></a:r>"

    formula = "<m:f><m:num><m:r><m:t>a</m:t></m:r></m:num><m:den><m:r><m:t>b</m:t></m:r></m:den></m:f>"
    text = (
        "<a:p>"
        + run("a", '<a:latin typeface="Symbol"/>')
        + run("a \uf0e0", '<a:latin typeface="Arial"/><a:sym typeface="Wingdings"/>')
        + f"<mc:AlternateContent><mc:Choice><m:oMath>{formula}</m:oMath></mc:Choice></mc:AlternateContent></a:p>"
    )
    group = "<p:grpSp><p:nvGrpSpPr><p:cNvPr descr='Two boats'/></p:nvGrpSpPr></p:grpSp>"
    icon = "<p:sp><p:nvSpPr><p:cNvPr descr='An anchor'/></p:nvSpPr></p:sp>"
    picture = "<p:pic><p:nvPicPr><p:cNvPr descr='Picture 3'/></p:nvPicPr></p:pic>"
    plotted = '<a:graphic><a:graphicData><c:chart r:id="c"/></a:graphicData></a:graphic>'
    embedded = '<a:graphic><a:graphicData><p:oleObj r:id="o"/></a:graphicData></a:graphic>'
    frames = "".join(f"<p:graphicFrame>{inner}</p:graphicFrame>" for inner in (plotted, embedded))
    wide = {"ppt/charts/chart1.xml": chart(series("Depth", [f"w{n}" for n in range(201)], ["1"]))}
    slides = [shape(text) + group + icon + picture + frames, shape("no")]
    links = {"c": ("chart", "../charts/chart1.xml")}
    found = extracted("pptx", pptx(slides, links=links, more=wide, attributes={2: 'show="0"'}))
    assert found.text == "## Slide 1\n\nαa →a/b\n\n![Two boats]()\n\n![An anchor]()\n\nDepth"
    assert found.metadata["unread"] == {"charts": 1, "hidden_slides": 1, "objects": 1, "pictures": 1}


def test_what_python_pptx_writes_is_read_with_charts() -> None:
    made = made_by.Presentation()
    first = made.slides.add_slide(made.slide_layouts[0])
    first.shapes.title.text = "Quarterly"
    first.placeholders[1].text = "for everyone"
    second = made.slides.add_slide(made.slide_layouts[1])
    second.shapes.title.text = "Points"
    second.placeholders[1].text = "one"
    second.placeholders[1].text_frame.add_paragraph().text = "two"
    second.placeholders[1].text_frame.paragraphs[1].level = 1
    second.notes_slide.notes_text_frame.text = "Remember"
    third = made.slides.add_slide(made.slide_layouts[5])
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("2024", (1.1, 0.30000000000000004))
    third.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(1), Inches(2), Inches(4), Inches(3), data)
    held = io.BytesIO()
    made.save(held)
    found = extracted("pptx", held.getvalue())
    assert found.text == (
        "## Quarterly\n\nfor everyone\n\n## Points\n\n- one\n  - two\n\nNotes:\n\nRemember\n\n## Slide 3\n\n"
        "|  | 2024 |\n| --- | --- |\n| North | 1.1 |\n| South | 0.3 |"
    )
    assert found.title == "Quarterly"
    assert found.locations[-1].box == (72.0, 144.0, 360.0, 360.0)


def test_the_title_is_that_of_the_properties_unless_a_program_wrote_it() -> None:
    slides = [shape("Seen", held='<p:ph type="ctrTitle"/>')]
    assert extracted("pptx", pptx(slides, properties=core(dc_title="Given"))).title == "Given"
    assert extracted("pptx", pptx(slides, properties=core(dc_title="PowerPoint Presentation"))).title == "Seen"


def test_the_same_bytes_give_the_same_text() -> None:
    data = pptx([shape("a", place=(1, 2, 3, 4)) + shape("b", place=(1, 2, 3, 4))], notes={1: "c"})
    assert extracted("pptx", data) == extracted("pptx", bytes(data))


# What is refused.


def test_slides_without_words_have_no_text() -> None:
    assert refused("pptx", pptx([shape(" ")])).reason == "no-text"
    assert refused("pptx", pptx([])).reason == "no-text"


def test_another_kind_of_file_is_told() -> None:
    assert "expected <p:presentation>" in str(refused("pptx", docx("<w:p/>")))


@pytest.mark.parametrize(
    "part",
    ["ppt/presentation.xml", "ppt/slides/slide1.xml", "ppt/slideLayouts/layout.xml", "ppt/slideMasters/master.xml"],
)
def test_entities_are_hostile_in_any_part_that_is_read(part: str) -> None:
    assert refused("pptx", pptx([shape("a")], more={part: LAUGHS + "<x>&k;</x>"})).reason == "hostile-file"


def test_limits_of_slides_and_text_are_kept() -> None:
    assert refused("pptx", pptx([shape("a")] * 6), ExtractionLimits(pages=5)).reason == "too-large"
    assert refused("pptx", pptx([shape("word " * 500)]), ExtractionLimits(text_bytes=1_000)).reason == "too-large"


def test_a_slide_that_is_listed_again_is_read_once_and_layouts_in_a_circle_end() -> None:
    again = (
        '<p:presentation xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><p:sldIdLst>'
        + '<p:sldId r:id="s1"/>' * 50
        + "</p:sldIdLst></p:presentation>"
    )
    assert _text(shape("a"), more={"ppt/presentation.xml": again}) == "## Slide 1\n\na"
    circle = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="m" Type="x/slideMaster" Target="layout.xml"/></Relationships>'
    )
    assert _text(shape("a"), more={"ppt/slideLayouts/_rels/layout.xml.rels": circle}) == "## Slide 1\n\na"


def test_groups_within_groups_are_bounded_and_their_numbers_too() -> None:
    place = '<a:off x="1" y="1"/><a:ext cx="999999999999" cy="999999999999"/>'
    transform = f"<p:grpSpPr><a:xfrm>{place}<a:chOff x='0' y='0'/><a:chExt cx='1' cy='1'/></a:xfrm></p:grpSpPr>"
    deep = f"<p:grpSp>{transform}" * 150 + shape("in", place=(1, 1, 9, 9)) + "</p:grpSp>" * 150
    found = extracted("pptx", pptx([deep]))
    box = found.locations[-1].box
    assert found.text.endswith("in")
    assert box is not None
    assert all(abs(one) <= 1e6 for one in box)
    assert refused("pptx", pptx(["<p:grpSp>" * 100_000 + "</p:grpSp>" * 100_000])).reason == "hostile-file"


def test_macros_and_outside_parts_are_never_opened() -> None:
    links = {"h": ("hyperlink", "http://127.0.0.1:9/x"), "c": ("chart", "../../../../../etc/passwd")}
    frame = '<p:graphicFrame><a:graphic><a:graphicData><c:chart r:id="c"/></a:graphicData></a:graphic></p:graphicFrame>'
    assert _text(frame + shape("safe"), links=links, more={"ppt/vbaProject.bin": b"macro"}) == "## Slide 1\n\nsafe"
