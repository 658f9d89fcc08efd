"""HTML page of an explanation, with words to hover, tap or focus.

In: an `Explanation`. Out: HTML that needs no other file and no network (a page's content security
policy names its one script by its hash). What is shown is data (`view`), drawn by
`templates/explanation.js`, here as in notebooks and in the app; all of it goes into the page as
text, for a transcript is hostile input. Where no script runs, the explanation stands as plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .page_data import explanation_view
from .plain_text import explanation_text

if TYPE_CHECKING:
    from .explanation_numbers import ExplanationNumbers

_TEMPLATES = Path(__file__).parent / "templates"


def explanation_page(explanation: ExplanationNumbers, *, sound: bool = True) -> str:
    """A whole page; light or dark as the reader has it."""
    body = explanation_body(explanation, sound=sound)
    return (
        "<!doctype html>\n<html "
        f'lang="en"><head>{_html_head(explanation.item)}</head><body>{body}</body></html>\n'
    )


def explanation_body(explanation: ExplanationNumbers, *, sound: bool = True) -> str:
    """The same as a part of another page, as notebooks show it."""
    view = {**explanation_view(explanation, sound=sound), "head": _html_head(explanation.item)}
    data = json.dumps(view, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div class="why-view"><style>{view_file("explanation.css")}</style>'
        f'<div class="why"><pre>{escape(explanation_text(explanation), quote=False)}</pre></div>'
        f'<script type="application/json">{data}</script><script>{view_file("explanation.js")}</script></div>'
    )


@cache
def view_file(name: str) -> str:
    """Text of the view's script (explanation.js) or of its style (explanation.css)."""
    return (_TEMPLATES / name).read_text(encoding="utf-8").strip()


def _html_head(item: str) -> str:
    digest = base64.b64encode(hashlib.sha256(view_file("explanation.js").encode()).digest()).decode(
        "ascii"
    )
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; "
        f"script-src 'sha256-{digest}'"
    )
    return (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        f'content="{escape(policy)}"><title>{escape(f"Why: {item}")}</title>'
        "<style>:root { color-scheme: light dark } body { margin: 1rem auto; max-width: 62rem; "
        "padding: 0 .8rem }</style>"
    )
