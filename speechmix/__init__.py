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
    "infer_family": "extensions.tracing.infer_family",
    "register_measure": "mixing.measures.measure_functions",
    "register_perturbation": "extensions.faithfulness.perturbations",
    "Family": "adapters.families.family",
    "mix": "mixing.passes.mix",
    "states": "extensions.states.layer_states",
    "unit_states": "extensions.states.unit_states",
    "write_states": "extensions.states.states_file",
    "unit_features": "extensions.encoding.unit_features",
    "estimate": "extensions.estimate.estimate",
    "logit_contributions": "extensions.logit_decompositions.logit_contributions",
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
    "continuum": "extensions.continua.continua",
    "graded_changes": "extensions.continua.continua",
    "spectral_explain": "extensions.spectral.spectral_explain",
    "explain": "extensions.explain.explain",
    "lens": "extensions.lens.lens",
    "lens_curves": "extensions.lens.lens_curves",
    "listening": "extensions.listening.listening",
    "ground": "extensions.grounding.ground",
    "calibrate": "extensions.grounding.calibrate",
    "alignment_heads": "extensions.alignment_heads.alignment_heads",
    "phone_sources": "extensions.phones.phone_sources",
    "look_ahead": "extensions.look_ahead.look_ahead_curves",
    "response_curve": "extensions.continua.response_curves",
    "Explanation": "extensions.explain.explanation",
    "speech_ablation": "extensions.speech_ablation.speech_ablations",
    "faithfulness": "extensions.faithfulness.evaluate",
    "blank_out": "extensions.faithfulness.presets",
    "deletion_curves": "extensions.faithfulness.presets",
    "trajectory": "extensions.trajectories.trajectory_runs",
    "open_run": "runs.results.open_run",
    "scorer": "runs.dataset_scorer",
    "probe": "extensions.probing.probe",
    "encode": "extensions.encoding.encoding",
    "similarity": "extensions.similarity.similarity",
    "add_covariates": "extensions.encoding.covariates",
    "mixed_model": "extensions.mixed_models.mixed_models",
    "power": "extensions.mixed_models.power",
    "groups_needed": "extensions.estimate.study_planning",
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
