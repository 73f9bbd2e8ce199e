"""The terminal: tables, live views and coloured lines, whose texts are never interpreted."""

from typing import Any

from rich.console import Console  # noqa: TID251
from rich.text import Text

from fullrank.common.text import plain


class Terminal(Console):
    """A console that shows every string as ``plain`` text in one line, without markup and emoji.

    A ``Text`` is printed as its maker built it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string of one line."""
        return super().render_str(plain(text), **options)
