"""Modules that were called otherwise before the rooms: the former names still import, with a DeprecationWarning.

In: a former name, as ``speechmix.clips``. Out: the very module that has taken its place, ``speechmix.inputs.clips``.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = {
    "adapters.blocks": "adapters.plans",
    "adapters.captured": "adapters.block",
    "adapters.carrier": "adapters.delta.carrier",
    "adapters.changes": "adapters.delta.changes",
    "adapters.products": "adapters.delta.products",
    "adapters.registry": "adapters.families.registry",
    "adapters.seq2seq": "adapters.families.seq2seq",
    "adapters.text_decoders": "adapters.families.text_decoders",
    "adapters.text_encoders": "adapters.families.text_encoders",
    "adapters.wav2vec2": "adapters.families.wav2vec2",
    "adapters.whisper": "adapters.families.whisper",
    "aggregation": "maps.aggregation",
    "alignment.readers": "inputs.word_files",
    "alignment.textgrid": "inputs.textgrid",
    "audio": "inputs.audio",
    "batches": "scoring.batches",
    "clips": "inputs.clips",
    "comparing": "reports.comparing",
    "corpora.rows": "inputs.rows",
    "evaluation.ablation": "interventions.ablation",
    "frames": "inputs.frames",
    "homophony.commands": "cli.homophony",
    "homophony.french_parser": "homophony.french.parser",
    "homophony.french_text": "homophony.french.text",
    "homophony.french_words": "homophony.french.words",
    "homophony.journal": "stages.journal",
    "homophony.lexicon": "homophony.french.lexicon",
    "homophony.lexicon_files": "homophony.french.lexicon_files",
    "homophony.spoken_french": "homophony.french.spoken",
    "manifests": "inputs.manifests",
    "map_files": "maps.files",
    "measures.flow": "maps.flow",
    "measures.numerics": "maps.numerics",
    "measures.rollout": "maps.rollout",
    "mixing": "maps.mixing",
    "reports.alignment_table": "plots.alignment_table",
    "reports.clip_figure": "plots.one_clip",
    "reports.commands": "cli.reports",
    "reports.cue_curves": "plots.cue_curves",
    "reports.cue_heat_maps": "plots.cue_heat_maps",
    "reports.cue_tables": "plots.cue_tables",
    "reports.distributions": "plots.distributions",
    "reports.figures": "plots.figures",
    "reports.panels": "plots.panels",
    "reports.player": "inputs.player",
    "reports.published_figures": "plots.published_figures",
    "reports.run_folder": "storage.reading",
    "reports.sound_panels": "plots.sound_panels",
    "reports.timed_maps": "plots.timed_maps",
    "reports.unit_labels": "plots.unit_labels",
    "sentences": "inputs.sentences",
    "sides": "scoring.views",
    "spans": "inputs.spans",
    "text_files": "files.text_files",
    "words": "inputs.words",
}


class FormerNames(MetaPathFinder, Loader):
    """Finds modules by their former names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, former = name.partition(".")
        return ModuleSpec(name, self) if package == __package__ and former in FORMER else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        present = f"{__package__}.{FORMER[spec.name.partition('.')[2]]}"
        warnings.warn(f"{spec.name} is now called {present}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(present)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:  # the import system has put its own; the module is the one it was
            module.__spec__ = spec.loader_state
        sys.modules[module.__name__] = module


def install() -> None:
    """Let the former names be found, after everything else."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
