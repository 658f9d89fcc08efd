"""How far a copy is from its engine, as a kind of result and a section of the page.

In: a run of a model that was loaded with ``engine=``. Out: ``engine_distance.parquet`` with a row for each
clip, and what the page says about it.
"""

from __future__ import annotations

import pandas as pd

from ...files.json_files import JsonObject
from ...files.parquet_files import read_parquet
from ...reporting.pages.html_page import Item
from ...reporting.pages.page_sections import PageContent, PageSection
from ...runs.kinds.result_kind import Result, ResultItem, ResultKind
from .engine_distance import MAX_MEAN_NATS, MIN_AGREEMENT

_COLUMNS = {
    "engine": "str",
    "text": "str",
    "token_count": "int64",
    "agreeing_count": "int64",
    "largest": "float64",
    "mean": "float64",
}


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    if item.model.engine is None:
        return None
    return {
        "weights": item.model.fingerprint,
        "sound": item.clip.audio_hash,
        "language": item.clip.language,
    }


def _compute(item: ResultItem) -> Result:
    distance = vars(item.model.engine.measure(item.model, item.clip))
    return Result([{name: distance[name] for name in _COLUMNS}])


def _describe(content: PageContent) -> list[Item]:
    path = content.folder / "engine_distance.parquet"
    if not path.is_file():
        return []
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


ENGINE_DISTANCE_KIND = ResultKind(
    "engine_distance", _compute, cache_key=_cache_key, columns=_COLUMNS, needs_words=False
)
ENGINE_DISTANCE_SECTION = PageSection("How far the copy is from the engine", _describe)


def list_engine_kinds() -> dict[str, JsonObject]:
    """Return what a run beside an engine computes of each clip, with its options."""
    return {ENGINE_DISTANCE_KIND.name: {}}
