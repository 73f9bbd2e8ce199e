"""Text and numbers from elsewhere, made safe and short to show."""

import re

_MARKUP = re.compile(r"([\\`*\[\]<>|~&$])")


def plain(text: object) -> str:
    r"""One line of text with every character that is not printable as its escape, such as ``\x1b``.

    A terminal obeys control characters, and others reverse or hide what follows; names, reasons and
    settings of a run may come from a stranger.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in shown
    )


def decimal(value: float) -> str:
    """Return a return with one decimal, with three digits where all of them would fill a line."""
    return f"{value:.1f}" if abs(value) < 1e9 else f"{value:.3g}"


def drawn(text: object) -> str:
    """Return ``plain`` text for matplotlib, where dollar signs enclose formulas."""
    return plain(text).replace("$", r"\$")


def markdown(text: object) -> str:
    """Return ``plain`` text for a page in Markdown, with links, HTML, code and cells escaped."""
    return _MARKUP.sub(r"\\\1", plain(text))
