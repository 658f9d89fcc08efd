"""One self-contained HTML page for a run: what was run, the headline, the figures, what was left out.

In: texts, tables and matplotlib figures, in order. Out: a string of HTML that needs no network. Everything is escaped
(a transcript is hostile input); figures are embedded as PNG.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# A part of the page: (heading, what to show under it). A str is a paragraph.
Part = tuple[str, "Sequence[str | pd.DataFrame | Figure]"]

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  :root { color-scheme: light dark; --line: #8886; --paper: #fff; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
  table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: 1rem 0; }
  th, td { padding: .15rem .5rem; text-align: right; border-bottom: 1px solid var(--line); }
  th { text-align: right; vertical-align: bottom; } td.text, th.text { text-align: left; }
  td { white-space: nowrap; } td.long { white-space: normal; min-width: 20rem; }
  .wide { overflow-x: auto; } img { max-width: 100%; background: var(--paper); border-radius: 4px; }
  p { max-width: 46rem; }
  @media print { h2 { break-after: avoid; } img, table { break-inside: avoid; } }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for heading, items in parts %}
<h2>{{ heading }}</h2>
{% for kind, item in items %}
{% if kind == "text" %}<p>{{ item }}</p>
{% elif kind == "image" %}<div class="wide"><img alt="{{ heading }}" src="data:image/png;base64,{{ item }}"></div>
{% else %}<div class="wide"><table>
<thead><tr>{% for name in item.columns -%}
<th scope="col"{% if not item.numeric[loop.index0] %} class="text"{% endif %}>{{ name }}</th>
{%- endfor %}</tr></thead>
<tbody>{% for row in item.rows %}
<tr>{% for numeric, cell in row -%}
<td{% if not numeric %} class="text{{ ' long' if cell|length > 40 }}"{% endif %}>{{ cell }}</td>
{%- endfor %}</tr>
{%- endfor %}
</tbody></table></div>
{% endif %}
{% endfor %}
{% endfor %}
</body>
</html>
"""


def page(title: str, parts: Sequence[Part]) -> str:
    """Lay out a page.

    Parameters
    ----------
    title : str
    parts : sequence of (heading, items)
        Items are paragraphs (str), tables (DataFrame) or figures.

    Examples
    --------
    >>> "&lt;script&gt;" in page("a run", [("Clips", ["<script>alert(1)</script>"])])
    True
    """
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(_TEMPLATE)
    laid_out = [(heading, [_item(item) for item in items]) for heading, items in parts]
    return template.render(title=title, parts=laid_out)


def _item(item) -> tuple[str, object]:
    if isinstance(item, str):
        return "text", item
    if hasattr(item, "savefig"):
        buffer = io.BytesIO()
        item.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        return "image", base64.b64encode(buffer.getvalue()).decode("ascii")
    numeric = [dtype.kind in "iuf" for dtype in item.dtypes]
    rows = [
        [(is_number, _cell(value)) for is_number, value in zip(numeric, row, strict=True)]
        for row in item.itertuples(index=False)
    ]
    return "table", {"columns": [str(name) for name in item.columns], "numeric": numeric, "rows": rows}


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.1f}"  # NaN: nothing to say
    return str(value)
