"""Environment of Jinja templates, and escaping of text for Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources

import jinja2


def template_environment(read: Callable[[str], str], *, is_html: bool) -> jinja2.Environment:
    """Return an environment in which undefined variables are errors.

    Args:
        read: Returns the template of a name.
        is_html: Whether all values are escaped for HTML. In Markdown, the filter `md` escapes;
            templates of other formats need filters of their own.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        autoescape=is_html,  # noqa: S701 - Markdown has `md`
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = escape_markdown
    return environment


def markdown_environment(package: str) -> jinja2.Environment:
    """Return an environment for the Markdown templates of a package."""
    return template_environment(lambda name: read_template(package, name), is_html=False)


def read_template(package: str, name: str) -> str:
    """Read a template of a package; `name` is relative to its folder."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def escape_markdown(text: str, *, also: str = "") -> str:
    """Escape a text for one line of Markdown, such as a cell of a table.

    Args:
        text: The text; line breaks become spaces.
        also: Further characters to escape.
    """
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    special = re.escape("\\`*_{}[]|~$#!" + also)
    return re.sub(f"([{special}])", r"\\\1", line)
