"""The engines themselves, each as a small class that writes greedily: CTranslate2, whisper.cpp and ONNX
Runtime.

In: the path of a model, and an option behind the engine's name ("ctranslate2:int8"). Out: tokens with
their log probabilities, under the engine's own rules of what is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...adapters.generation.greedy_generation import list_logits_processors
from ...errors import InputError, MissingExtraError, ModelError
from ...inputs.clips.clip import Clip
from .engine_distance import EngineRuntime, EngineText

if TYPE_CHECKING:
    from ...adapters.model import Model


class _CTranslate2:
    """`ctranslate2.models.Whisper`; the option is its compute_type."""

    def __init__(self, path: Path, option: str) -> None:
        import ctranslate2

        self._engine = ctranslate2.models.Whisper(
            str(path.parent), device="cpu", compute_type=option or "default"
        )
        self._view = ctranslate2.StorageView.from_array
        self.description = f"ctranslate2 {version('ctranslate2')} ({self._engine.compute_type})"

    def write(self, model: Model, clip: Clip, prefix: Sequence[int], max_tokens: int) -> EngineText:
        generation = model.module.generation_config
        (result,) = self._engine.generate(
            self._view(_features(model, clip)),
            [list(prefix)],
            beam_size=1,
            max_length=len(prefix) + max_tokens,
            suppress_tokens=list(generation.suppress_tokens or []),
            return_logits_vocab=True,
        )
        ids = [*result.sequences_ids[0]]
        ended = len(result.logits[0]) > len(ids)  # the step that ends the text is among them
        ids += [model.tokenizer.eos_token_id] * ended
        steps = zip(ids, result.logits[0], strict=True)
        return EngineText(
            tuple(ids), tuple(_log_probability(row, id_) for id_, row in steps), ended
        )


class _WhisperCpp:
    """whisper.cpp, by its binding `pywhispercpp`; without its fallbacks to higher temperatures."""

    def __init__(self, path: Path, option: str) -> None:
        import _pywhispercpp
        from pywhispercpp.model import Model as WhisperCppModel

        self._binding = _pywhispercpp
        self._engine: Any = WhisperCppModel(str(path), redirect_whispercpp_logs_to=None)
        self.description = f"whisper.cpp (pywhispercpp {version('pywhispercpp')})"

    def write(self, model: Model, clip: Clip, prefix: Sequence[int], max_tokens: int) -> EngineText:
        binding, context = self._binding, self._engine._ctx
        options = binding.whisper_full_default_params(
            binding.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
        )
        options.no_timestamps = not model.prefix.timestamps
        options.single_segment = options.no_context = True
        options.n_threads = torch.get_num_threads()
        options.temperature_inc, options.max_tokens = 0.0, max_tokens
        options.print_progress = options.print_realtime = False
        options.translate = model.prefix.task == "translate"
        languages = {id_: text for text, id_ in _language_ids(model).items()}
        options.language = next((languages[id_][2:-2] for id_ in prefix if id_ in languages), "en")
        audio = np.ascontiguousarray(clip.audio(model.sample_rate), dtype=np.float32)
        if binding.whisper_full(context, options, audio, len(audio)) != 0:
            raise ModelError(f"whisper.cpp failed on {clip.name}")
        ids, values = [], []
        for segment in range(binding.whisper_full_n_segments(context)):
            for token in range(binding.whisper_full_n_tokens(context, segment)):
                ids.append(binding.whisper_full_get_token_id(context, segment, token))
                probability = binding.whisper_full_get_token_p(context, segment, token)
                values.append(float(np.log(max(probability, 1e-30))))
        ended = bool(ids) and ids[-1] == model.tokenizer.eos_token_id
        return EngineText(tuple(ids), tuple(values), ended)


class _OnnxRuntime:
    """`onnxruntime.InferenceSession` of an encoder and a decoder, or of a classifier; the option is the
    level of graph optimisation: all (default), extended, basic or disable."""

    def __init__(self, path: Path, option: str) -> None:
        import onnxruntime

        from .onnx_files import decoder_file

        settings = onnxruntime.SessionOptions()
        level = (
            "ORT_DISABLE_ALL" if option == "disable" else f"ORT_ENABLE_{(option or 'all').upper()}"
        )
        settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        decoder = decoder_file(path)
        paths = [path] if decoder is None else [path, decoder]
        self._sessions = [
            onnxruntime.InferenceSession(str(each), settings, providers=["CPUExecutionProvider"])
            for each in paths
        ]
        self.description = f"onnxruntime {version('onnxruntime')} ({option or 'all'} optimisations)"

    def write(self, model: Model, clip: Clip, prefix: Sequence[int], max_tokens: int) -> EngineText:
        states = self._sessions[0].run(None, {"input_features": _features(model, clip)})[0]
        if model.has_label_head:
            probability = float(np.ravel(states)[0])  # of the second label
            label = int(probability > 0.5)
            value = float(np.log(max(probability if label else 1 - probability, 1e-30)))
            return EngineText((label,), (value,), False)
        ids, values, end_id = [*prefix], [], model.tokenizer.eos_token_id
        processors = list_logits_processors(model, len(prefix))
        while len(ids) < min(len(prefix) + max_tokens, model.config.max_target_positions):
            row = torch.from_numpy(self._decode(model, ids, states)[:, -1].astype(np.float32))
            for process_logits in processors:
                row = process_logits(torch.tensor([ids]), row)
            ids.append(int(row[0].argmax()))
            values.append(_log_probability(row[0].numpy(), ids[-1]))
            if ids[-1] == end_id:
                break
        return EngineText(tuple(ids[len(prefix) :]), tuple(values), ids[-1] == end_id)

    def _decode(self, model: Model, ids: Sequence[int], states: np.ndarray) -> np.ndarray:
        """Logits [1, token, vocabulary] of all ids, without a cache."""
        session, config = self._sessions[1], model.config
        heads = config.decoder_attention_heads
        empty = np.zeros((1, heads, 0, config.d_model // heads), dtype=np.float32)
        value_by_input = {
            "input_ids": np.array([ids], dtype=np.int64),
            "encoder_hidden_states": states,
            "cache_position": np.arange(len(ids)),
            **dict.fromkeys(
                ("use_cache_branch", "use_cache"), np.array([False])
            ),  # of a merged one
        }
        names = [value.name for value in session.get_inputs()]
        fed = {name: value_by_input.get(name, empty) for name in names}
        return np.asarray(session.run(["logits"], fed)[0])


def _features(model: Model, clip: Clip) -> np.ndarray:
    features = model.family.prepare(model, clip, ("encoder",)).inputs["input_features"]
    return np.ascontiguousarray(features.float().numpy(force=True))


def _language_ids(model: Model) -> dict[str, int]:
    return getattr(model.module.generation_config, "lang_to_id", None) or {}


def _log_probability(logits: Any, id_: int) -> float:
    values = np.asarray(logits, dtype=np.float64)
    largest = values.max()
    return float(values[id_] - largest - np.log(np.exp(values - largest).sum()))


_RUNTIMES: dict[str, tuple[type, str, str]] = {  # class, package, how its formats begin
    "ctranslate2": (_CTranslate2, "ctranslate2", "CTranslate2"),
    "whisper.cpp": (_WhisperCpp, "pywhispercpp", "ggml"),
    "onnxruntime": (_OnnxRuntime, "onnxruntime", "ONNX"),
}


def check_runtime(name: str, format_name: str) -> None:
    """Raise an InputError for an engine that is not known, or does not run a format."""
    if name not in _RUNTIMES:
        raise InputError(f"engine= takes one of {', '.join(_RUNTIMES)}, found {name!r}")
    if not format_name.startswith(_RUNTIMES[name][2]):
        raise InputError(f"{name} does not run a model of the format {format_name}")
    if "(wav2vec2)" in format_name:
        raise InputError(f"{name} writes with a Whisper alone: of a wav2vec2, leave engine= out")
    if name == "whisper.cpp" and format_name.endswith(
        ", f32"
    ):  # seen in 1.8.5: it aborts the process
        raise InputError("whisper.cpp does not run convolutions of float32: give its f16 file")


def open_runtime(name: str, option: str, path: Path) -> EngineRuntime:
    """Open a model in an engine.

    Raises
    ------
    MissingExtraError
        Without the engine's package.
    ModelError
        If the engine refuses the model or the option.
    """
    runtime, package, _ = _RUNTIMES[name]
    try:
        opened: EngineRuntime = runtime(path, option)
    except ImportError as error:
        raise MissingExtraError(package, "engines", f"engine={name!r}") from error
    except Exception as error:  # an engine raises what it likes
        raise ModelError(f"{name} cannot open {path}: {str(error).strip()[:200]!r}") from error
    return opened
