"""speechmix: context mixing in speech Transformers, which frames and words build which, layer by
layer.

>>> import speechmix
>>> model = speechmix.load("openai/whisper-small")                                        # doctest: +SKIP
>>> clip = speechmix.Clip.from_file("a.wav", text="elle a perdu les livres", cue="les", target="livres")  # doctest: +SKIP
>>> maps = speechmix.mix(model, speechmix.align(clip), measures=["value_zeroing"])        # doctest: +SKIP
"""

from importlib import import_module

__version__ = "0.2.0"

# Public names and where they live. Imported when first used, so that `import speechmix` is quick.
_PUBLIC = {
    "load": "adapters.loading.load",
    "register": "adapters.families.registry",
    "infer_family": "adapters.tracing.infer_family",
    "register_measure": "mixing.measures.measure_functions",
    "register_perturbation": "evaluation.faithfulness.perturbations",
    "Family": "adapters.families.family",
    "mix": "mixing.passes.mix",
    "states": "mixing.passes.layer_states",
    "unit_states": "evaluation.unit_states",
    "write_states": "evaluation.states_file",
    "unit_features": "evaluation.unit_features",
    "estimate": "mixing.passes.estimate",
    "logit_contributions": "mixing.passes.logit_contributions",
    "Clip": "inputs.clips.clip",
    "read_clips": "inputs.clips.manifests",
    "segment_clip": "inputs.clips.sound_segments",
    "Sentence": "inputs.sentences.sentence",
    "align": "alignment",
    "Word": "inputs.words.spans",
    "Span": "inputs.words.spans",
    "MixingMap": "mixing.maps.mixing_map",
    "LogitContributions": "mixing.maps.logit_contributions",
    "cue_contribution": "evaluation.cue_contribution",
    "answer_shares": "evaluation.answer_source_shares",
    "mute": "interventions.audio_removal",
    "blank": "interventions.token_removal",
    "knock_out": "interventions.value_knock_out",
    "patch": "interventions.patching",
    "ablate": "interventions.cue_ablation",
    "ablate_input": "interventions.input_ablation",
    "shapley": "interventions.shapley",
    "continuum": "interventions.continua",
    "graded_changes": "interventions.continua",
    "spectral_explain": "explanations.spectral_explain",
    "explain": "explanations.explain",
    "lens": "interventions.lens",
    "lens_curves": "evaluation.lens_curves",
    "listening": "evaluation.listening.listening",
    "ground": "explanations.grounding.ground",
    "calibrate": "explanations.grounding.calibrate",
    "alignment_heads": "evaluation.alignment_heads",
    "phone_sources": "evaluation.phone_sources",
    "look_ahead": "evaluation.look_ahead_curves",
    "response_curve": "evaluation.response_curves",
    "Explanation": "explanations.explanation",
    "speech_ablation": "runs.speech_ablations",
    "faithfulness": "evaluation.faithfulness.evaluate",
    "blank_out": "evaluation.faithfulness.presets",
    "deletion_curves": "evaluation.faithfulness.presets",
    "trajectory": "runs.trajectory_runs",
    "open_run": "runs.results.open_run",
    "scorer": "runs.dataset_scorer",
    "probe": "evaluation.probing.probe",
    "encode": "evaluation.encoding",
    "similarity": "evaluation.similarity.similarity",
    "add_covariates": "evaluation.covariates",
    "mixed_model": "evaluation.statistics.mixed_models",
    "power": "evaluation.statistics.power",
    "groups_needed": "reporting.pages.study_planning",
    "compare": "reporting.pages.model_comparison",
    "french_study": "studies.french.french_study",
    "planted": "evaluation.planted",
    "plots": "reporting.plots",
    "SpeechmixError": "errors",
}

_MODULES = ("planted", "plots")

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'speechmix' has no attribute {name!r}")
    module = import_module(f".{_PUBLIC[name]}", __name__)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
