"""A workbook's sheets as tables of what cells show, and what is refused."""

from __future__ import annotations

import datetime
import io
import time
import tracemalloc
from typing import Any

import openpyxl
import pytest
from openpyxl.comments import Comment

from tasks.stages.ingest.formats.extraction import ExtractionLimits
from tasks.stages.ingest.formats.number_formats import NumberFormat, number_format
from tasks.stages.ingest.formats.xlsx import _without_empty_rows
from tests.tasks.stages.ingest.formats.office_files import (
    LAUGHS,
    S,
    chart,
    core,
    docx,
    extracted,
    refused,
    relationships,
    series,
    xlsx,
)


def _text(rows: str, **parts: Any) -> str:
    return extracted("xlsx", xlsx({"A": rows}, **parts)).text.removeprefix("## A\n\n")


def _row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


def _cell(place: str, value: str, about: str = "") -> str:
    return f'<c r="{place}" {about}><v>{value}</v></c>'


def _words(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def _table(rows: int, columns: int) -> str:
    return "".join(
        _row(r, *(_words(f"{chr(64 + c)}{r}", f"{r}{c}") for c in range(1, columns + 1))) for r in range(1, rows + 1)
    )


def test_each_sheet_is_a_section_and_rows_that_stand_together_are_a_table() -> None:
    found = extracted("xlsx", xlsx({"First *one*": _table(3, 2), "Second": _table(1, 2), "Empty": ""}))
    assert found.text == (
        "## First \\*one\\*\n\n| 11 | 12 |\n| --- | --- |\n| 21 | 22 |\n| 31 | 32 |\n\n"
        "## Second\n\n| 11 | 12 |\n| --- | --- |"
    )
    assert [(one.page, found.text[one.start :].split()[1]) for one in found.locations] == [(1, "First"), (2, "Second")]
    assert found.metadata["sheets"] == 3


def test_an_empty_row_parts_tables_and_rows_of_one_cell_before_one_are_its_caption() -> None:
    rows = (
        _row(1, _words("A1", "Sales of 2024"))
        + _row(2, _words("A2", "Region"), _words("B2", "Sum"))
        + _row(3, _words("A3", "North"), _cell("B3", "7"))
        + _row(4, '<c r="A4" s="1"/>')
        + _row(6, _words("C6", "x"), _words("E6", "y"))
        + _row(7, _words("E7", "z"))
    )
    assert _text(rows) == (
        "Sales of 2024\n\n| Region | Sum |\n| --- | --- |\n| North | 7 |\n\n| x | y |\n| --- | --- |\n|  | z |"
    )


def test_a_list_in_one_column_is_a_table_of_one_column() -> None:
    assert _text("".join(_row(n, _words(f"B{n}", f"w{n}")) for n in (1, 2, 3))) == "| w1 |\n| --- |\n| w2 |\n| w3 |"


def test_texts_are_shared_inline_and_rich_without_readings() -> None:
    strings = [
        "<t>shared</t>",
        "<r><t>ri</t></r><r><rPr><b/></rPr><t>ch</t></r><rPh><t>no</t></rPh>",
        "<t>_x0041__x000D_\n|</t>",
        "<t>_xD800_x</t>",
    ]
    cells = "".join(_cell(f"{chr(65 + n)}1", str(n), 't="s"') for n in range(5))
    assert _text(_row(1, cells), strings=strings) == "| shared | rich | A \\| | x |\n| --- | --- | --- | --- |"


def test_texts_in_symbol_fonts_are_what_the_fonts_show() -> None:
    fonts = '<fonts><font/><font><name val="Wingdings"/></font></fonts><cellXfs><xf/><xf fontId="1"/></cellXfs>'
    strings = ["<t>ü</t>", '<r><t>ü</t></r><r><rPr><rFont val="Symbol"/></rPr><t>b</t></r>']
    cells = _cell("A1", "0", 't="s" s="1"') + _cell("B1", "0", 't="s"') + _cell("C1", "1", 't="s" s="1"')
    found = _text(_row(1, cells), strings=strings, more={"xl/styles.xml": f"<styleSheet {S}>{fonts}</styleSheet>"})
    assert found.startswith("| ✓ | ü | üβ |")


def test_values_are_shown_and_not_formulas() -> None:
    cells = (
        '<c r="A1"><f>SUM(B1:B9)</f><v>12.5</v></c><c r="B1"><f>NOW()</f></c><c r="C1" t="b"><v>1</v></c>'
        '<c r="D1" t="e"><v>#DIV/0!</v></c><c r="E1" t="str"><f>A1</f><v>text</v></c>'
        '<c r="F1"><v>0.30000000000000004</v></c>'
    )
    assert _text(_row(1, cells)) == "| 12.5 | TRUE | #DIV/0! | text | 0.3 |\n| --- | --- | --- | --- | --- |"


def test_dates_are_iso_by_the_format_of_the_cell() -> None:
    formats = [
        "dd/mm/yyyy",
        "[$-409]h:mm AM/PM",
        'yyyy"-"mm hh:mm:ss',
        "[h]:mm",
        "0.0%",
        "00000",
        '"d" 0',
        "[Red]General",
    ]
    values = ["45351", "0.75", "45351.5", "1.5", "0.0725", "123", "5", "6"]
    cells = "".join(_cell(f"{chr(65 + n)}1", one, f's="{n + 1}"') for n, one in enumerate(values))
    assert _text(_row(1, cells), formats=formats).split("\n")[0] == (
        "| 2024-02-29 | 18:00:00 | 2024-02-29 12:00:00 | 36:00:00 | 7.25% | 00123 | d 5 | 6 |"
    )
    of_1904 = _text(_row(1, _cell("A1", "0", 's="1"')), formats=formats, workbook='<workbookPr date1904="1"/>')
    assert of_1904.split("\n")[0] == "| 1904-01-01 |" or of_1904 == "1904-01-01"


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        ("date", "1", "1900-01-01"),
        ("date", "59", "1900-02-28"),
        ("date", "60", "1900-02-29"),
        ("date", "61", "1900-03-01"),
        ("date", "2958465", "9999-12-31"),
        ("date", "2958466", "2958466"),
        ("date", "-1", "-1"),
        ("date", "1e308", "1E308"),
        ("moment", "2958465.9999999", "2958465.9999999"),
        ("time", "0.999999", "24:00:00"),
        ("number", "1E-7", "0.0000001"),
        ("number", "12345678901234567890", "12345678901234600000"),
        ("number", "-0", "0"),
        ("number", "1e400", "1e400"),
        ("number", "nan", "nan"),
        ("number", "1_000", "1_000"),
        ("number", "x" * 9, "x" * 9),
        ("percent", "0.07", "7%"),
    ],
)
def test_numbers_are_shown_without_noise(form: Any, value: str, shown: str) -> None:
    assert NumberFormat(form).shown(value) in (shown, "1900-01-01 00:00:00" if form == "time" else shown)


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ("0%", "0.106147256105977", "10.61%"),
        ("0.000%", "0.106147256105977", "10.615%"),
        ("#,##0.00", "1234.5678", "1234.57"),
        ("0", "2.5", "2.5"),
        ("0.00", "2.5", "2.5"),
        ("0.000", "0.0005", "0.001"),
        ("General", "0.164214298575002", "0.164214298575002"),
        ("0.00E+00", "0.000123456", "0.000123456"),
        ("# ?/?", "0.333333", "0.333333"),
        ("0.00", "1e14", "100000000000000"),
    ],
)
def test_decimals_are_those_that_the_format_shows_and_at_least_two(code: str, value: str, shown: str) -> None:
    assert number_format(200, code).shown(value) == shown


