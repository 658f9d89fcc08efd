"""speechmix: context mixing in speech Transformers, which frames and words build which, layer by layer.

>>> import speechmix
>>> model = speechmix.load("openai/whisper-small")                                        # doctest: +SKIP
>>> clip = speechmix.Clip.from_file("a.wav", text="elle a perdu les livres", cue="les", target="livres")  # doctest: +SKIP
>>> maps = speechmix.mix(model, speechmix.align(clip), measures=["value_zeroing"])        # doctest: +SKIP
"""

from importlib import import_module

__version__ = "0.2.0"

# Public names and where they live. Imported when first used, so that `import speechmix` is quick.
_PUBLIC = {
    "load": "adapters.load",
    "register": "adapters.families.registry",
    "register_measure": "measures.registry",
    "register_perturbation": "evaluation.faithfulness.perturbations",
    "Family": "adapters.plans",
    "mix": "scoring.forward",
    "estimate": "scoring.estimate",
    "logit_contributions": "scoring.to_logit",
    "Clip": "inputs.clips",
    "read_clips": "inputs.manifests",
    "Sentence": "inputs.sentences",
    "align": "alignment",
    "Word": "inputs.spans",
    "Span": "inputs.spans",
    "MixingMap": "maps.mixing",
    "LogitContributions": "maps.logit_contributions",
    "cue_contribution": "evaluation.cue",
    "answer_shares": "evaluation.answer_shares",
    "silence": "interventions.sound",
    "blank": "interventions.tokens",
    "knock_out": "interventions.knock_out",
    "patch": "interventions.patching",
    "ablate": "interventions.ablation",
    "ablate_input": "interventions.input_ablation",
    "shapley": "interventions.shapley",
    "explain": "explanations.explain",
    "Explanation": "explanations.explanation",
    "speech_ablation": "experiments.speech_ablations",
    "faithfulness": "evaluation.faithfulness.trial",
    "blank_out": "evaluation.faithfulness.blank_out",
    "deletion_curves": "evaluation.faithfulness.deletion",
    "open_run": "storage.reading",
    "scorer": "corpora.scorer",
    "probe": "evaluation.probing.probe",
    "compare": "reports.comparing",
    "french_study": "homophony.french_study",
    "planted": "planted",  # a module, as is plots
    "plots": "plots",
    "SpeechmixError": "errors",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'speechmix' has no attribute {name!r}")
    module = import_module(f".{_PUBLIC[name]}", __name__)
    value = module if name == _PUBLIC[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
