"""The page: escaped, self-contained, whatever goes in."""

from __future__ import annotations

import base64
import hashlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from speechmix.reporting.pages.html_page import Picture, SortableTable, TermList, render_page
from speechmix.reporting.pages.run_page import describe_run
from speechmix.reporting.pages.table_format import format_contribution_table


def test_hostile_text_is_shown_as_text_everywhere():
    evil = "<script>alert(1)</script>"
    table = pd.DataFrame({evil: [evil]})
    html = render_page(
        evil, [(evil, [evil, table, SortableTable(table, {evil: evil}), Picture(b"", evil)])] * 4
    )
    assert "<script>alert" not in html
    assert html.count("<script") == 1  # the page's own
    assert html.count("&lt;script&gt;alert") >= 10


def test_the_policy_names_the_pages_own_script_and_no_other():
    html = render_page("a run", [])
    script = html.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html


def test_figures_are_embedded_and_nothing_is_fetched():
    figure = Figure()
    figure.subplots().plot([0, 1])
    html = render_page("a run", [("Figure", [figure])])
    assert "data:image/svg+xml;base64," in html
    assert "http" not in html.replace("http-equiv", "")


def test_missing_numbers_are_left_blank():
    html = render_page("a run", [("Table", [pd.DataFrame({"a": [1.25, np.nan], "b": ["x", "y"]})])])
    assert "<td>1.2</td>" in html
    assert "<td></td>" in html
    assert "nan" not in html


def test_intervals_are_shown_in_one_column():
    table = pd.DataFrame({"side": ["all"], "difference": [5.26], "low": [3.71], "high": [6.74]})
    found = format_contribution_table(table)
    assert list(found) == ["difference", "95 % interval"]
    assert found["95 % interval"][0] == "3.7 to 6.7"


def test_an_explanation_refers_to_parts_that_the_page_has():
    """As the report of one clip, which lacks most parts."""
    legend = TermList({"length-matched": "The rule differs: see “Length”."})
    alone = render_page("a run", [("Contribution", [legend])])
    both = render_page("a run", [("Contribution", [legend]), ("Length", ["a rule"])])
    assert "see “Length”" in both
    assert "see “" not in alone
    assert "The rule differs." in alone


def test_a_quoted_sentence_ends_without_a_second_full_stop():
    run = SimpleNamespace(parts=[], clips=pd.DataFrame({"text": ["Come in again."]}))
    assert describe_run(run) == "no model: “Come in again”"
