"""Documents that try to get out of the page."""

from __future__ import annotations

from typing import Any

SCRIPT = "</script><script>alert('x')</script><!--"
LONG = "Long " * 2_000


def _document(number: int) -> dict[str, Any]:
    others = ("Ada Venn", "Ilse Marl", "Bruno Vell", "Cora Tann")
    one, two = others[number % 4], others[(number + 1) % 4]
    return {
        "id": f"d{number} \"onload='x'>{SCRIPT}" if number == 2 else f"d{number}",
        "title": {
            0: SCRIPT,
            1: "\u202ereversed\u2066 \u05e9\u05dc\u05d5\u05dd",
            3: LONG,
            4: "\" onmouseover=\"alert('x')",
            5: "{{ 7 * 7 }}{% raw %}",
        }.get(number, f"{one} of Hall {number}"),
        "text": f"{one} met {two} at Marrow Bridge. {one} built Marrow Bridge & <b>Tallow</b> {SCRIPT}.\n\n"
        f"{two} gave the Stone {number} to {one}. Marrow Bridge lies by the River Ane.",
        "url": "javascript:alert(1)" if number == 6 else f"https://example.org/{number}?a=1&b=\"'>",
    }


DOCUMENTS = [_document(number) for number in range(16)]
