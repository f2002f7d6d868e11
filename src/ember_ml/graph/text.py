"""Names and texts of a file, for people to read: no file may talk to a terminal through them."""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: str, most: int = 200) -> str:
    r"""One line of at most about `most` letters, with escapes for what is no letter.

    >>> print(plain("a\x1b[31m"))
    a\x1b[31m
    """
    if len(text) > most:  # the end of a long name tells more than its middle
        text = f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)
