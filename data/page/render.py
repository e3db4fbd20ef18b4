"""Renders self-contained HTML pages from Jinja templates.

Jinja escapes all values. Data is inlined as escaped JSON. The Content Security Policy of the page
allows only the inlined scripts, by their hashes, and no network access.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import partial
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from data.runtime.templates import template_environment

_PACKAGE = "data.page"


def render_page(package: str, template: str, **values: Any) -> str:
    """Render a template that extends `base.html.j2`.

    Templates include their parts by `style("x.css")`, `script("x.js")` and `data("id", value)`.

    Args:
        package: Package of the template, its styles and scripts.
        template: File name of the template.
        values: Variables of the template.
    """
    environment = template_environment(partial(_read, package), is_html=True)
    hashes: list[str] = []

    def script(name: str) -> Markup:
        code = _read(package, name)
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        hashes.append(f"'sha256-{digest}'")
        return Markup(f"<script>{code}</script>")  # noqa: S704 - our file

    def style(name: str) -> Markup:
        return Markup(f"<style>\n{_read(package, name)}</style>")  # noqa: S704 - our file

    environment.globals.update(script=script, style=style, data=_data_block)
    body = environment.get_template(template).render(**values)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
        f"{' '.join(hashes)}; base-uri 'none'; form-action 'none'"
    )
    # Hashes are known after rendering; the placeholder precedes all values in the template.
    return body.replace("@POLICY@", policy, 1)


def array_base64(values: npt.NDArray[np.integer], dtype: str) -> str:
    """Encode an array for a script: bytes of `dtype`, such as `<u2`, in base64."""
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


def script_json(value: Any) -> str:
    """Serialize to JSON for a script element, with `<`, `>` and `&` escaped."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data_block(name: str, value: Mapping[str, Any]) -> Markup:
    block = f'<script type="application/json" id="{name}">{script_json(value)}</script>'
    return Markup(block)  # noqa: S704 - `script_json` escapes


def _read(package: str, name: str) -> str:
    """Read a template, style or script of the package, or of `data.page` as a fallback."""
    for owner in (package, _PACKAGE):
        path = resources.files(owner).joinpath(name)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"{package}: no template, style or script {name}")