MONEY = '_-* #,##0.00\\ "€"_-;\\-* #,##0.00\\ "€"_-;_-* "-"??\\ "€"_-;_-@_-'
LARGE = '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0" items"'


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ('"€"#,##0.00', "1234.5", "€1234.50"),
        ("[$£-809]#,##0.00", "1234.5", "£1234.50"),
        ("#,##0 [$EUR];-#,##0 [$EUR]", "-9", "-9 EUR"),
        (MONEY, "-3.5", "-3.50 €"),
        (MONEY, "0", "0 €"),
        ("$#,##0.00_);($#,##0.00)", "-45.2", "-$45.20"),
        ('0" kg"', "12", "12 kg"),
        ('0.0" kg"', "12.345", "12.35 kg"),
        ('0"°C"', "-4", "-4°C"),
        ('0%" of all"', "0.05", "5% of all"),
        ('0.0,,"M"', "1200000", "1.2M"),
        ("#,##0,", "1234567", "1234.57"),
        (LARGE, "2500000", "2.5M"),
        (LARGE, "2500", "2.5K"),
        (LARGE, "-5", "-5 items"),
        ('0;"minus "0', "-3", "minus 3"),
        ('"Yes";"Yes";"No"', "0", "No"),
        ('"a;b "0', "1", "a;b 1"),
        ('0"/10"', "7", "7/10"),
        ("# ?/16", "0.5", "0.5"),
        ("(000) 000-0000", "5551234567", "5551234567"),
    ],
)
def test_numbers_keep_the_unit_or_currency_of_their_format(code: str, value: str, shown: str) -> None:
    assert number_format(200, code).shown(value) == shown


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("General", "number"),
        ("#,##0.00 [$€-407]", "number"),
        ('0 "days"', "number"),
        ("0.00E+00", "number"),
        ("@", "number"),
        ("mmm-yy", "date"),
        ("d. mmmm yyyy;@", "date"),
        ("mm:ss.0", "time"),
        ("yyyy-mm-dd\\Thh:mm", "moment"),
        ("[mm]:ss", "duration"),
        ("0%", "percent"),
        (";;;", "nothing"),
        ("\\d0", "number"),
    ],
)
def test_codes_of_formats_tell_dates_from_numbers(code: str, kind: str) -> None:
    assert number_format(200, code).kind == kind


