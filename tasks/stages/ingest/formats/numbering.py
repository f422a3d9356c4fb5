"""List numbers as Office programs show them."""

from __future__ import annotations

_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_MOST_ROMAN = 3_999
_MOST_LETTERS = 26 * 10


def counted(number: int, form: str) -> str:
    """Write a number in a WordprocessingML format such as `upperRoman`, or in digits; `aa` and `bb` follow `z`."""
    if form == "none":
        return ""
    if form in ("lowerRoman", "upperRoman") and 0 < number <= _MOST_ROMAN:
        digits, remaining = "", number
        for value, letters in _ROMAN:
            digits += letters * (remaining // value)
            remaining %= value
        return digits.upper() if form == "upperRoman" else digits
    if form in ("lowerLetter", "upperLetter") and 0 < number <= _MOST_LETTERS:
        letter = chr(ord("a") + (number - 1) % 26) * (1 + (number - 1) // 26)
        return letter.upper() if form == "upperLetter" else letter
    return f"{number:02d}" if form == "decimalZero" else str(number)
