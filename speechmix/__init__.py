"""speechmix: context mixing in speech Transformers, which frames and words build which, layer by
layer.

>>> import speechmix
>>> model = speechmix.load("openai/whisper-small")                                        # doctest: +SKIP
>>> clip = speechmix.Clip.from_file("a.wav", text="elle a perdu les livres", cue="les", target="livres")  # doctest: +SKIP
>>> maps = speechmix.mix(model, speechmix.align(clip), measures=["value_zeroing"])        # doctest: +SKIP
"""

from importlib import import_module

__version__ = "0.2.0"

# Public names of the core and where they live; extensions add theirs. Imported when first used, so
# that `import speechmix` is quick.
_PUBLIC = {
    "load": "adapters.loading.load",
    "register": "adapters.families.registry",
    "register_measure": "mixing.measures.measure_functions",
    "Family": "adapters.families.family",
    "mix": "mixing.passes.mix",
    "Clip": "inputs.clips.clip",
    "read_clips": "inputs.clips.manifests",
    "segment_clip": "inputs.clips.segments",
    "Sentence": "inputs.sentences.sentence",
    "align": "alignment",
    "Word": "inputs.words.spans",
    "Span": "inputs.words.spans",
    "MixingMap": "mixing.maps.mixing_map",
    "LogitContributions": "mixing.maps.logit_contributions",
    "cue_contribution": "evaluation.cue_contribution",
    "mute": "interventions.removals",
    "blank": "interventions.removals",
    "knock_out": "interventions.value_knock_out",
    "ablate": "interventions.value_knock_out",
    "open_run": "runs.results.open_run",
    "french_study": "studies.french.french_study",
    "plots": "reporting.plots",
    "SpeechmixError": "errors",
}

_MODULES = ("plots",)


def __getattr__(name: str) -> object:
    from .extension import exported_names, find_export

    if name == "__all__":  # for `import *`
        return [*_PUBLIC, *exported_names(), "__version__"]
    if name.startswith("__"):
        raise AttributeError(f"module 'speechmix' has no attribute {name!r}")
    if name in _PUBLIC:
        module = import_module(f".{_PUBLIC[name]}", __name__)
        value = module if name in _MODULES else getattr(module, name)
    else:
        value = find_export(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from .extension import exported_names

    return sorted([*_PUBLIC, *exported_names(), "__version__"])
