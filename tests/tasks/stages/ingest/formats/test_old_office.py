"""Old Excel workbooks, and files of other formats that are called .xls or .doc."""

from __future__ import annotations

import base64
import zlib

import pytest

from tests.tasks.stages.ingest.formats.office_files import docx, extracted, paragraph, refused

WORKBOOK = zlib.decompress(
    base64.b85decode(
        "c-rk)O-L0{6#njY-uM)Mp7snh5D~I6T|_O~=#*&&q4*P&5!BN+i--1%DS}#*WiEpt2#Pj>E!tRZ`k@xJ2wDV2ErKX`*0NPl&_dsI&Y2lg"
        "dw~y3Fy<TXx%ZxX&%I~PIrnGg%}hmR@<GikmZ22|$ht)^7x5IOqM#B3wYx4CgFH&f4Y96J6eUNR5j-t@UC2IUf6qeWzVU)6@R`yvoI>|#"
        "+OAtew22N0#X7VogJMtPHl;FDi(ZvNhlFkrdQbX36S_w@SB17v-;6qn8LPW-w;#txbiK5d5mk63G9QGq166p%aeVQb^7=-w*GVNt)>%WX"
        "QGzLuOFQkf?Qp#ucTfxr5SqKXn%mnmh?Bdg@WZVGz6b02d0og~TfPGEe=g-0{)HbUCobn-*9I^K_k`kLo}i$%3~wp-IH@7~G;?}QjtvtB"
        "Qpu#9o<kdlh9v6Roj7Sn;Ps}wKb0P`sp;UTb2c%OB+kcl(sn3MjL<GXBlUOe>+3jF%*TOjAF(CdN2x5T5~4|zOSwXpR*bZtyZh~J*I<uz"
        "TsUKLWOxV5W_}B}xWp19TqZ3Mp#_v0MPj?q%QEUFDc1;%Q%}kpdaC@w{&DGZMOqtZo}Ges)|N%(tyG@)+WWY6;)}J7%F~^*=i}4wtx43="
        "L6;<Xe#X(Hn$)eEj3-u*D}M|6B((aE?I@~azV5DndX{6J7a*ZRs8?g_sD+yLZN<_mhqMxDwnqV3NQv|=|7|YlV%a7uapR?y5p<3bw2Z*E"
        "=Kh{{*wzsprJ5FPSk@5TmdY9;%RXt<m3YWQ(N_B#YY`D@fv(qxP&p&Q46KS=Rt*s%M2HX}LWEc~D7kccS8T(-aGU<80sq&Tr<4tUll-^n"
        "!zevx=##PoY04d(%PW31BBFw^)Cy&S|AmahG`oXg42mAZdB-nZxz*zLS+QVj^_Eb+^JnwX^B>Ru3;JshVE"
    )
)
"""Two sheets, the second of them hidden, as xlwt writes them."""


def test_cells_are_values_and_dates_and_hidden_sheets_are_left_out() -> None:
    pytest.importorskip("python_calamine")
    found = extracted("xls", WORKBOOK)
    assert found.text == (
        "## Prices\n\n| Name | Price | Since |\n| --- | --- | --- |\n| Korvald | 0.3 | 2024-05-01 |\n"
        "| Ünder | 3 | TRUE |\n\nalone"
    )
    assert (found.metadata, [place.page for place in found.locations]) == (
        {"sheets": 2, "unread": {"hidden_sheets": 1}},
        [1],
    )


def test_a_damaged_workbook_is_refused() -> None:
    pytest.importorskip("python_calamine")
    for data in (WORKBOOK[:600], WORKBOOK[:8] + bytes(3_000), b"text"):
        assert refused("xls", data).reason == "unreadable-file"


def test_other_formats_under_these_names_are_read() -> None:
    page = "<html><table><tr><td>a</td><td>b</td></tr></table>".encode("utf-16")
    assert extracted("xls", page[2:].decode("utf-16-le").encode()).text == "| a | b |\n| --- | --- |"
    assert extracted("doc", docx(paragraph("Really new"))).text == "Really new"


def test_an_old_word_file_is_refused_with_what_to_do() -> None:
    error = refused("doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    assert (error.reason, "soffice --convert-to docx" in str(error)) == ("old-format", True)
