"""Charts and diagrams of Office files."""

from __future__ import annotations

import time

from tasks.stages.ingest.formats.drawingml import Graphic
from tests.tasks.stages.ingest.formats.office_files import (
    MORE,
    A,
    chart,
    docx,
    extracted,
    paragraph,
    relationships,
    series,
)


def _text(part: str, element: str = "c:chart", **more: str) -> str:
    drawing = f'<w:p><w:r><w:drawing><{element} r:id="c"/></w:drawing></w:r></w:p>'
    related = {"c": ("chart", "charts/chart1.xml")}
    return extracted(
        "docx", docx(paragraph("a") + drawing, related=related, more={"word/charts/chart1.xml": part, **more})
    ).text[3:]


def test_a_chart_has_its_title_the_texts_in_it_and_its_values_as_their_formats_show_them() -> None:
    axis = "<c:valAx><c:title><a:p><a:r><a:t>Metres</a:t></a:r></a:p></c:title></c:valAx>"
    part = chart(
        series("Depth", ["2024", "007"], ["1.5", "0.1"], '0.0" m"') + series("Share", [], ["0.25"], "0%"), "Sea"
    )
    part = part.replace("</c:plotArea>", f"{axis}</c:plotArea>")
    drawn = {
        "word/charts/_rels/chart1.xml.rels": relationships({"u": ("chartUserShapes", "shapes.xml")}),
        "word/charts/shapes.xml": f"<x {A}><a:p><a:r><a:t>here</a:t></a:r></a:p></x>",
    }
    assert _text(part, **drawn) == (
        "Sea\n\nMetres\n\nhere\n\n|  | Depth | Share |\n| --- | --- | --- |\n| 2024 | 1.5 m | 25% |\n| 007 | 0.1 m |  |"
    )


def test_categories_of_several_levels_and_dates_are_read_and_titles_may_come_from_cells() -> None:
    def level(*points: tuple[int, str]) -> str:
        return "<c:lvl>" + "".join(f'<c:pt idx="{n}"><c:v>{text}</c:v></c:pt>' for n, text in points) + "</c:lvl>"

    levels = level((0, "May"), (1, "June")) + level((0, "2024"))
    of_levels = f"<c:cat><c:multiLvlStrRef><c:multiLvlStrCache>{levels}</c:multiLvlStrCache></c:multiLvlStrRef></c:cat>"
    dates = (
        "<c:val><c:numRef><c:numCache><c:formatCode>d.m.yy</c:formatCode>"
        + level((0, "45351"))
        + "</c:numCache></c:numRef></c:val>"
    )
    title = "<c:title><c:tx><c:strRef><c:strCache>" + level((0, "Cell")) + "</c:strCache></c:strRef></c:tx></c:title>"
    part = chart(f"<c:ser>{of_levels}{dates}</c:ser>").replace("<c:plotArea>", f"{title}<c:plotArea>")
    assert _text(part) == "Cell\n\n| 2024 May | 2024-02-29 |\n| --- | --- |\n| June |  |"


def test_the_kinds_of_charts_that_office_2016_introduced_are_read() -> None:
    data = (
        '<cx:chartData><cx:data id="0"><cx:strDim><cx:lvl><cx:pt idx="0">Start</cx:pt></cx:lvl></cx:strDim>'
        '<cx:numDim><cx:lvl formatCode="0%"><cx:pt idx="0">0.5</cx:pt></cx:lvl></cx:numDim></cx:data></cx:chartData>'
    )
    title = "<cx:title><cx:tx><cx:rich><a:p><a:r><a:t>Flow</a:t></a:r></a:p></cx:rich></cx:tx></cx:title>"
    one = "<cx:series><cx:tx><cx:txData><cx:v>Cash</cx:v></cx:txData></cx:tx><cx:dataId val='0'/></cx:series>"
    area = f"<cx:plotArea><cx:plotAreaRegion>{one}</cx:plotAreaRegion></cx:plotArea>"
    part = f"<cx:chartSpace {A} {MORE}>{data}<cx:chart>{title}{area}</cx:chart></cx:chartSpace>"
    assert _text(part, "cx:chart") == "Flow\n\n|  | Cash |\n| --- | --- |\n| Start | 50% |"


def test_very_many_points_at_one_place_take_no_time() -> None:
    began = time.process_time()
    part = chart(series("a", [], ["7"] * 30_000).replace('idx="', 'idx="0" x="'))
    assert len(_text(part)) < 100_000
    assert time.process_time() - began < 5


def test_a_graphic_on_one_line_has_all_its_texts() -> None:
    assert (
        Graphic(["Title"], [["", "2024"], ["North", "1"]], ["one", "two"]).line() == "Title; 2024; North, 1; one; two"
    )
