"""Text from elsewhere is shown as text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.text import decimal, drawn, markdown, plain


@given(st.text())
def test_plain_text_is_printable_and_says_the_same_twice(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert plain(shown) == shown
    assert shown == text or not text.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x9b31mred", r"\x9b31mred"),
        ("one\ntwo\r", r"one\ntwo\r"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("\udc80", r"\udc80"),
        ("née κ 世界", "née κ 世界"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text())
def test_no_formula_is_drawn(text: str) -> None:
    assert re.search(r"(?<!\\)\$", drawn(text)) is None


@pytest.mark.parametrize(
    "text",
    ["<script>", "[here](javascript:x)", "![](http://x/y.png)", "`x`", "a | b", "**x**", "&lt;"],
)
def test_no_markup_of_a_page_is_left(text: str) -> None:
    assert re.search(r"(?<!\\)[\[\]<>|`*&]", markdown(text)) is None
    assert markdown(text).replace("\\", "") == text


@pytest.mark.parametrize(
    ("value", "shown"), [(-723.24, "-723.2"), (1e8, "100000000.0"), (2e26, "2e+26")]
)
def test_a_return_takes_no_line_of_its_own(value: float, shown: str) -> None:
    assert decimal(value) == shown
