"""Tests of template environments and of escaping for Markdown."""

from __future__ import annotations

import jinja2
import pytest

from data.runtime.templates import escape_markdown, template_environment


def test_markdown_is_escaped_on_one_line() -> None:
    assert escape_markdown("a|b\n*c*") == r"a\|b \*c\*"
    assert escape_markdown("<2^r> & ![x]") == r"&lt;2^r&gt; &amp; \!\[x\]"
    assert escape_markdown("2^r|", also="^") == r"2\^r\|"


@pytest.mark.parametrize(
    ("is_html", "expected"), [(False, r"<b> &lt;b&gt;\|"), (True, "&lt;b&gt;")]
)
def test_values_are_escaped_for_the_kind_of_page(is_html: bool, expected: str) -> None:
    templates = {"page": "{{ text }}" if is_html else "{{ text }} {{ cell | md }}"}
    page = template_environment(templates.__getitem__, is_html=is_html).get_template("page")
    assert page.render(text="<b>", cell="<b>|") == expected
    with pytest.raises(jinja2.UndefinedError):
        page.render()
