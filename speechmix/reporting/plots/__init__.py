"""The figures, for one's own axes: `from speechmix import plots`.

Everything draws with matplotlib and returns what it drew on: an Axes where one panel is drawn (give
``ax=``), a Figure where there are several; `figure.savefig("x.pdf")` (or .svg, .png) writes it at
the size it has in a paper.

| of a map (`MixingMap`) | |
|---|---|
| `heat_map` | one layer, targets downwards, sources to the right |
| `layer_grid`, `head_grid` | small multiples over layers; over layers and heads |
| `coloured_tokens` | one row at a time, tokens coloured by their share: in a notebook, a page, a terminal |
| `compare_tokens` | the same of all measures, below each other: page or figure |
| `timed_map`, `sound_and_map` | words or frames at their times; under the spectrogram |
| `difference_map` | trained - random, plural - singular, model A - model B; zero is white |
| `clip_figure` | a clip at a glance: sound, maps in some layers, curves |
| `blank_out_figure`, `deletion_figure` | texts: rank correlations of `blank_out`, layers by measures; `deletion_curves` |
| `decision_map`, `decision_heat_map` | what a decision loses with each word: all stacks, or one (of a `DecisionMap`) |
| `routes_figure` | the strongest routes through the layers to one row (of `speechmix.mixing.maps.composition.Routes`) |
| `alignment_head_map` | errors of word boundaries by layer and head (of `speechmix.alignment_heads`) |
| `look_ahead_figure` | what a word loses without what comes later, over the delay and by layer (of `speechmix.look_ahead`) |
| `lens_panel`, `lens_curve_panel` | margins and text of each layer (`speechmix.lens`); over clips (`speechmix.lens_curves`) |
| `phone_sources_figure` | what the states of phones are made of, by class or position (of `speechmix.phone_sources`) |
| `response_panel` | what a model decides along a continuum, and where it crosses 50 % (of `speechmix.response_curve`) |
| `similarity_figure`, `similarity_panel` | layers over layers, features over layers (of `speechmix.similarity`) |
| `spectral_figure` | which frequency band of which word a decision rests on, with formants (of `speechmix.spectral_explain`) |
| `reliability_diagram` | how well the probabilities of `speechmix.calibrate` fit held-out words |
| `explained_text`, `explained_word` | what each written word came from; one word, claimed and shown (of an `Explanation`) |

| of a table of contributions (`cue_contribution.parquet` of a run) | |
|---|---|
| `measure_heat_map`, `cue_heat_map` | layers by measures, trained beside random (Figures 1 and 2 of Mohebbi et al. 2023) |
| `cue_difference_map` | the same for a difference of two conditions |
| `layer_curves`, `cue_figure` | lines over layers or relative depth with bands; panels per measure, template, cue |
| `model_panels` | many models: a panel for each, its stacks over relative depth |
| `clip_distribution`, `distribution_figure` | how single clips are spread |
| `trajectory_panel`, `trajectory_heat_map`, `animate_trajectory` | steps, steps by layers (`speechmix.trajectory`) |
| `encoding_figure` | what sets of features explain of the states of each layer (of `speechmix.encode`) |
| `probe_figure`, `probe_and_mixing` | what probes read over relative depth (Figure 4); above the mixing curve |
| `published_contributions`, `published_probing` | the published figures as such tables; `published=True` draws them beside |

Examples
--------
>>> import pandas as pd
>>> from speechmix import plots
>>> table = pd.DataFrame({"model": "a", "init": "trained", "clip": ["x", "x"], "stack": "encoder", "layer": [0, 1],
...                       "measure": "attention", "contribution": [0.1, 0.3]})
>>> plots.layer_curves(table, x="depth").get_xlabel()
'relative depth (0 first layer, 1 last)'
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ...extension import exported_names, extensions, find_export, warn_of_core_names

if TYPE_CHECKING:
    from .clip_overview import clip_figure as clip_figure
    from .cue_curves import cue_figure as cue_figure
    from .cue_curves import layer_curves as layer_curves
    from .cue_heat_maps import cue_difference_map as cue_difference_map
    from .cue_heat_maps import cue_heat_map as cue_heat_map
    from .cue_heat_maps import measure_heat_map as measure_heat_map
    from .cue_tables import published_contributions as published_contributions
    from .cue_tables import published_probing as published_probing
    from .decision_maps import decision_heat_map as decision_heat_map
    from .decision_maps import decision_map as decision_map
    from .distributions import clip_distribution as clip_distribution
    from .distributions import distribution_figure as distribution_figure
    from .head_grids import head_grid as head_grid
    from .map_figures import difference_map as difference_map
    from .map_figures import heat_map as heat_map
    from .map_figures import layer_grid as layer_grid
    from .map_figures import sound_and_map as sound_and_map
    from .map_figures import timed_map as timed_map
    from .route_figures import routes_figure as routes_figure
    from .token_colours import coloured_tokens as coloured_tokens
    from .token_colours import compare_tokens as compare_tokens

# Imported when first used: matplotlib takes half a second.
_FIGURES = {
    "clip_overview": ("clip_figure",),
    "cue_curves": ("cue_figure", "layer_curves"),
    "cue_heat_maps": ("cue_difference_map", "cue_heat_map", "measure_heat_map"),
    "cue_tables": ("published_contributions", "published_probing"),
    "decision_maps": ("decision_heat_map", "decision_map"),
    "distributions": ("clip_distribution", "distribution_figure"),
    "head_grids": ("head_grid",),
    "map_figures": ("difference_map", "heat_map", "layer_grid", "sound_and_map", "timed_map"),
    "route_figures": ("routes_figure",),
    "token_colours": ("coloured_tokens", "compare_tokens"),
}
__all__ = [name for names in _FIGURES.values() for name in names]
warn_of_core_names(extensions(), "figures", __all__)
__all__ += exported_names("figures")


def __getattr__(name: str) -> object:
    module = next((module for module, names in _FIGURES.items() if name in names), None)
    value: object = (
        getattr(import_module(f".{module}", __name__), name)
        if module
        else find_export(name, "figures")
    )
    globals()[name] = value
    return value
