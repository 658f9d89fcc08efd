"""Figures on the page: paper and ink follow the screen, data keep their colours; the same figure
gives the same bytes."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from speechmix.reporting.pages.html_page import page_svg
from speechmix.reporting.plots import map_cells


def figure() -> Figure:
    """A line, a band and cells with numbers, dark on light and light on dark."""
    drawn = Figure(figsize=(3, 2))
    lines, cells = drawn.subplots(1, 2)
    lines.plot([0, 1], color="#000000")
    lines.plot([1, 0], color="#cc79a7")
    values = np.ma.masked_invalid([[0.0, 100.0]])
    map_cells.write_numbers(cells, map_cells.draw_cells(cells, values, limits=(0, 100)), values)
    return drawn


def test_ink_and_paper_are_variables_and_data_are_not():
    svg = page_svg(figure()).decode()
    root = ElementTree.fromstring(svg)
    styles = [element.get("style") or "" for element in root.iter()]
    assert any("fill: var(--paper)" in style for style in styles)
    assert any("stroke: var(--ink)" in style for style in styles)
    assert any("stroke: #cc79a7" in style for style in styles)
    assert not any(": #000000" in style for style in styles)
    numbers = {
        element.text: element.get("style")
        for element in root.iter()
        if element.text in ("0.0", "100.0")
    }
    in_cells = [element.get("style") for element in root.iter() if element.text == "100.0"]
    assert any("fill: var(--on-dark-cell)" in style for style in in_cells)
    assert numbers


def test_the_strongest_cell_is_light_on_a_dark_screen_and_differences_stay_as_they_are():
    def cells(svg: bytes, name: str) -> list[list[int]]:
        content = re.search(rb'<g class="%s"><image[^>]*?base64,([^"]*)"' % name.encode(), svg)
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(content[1]))).convert("RGB"), int)[
            0
        ].tolist()

    svg = page_svg(figure())
    (zero, most), (dark_zero, dark_most) = cells(svg, "paper"), cells(svg, "screen")
    np.testing.assert_allclose(
        [zero, most], [dark_most, dark_zero], atol=1
    )  # matplotlib rounds down
    assert sum(dark_most) > 600 > 100 > sum(dark_zero)
    drawn = Figure(figsize=(3, 2))
    map_cells.draw_cells(
        drawn.subplots(),
        np.ma.array([[-1.0, 1.0]]),
        limits=(-1, 1),
        cmap=map_cells.DIFFERENCE_COLORS,
    )
    assert b'class="screen"' not in page_svg(drawn)


def test_numbers_are_legible_on_both_scales():
    def brightness(color) -> float:
        red, green, blue, *_ = color
        return 0.299 * red + 0.587 * green + 0.114 * blue

    drawn = Figure()
    values = np.ma.array(np.linspace(0, 100, 21)[None])
    ax = drawn.subplots()
    cells = map_cells.draw_cells(ax, values, limits=(0, 100))
    map_cells.write_numbers(ax, cells, values)
    for place, text in zip(np.linspace(0, 1, 21), ax.texts, strict=True):
        for cmap, dark in ((cells.cmap, False), (cells.cmap.reversed(), True)):
            white = (text.get_color() != "#0a0a0a") if not dark else (text.get_color() != "#fefefe")
            assert white == (brightness(cmap(place)) <= 0.5)


@pytest.mark.parametrize("scheme", ["on paper", "on a dark screen"])
def test_every_variable_has_a_colour(scheme):
    svg = page_svg(figure()).decode()
    style = re.search("<style>(.*?)</style>", svg, re.DOTALL).group(1)
    paper, screen = style.split("@media screen and (prefers-color-scheme: dark)")
    for name in set(re.findall(r"var\(--([\w-]+)\)", svg)):
        assert f"--{name}: #" in (paper if scheme == "on paper" else screen)


def test_the_same_figure_gives_the_same_bytes_and_nothing_is_fetched():
    assert page_svg(figure()) == page_svg(figure())
    assert not re.search(rb"(?:href|src)=\"(?!#|data:)", page_svg(figure()))
