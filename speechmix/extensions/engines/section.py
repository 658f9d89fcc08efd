"""Page section: how far copies are from their engines.

In: ``engine_distance.parquet`` of a run. Out: what the page says about it.
"""

from __future__ import annotations

import pandas as pd

from ...files.parquet_files import read_parquet
from ...reporting.pages.html_page import Item
from ...reporting.pages.page_sections import PageContent, PageSection


def _describe(content: PageContent) -> list[Item]:
    path = content.folder / "engine_distance.parquet"
    if not path.is_file():
        return []
    from .engine_distance import MAX_MEAN_NATS, MIN_AGREEMENT  # loads PyTorch

    table = read_parquet(path)
    tokens, agreeing = int(table["token_count"].sum()), int(table["agreeing_count"].sum())
    mean = float((table["mean"] * table["token_count"]).sum() / max(1, tokens))
    engines = ", ".join(sorted(set(table["engine"])))
    return [
        f"Transcripts are written by {engines}. The maps are of a copy of its weights. The copy agrees on "
        f"{agreeing:,} of {tokens:,} tokens. The log probabilities of the tokens differ by at most "
        f"{table['largest'].max():.2g} nats, {mean:.2g} on average. Nothing is explained of clips that differ "
        f"by over {MAX_MEAN_NATS:g} nats on average, or agree on under {MIN_AGREEMENT:.0%} of tokens.",
        _shown_rows(table.sort_values("mean", ascending=False).head(20)),
    ]


def _shown_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Columns of the page: those that are compared come first, as a phone shows the first ones."""
    counts = zip(table["agreeing_count"], table["token_count"], strict=True)
    return pd.DataFrame(
        {
            "clip": table["clip"],
            "mean (nats)": [f"{value:.2g}" for value in table["mean"]],
            "largest (nats)": [f"{value:.2g}" for value in table["largest"]],
            "agreeing tokens": [f"{agreeing} of {count}" for agreeing, count in counts],
            "text": table["text"],
            "model": table["model"],
        }
    )


ENGINE_DISTANCE_SECTION = PageSection("How far the copy is from the engine", _describe)