def test_cells_merged_downwards_are_repeated_and_those_across_are_not() -> None:
    rows = (
        _row(1, _words("A1", "Group"), _words("B1", "Value"))
        + _row(2, _words("A2", "North"), _words("B2", "1"))
        + _row(3, _words("B3", "2"))
        + '|<mergeCells><mergeCell ref="A2:A3"/><mergeCell ref="B1:C1"/></mergeCells>'
    )
    assert _text(rows) == "| Group | Value |\n| --- | --- |\n| North | 1 |\n| North | 2 |"


def test_cells_link_where_the_sheet_says() -> None:
    rows = _row(1, _words("A1", "here"), _words("B1", "b")) + '|<hyperlinks><hyperlink ref="A1" r:id="h"/></hyperlinks>'
    assert _text(rows, links={"h": "https://example.org/"}).startswith("| [here](https://example.org/) | b |")


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_hidden_sheets_are_left_out(state: str) -> None:
    found = extracted("xlsx", xlsx({"no": _table(1, 2), "yes": _table(1, 2)}, states={"no": state}))
    assert (found.text.split("\n")[0], found.locations[0].page) == ("## yes", 2)
    assert found.metadata["unread"] == {"hidden_sheets": 1}


def _anchor(row: int, inner: str) -> str:
    return f"<xdr:oneCellAnchor><xdr:from><xdr:row>{row}</xdr:row></xdr:from>{inner}</xdr:oneCellAnchor>"


def test_boxes_pictures_and_charts_follow_the_cells_from_the_top_and_charts_without_their_values() -> None:
    def box(text: str, about: str = "") -> str:
        body = f"<xdr:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></xdr:txBody>"
        return f"<xdr:sp><xdr:nvSpPr><xdr:cNvPr {about}/></xdr:nvSpPr>{body}</xdr:sp>"

    def picture(text: str) -> str:
        return f"<xdr:pic><xdr:nvPicPr><xdr:cNvPr descr='{text}'/></xdr:nvPicPr></xdr:pic>"

    def frame(name: str) -> str:
        inner = f'<a:graphic><a:graphicData><c:chart r:id="{name}"/></a:graphicData></a:graphic>'
        shown = f"<mc:Choice><xdr:graphicFrame>{inner}</xdr:graphicFrame></mc:Choice>"
        return f"<mc:AlternateContent>{shown}</mc:AlternateContent>"

    hidden = box("hidden", 'hidden="1"')

    anchors = (
        _anchor(9, f"<xdr:grpSp>{box('low')}{hidden}{picture('Picture 1')}</xdr:grpSp>")
        + _anchor(2, box("high") + picture("A map"))
        + _anchor(5, frame("c") + frame("gone"))
    )
    data = xlsx(
        {"A": _table(1, 2), "Drawn": "", "Empty": ""},
        drawings={1: anchors, 2: _anchor(1, box("alone")), 3: ""},
        more={"xl/charts/chart.xml": chart(series("2024", ["North", "12"], ["1", "2"]), "Sales")},
    )
    found = extracted("xlsx", data)
    assert found.text == (
        "## A\n\n| 11 | 12 |\n| --- | --- |\n\nhigh\n\n![A map]()\n\nSales\n\n2024\n\nNorth\n\nlow\n\n## Drawn\n\nalone"
    )
    assert found.metadata["unread"] == {"charts": 1, "pictures": 1}


