"""The characters of symbol fonts, whose codes show other characters than those of Unicode.

The tables are those of unicode.org (Adobe's `symbol.txt`, L2/11-344 for Wingdings), with a common look-alike where
Unicode has only a pictograph that few fonts and no questions contain, such as the check mark.
"""

from __future__ import annotations

_SYMBOL = (
    " !∀#∃%&∋()*+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}~" + "\0" * 33
    + "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\0〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
)  # fmt: skip
_WINGDINGS = (
    " 🖉✂✁👓🕭🕮🕯☎✆✉🖃📪📫📬📭🗀🗁🗎🗏🗐🗄⌛🖮🖰🖲🖳🖴🖫🖬✇✍🖎✌🖏👍👎☜☞☝☟🖐☺😐☹💣☠🏳🏱✈☼🌢❄🕆✞🕈✠✡☪☯🕉☸♈♉"
    "♊♋♌♍♎♏♐♑♒♓🙰🙵●🔾■☐🞐❑❒⬧⧫◆❖⬥⌧⮹⌘🏵🏶“”▯⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿🙢🙠🙡🙣🙞🙜🙝🙟·•"
    "▪○🞆🞈🞊🞋🔿▪☐🟁🟅★🟋🟏🟓🟑⯐⌖⯎⯏⯑✪✰🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛⮰⮱⮲⮳⮴⮵⮶⮷🙪🙫🙕🙔🙗🙖🙐🙑🙒🙓⌫⌦⮘➢⮙⮛⮈⮊⮉⮋←"
    "→↑↓↖↗↙↘←➔↑↓↖↗↙↘⇦⇨⇧⇩⬄⇳⬁⬀⬃⬂🢬🢭✗✓☒☑"
)


def _codes(characters: str, start: int = 0x20) -> dict[int, str]:
    return {code: character for code, character in enumerate(characters, start) if character != "\0"}


_BY_FONT = {
    "symbol": _codes(_SYMBOL),
    "wingdings": _codes(_WINGDINGS),
    "wingdings 2": _codes("✗✓☒☑☒☒", 0x4F),
    "webdings": _codes("✔", 0x61) | _codes("☐", 0x63) | _codes("✗", 0x72),
}
SYMBOL_FONTS = frozenset(_BY_FONT)
"""The names of the fonts, in lower case."""
_PRIVATE = {font: {0xF000 + code: shown for code, shown in codes.items()} for font, codes in _BY_FONT.items()}
_ALL = {font: codes | _PRIVATE[font] for font, codes in _BY_FONT.items()}


def shown_in(font: str, text: str, *, private_only: bool = False) -> str:
    """Return the text that a font shows for a text; the text itself for fonts that are not symbol fonts.

    private_only: the font shows only the codes 0xF000 to 0xF0FF, another font the rest of the text.
    """
    shown = (_PRIVATE if private_only else _ALL).get(font.casefold())
    return text if shown is None else text.translate(shown)
