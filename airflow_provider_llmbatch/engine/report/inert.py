"""Make texts from outside harmless to read: one short line, with nothing that hides or turns text around."""

from __future__ import annotations

import unicodedata

#: invisible characters that scripts and emoji need
_JOINERS = "\u200c\u200d\u00ad"


def inert(text: str, length: int = 200) -> str:
    """
    Return ``text`` as one visible line of at most ``length`` characters.

    Line breaks become spaces; control and direction characters become their visible names. What it does not
    do is escape: that is each format's own business.
    """
    # No more is looked at than can be shown, however long the text is.
    shown = " ".join("".join(map(_visible, text[: 4 * length])).split())
    cut = len(shown) > length or len(text) > 4 * length
    return shown[: length - 1] + "…" if cut else shown


def _visible(char: str) -> str:
    if char.isspace():
        return " "
    match unicodedata.category(char):
        case "Cs":
            return "\ufffd"
        case "Cc" | "Co" | "Cn":
            return f"⟨U+{ord(char):04X}⟩"
        case "Cf" if char not in _JOINERS:
            return f"⟨U+{ord(char):04X}⟩"
    return char