def test_a_sheet_that_is_a_chart_is_a_section() -> None:
    more = {
        "xl/_rels/workbook.xml.rels": relationships({"s1": ("chartsheet", "chartsheets/sheet1.xml")}),
        "xl/chartsheets/sheet1.xml": "<chartsheet/>",
        "xl/chartsheets/_rels/sheet1.xml.rels": relationships({"d": ("drawing", "../drawings/drawing1.xml")}),
        "xl/charts/chart.xml": chart(series("2024", ["North"], ["1"]), "Sales"),
    }
    inner = '<a:graphic><a:graphicData><c:chart r:id="c"/></a:graphicData></a:graphic>'
    drawings = {1: f"<xdr:absoluteAnchor><xdr:graphicFrame>{inner}</xdr:graphicFrame></xdr:absoluteAnchor>"}
    assert _text("", drawings=drawings, more=more) == "Sales\n\n2024\n\nNorth"


def test_what_openpyxl_writes_is_read() -> None:
    made = openpyxl.Workbook()
    sheet = made.active
    sheet.title = "Data"
    for row in (["name", "when", "share"], ["a", datetime.date(2024, 5, 6), 0.125], ["b", datetime.time(7, 8), None]):
        sheet.append(row)
    sheet["C2"].number_format = "0.0%"
    sheet["A2"].comment = Comment("a secret", "x")
    sheet["C3"] = "=1+1"
    made.properties.creator = "Ann"
    made.properties.title = "Numbers"
    held = io.BytesIO()
    made.save(held)
    found = extracted("xlsx", held.getvalue())
    assert found.text == (
        "## Data\n\n| name | when | share |\n| --- | --- | --- |\n| a | 2024-05-06 | 12.5% |\n| b | 07:08:00 |  |"
    )
    assert (found.title, found.metadata["author"]) == ("Numbers", "Ann")
    assert found.metadata["unread"] == {"comments": 1}


def test_the_same_bytes_give_the_same_text() -> None:
    data = xlsx({"A": _table(5, 5)}, properties=core(dc_title="x"))
    assert extracted("xlsx", data) == extracted("xlsx", bytes(data))


# What is refused, and what is bounded.


def test_a_workbook_without_cells_has_no_text() -> None:
    assert refused("xlsx", xlsx({"A": _row(1, '<c r="A1" s="1"/>')})).reason == "no-text"


def test_another_kind_of_file_is_told() -> None:
    assert "expected <s:workbook>" in str(refused("xlsx", docx("<w:p/>")))


@pytest.mark.parametrize(
    "part", ["xl/workbook.xml", "xl/styles.xml", "xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"]
)
def test_entities_are_hostile_in_any_part_that_is_read(part: str) -> None:
    data = xlsx({"A": _row(1, _cell("A1", "0", 't="s"'))}, more={part: LAUGHS + "<x>&k;</x>"})
    assert refused("xlsx", data).reason == "hostile-file"


def test_rows_of_formatting_alone_take_little_time_and_memory() -> None:
    rows = "".join(f'<row r="{n}" s="5" customFormat="1"/>' for n in range(1, 60_000)) + _row(
        1_048_576, _words("XFD1048576", "end")
    )
    data = xlsx({"A": rows})
    start = time.process_time()
    assert extracted("xlsx", data).text == "## A\n\nend"
    assert time.process_time() - start < 15


def test_a_sheet_of_scattered_cells_is_no_table_of_millions() -> None:
    def name(column: int) -> str:
        letters = ""
        while column:
            column, rest = divmod(column - 1, 26)
            letters = chr(65 + rest) + letters
        return letters

    rows = "".join(_row(n, _words(f"{name(n)}{n}", f"v{n}"), _words(f"{name(n + 9)}{n}", "w")) for n in range(1, 2_000))
    tracemalloc.start()
    text = _text(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text.startswith("v1; w\n\nv2; w\n\n")
    assert peak < 32 << 20


def test_one_shared_text_in_a_million_cells_is_too_large() -> None:
    rows = "".join(_row(n, _cell(f"A{n}", "0", 't="s"'), _cell(f"B{n}", "0", 't="s"')) for n in range(1, 2_000))
    data = xlsx({"A": rows}, strings=[f"<t>{'x' * 30_000}</t>"])
    found = refused("xlsx", data)
    assert (found.reason, "10,000,000" in str(found)) == ("too-large", True)


def test_limits_of_sheets_texts_and_formats_are_kept() -> None:
    assert (
        refused("xlsx", xlsx({f"s{n}": _table(1, 2) for n in range(6)}), ExtractionLimits(pages=5)).reason
        == "too-large"
    )
    assert refused("xlsx", xlsx({"A": _table(200, 5)}), ExtractionLimits(text_bytes=1_000)).reason == "too-large"
    strings = xlsx({"A": _row(1, _cell("A1", "0", 't="s"'))}, strings=[f"<t>{'x' * 99}</t>"] * 200)
    assert refused("xlsx", strings, ExtractionLimits(text_bytes=1_000)).reason == "too-large"
    styles = '<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><cellXfs>'
    many = {"xl/styles.xml": styles + '<xf numFmtId="0"/>' * 70_001 + "</cellXfs></styleSheet>"}
    assert refused("xlsx", xlsx({"A": _table(1, 2)}, more=many)).reason == "hostile-file"


def test_merged_cells_over_everything_do_no_harm() -> None:
    merges = '<mergeCell ref="A1:XFD1048576"/>' * 5_000
    start = time.process_time()
    text = _text(_table(300, 3) + f"|<mergeCells>{merges}</mergeCells>")
    assert time.process_time() - start < 10
    assert text.count("|") == 4 * 301


def test_references_that_make_no_sense_do_no_harm() -> None:
    rows = (
        '<row r="0"><c r="A0"><v>1</v></c></row><row r="99999999"><c><v>2</v></c></row>'
        '<row r="5"><c><v>3</v></c><c r="ZZZZ9"><v>4</v></c><c r="XFE5"><v>5</v></c></row>'
        '<row r="4"><c><v>6</v></c></row>'
        '<row><c t="s"><v>-1</v></c><c s="-1"><v>7</v></c><c s="x" t="?"><v>8</v></c></row>'
    )
    assert _text(rows) == "| 3 | 4 |  |\n| --- | --- | --- |\n|  | 7 | 8 |"


def test_macros_connections_and_outside_parts_are_never_opened() -> None:
    more = {
        "xl/vbaProject.bin": b"macro",
        "xl/connections.xml": LAUGHS,
        "xl/externalLinks/externalLink1.xml": LAUGHS,
        "xl/comments1.xml": LAUGHS,
        "xl/drawings/drawing1.xml": LAUGHS,
    }
    assert _text(_table(1, 2), more=more) == "| 11 | 12 |\n| --- | --- |"


def test_rows_without_a_value_are_left_out_before_they_are_parsed_and_number_the_rows_after_them() -> None:
    def row(number: int, text: str = "") -> str:
        return f'<row r="{number}" s="1" customFormat="1">{cell(text) if text else empty(number)}</row>'

    def cell(text: str) -> str:
        return f'<c t="inlineStr"><is><t>{text}</t></is></c><c t="inlineStr"><is><t>{text}</t></is></c>'

    def empty(number: int) -> str:
        return f'<c r="A{number}" s="1"/><c r="B{number}" s="1"/>'

    rows = row(1, "a") + row(2, "b") + "".join(map(row, range(3, 3_000))) + '<row r="3000" ht="9"/>' + row(3_001, "c")
    rows += f"<row>{cell('d')}</row>" + '<row r="3003"/><row>' + cell("e") + "</row>"
    text = extracted("xlsx", xlsx({"One": rows})).text
    assert text.count("| --- |") == 3
    assert _without_empty_rows(rows.encode()).count(b"<row") == 7
    said = '<row r="1"><c r="A1" t="inlineStr"><is><t><![CDATA[<row r="1"/><row r="2"/>]]></t></is></c></row>'
    assert _without_empty_rows(said.encode()) == said.encode()


@pytest.mark.slow
def test_very_many_rows_without_a_value_take_no_time() -> None:
    rows = "".join(f'<row r="{n}" s="1"><c r="A{n}" s="1"/></row>' for n in range(2, 300_000))
    data = xlsx({"One": '<row r="1"><c r="A1"><v>7</v></c></row>' + rows})
    began = time.process_time()
    assert extracted("xlsx", data).text == "## One\n\n7"
    assert time.process_time() - began < 3
