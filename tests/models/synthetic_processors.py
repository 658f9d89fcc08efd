"""Processors for tiny models of any speech type of transformers: the type's feature extractor, a
tokenizer that reads letters, and a prompt for audio language models.

In: a model type and its tiny module. Out: what `speechmix.load(processor=)` takes. The sizes of the
extractor are those that the module runs on; a prompt has as many audio tokens as the module makes
positions of the sound.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

RATE = 16_000
LETTERS = "▁lechatdorsminupvfgbjqwxyzk"
_EXTRACTORS = {
    **FEATURE_EXTRACTOR_MAPPING_NAMES,
    "wav2vec2-bert": "SeamlessM4TFeatureExtractor",
    "moonshine_streaming": "Wav2Vec2FeatureExtractor",
    "speech-encoder-decoder": "Wav2Vec2FeatureExtractor",
    "qwen2_5_omni_thinker": "WhisperFeatureExtractor",
    "qwen3_omni_moe_thinker": "WhisperFeatureExtractor",
}


def iterate_parts(config: Any) -> Iterator[Any]:
    """The config and those within it."""
    yield config
    for value in vars(config).values():
        if isinstance(value, transformers.PretrainedConfig):
            yield from iterate_parts(value)


def build_tokenizer(config: Any) -> Any:
    """A tokenizer of letters, whose special tokens are those of the config."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = ("text_config", "decoder_config", "decoder")
    text = next((getattr(config, name) for name in names if hasattr(config, name)), config)
    ids: dict[str, int] = {}
    for part in iterate_parts(config):
        for name, value in part.to_dict().items():
            kind = re.fullmatch(r"(\w+)_token_(id|index)", name)
            if kind and isinstance(value, int) and value >= 0:
                ids.setdefault(kind[1], value)
    specials = {value: f"<{name}>" for name, value in reversed(ids.items())}
    unused = (number for number in itertools.count() if number not in specials)
    vocabulary = {name: number for number, name in specials.items()}
    vocabulary |= {letter: next(unused) for letter in ["<unk>", *LETTERS]}
    size = getattr(text, "vocab_size", None) or 96
    vocabulary = {name: number for name, number in vocabulary.items() if number < size}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    made.decoder = decoders.Metaspace()
    kinds = [name for name in ("bos", "eos", "pad") if ids.get(name, size) < size]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        **{f"{name}_token": specials[ids[name]] for name in kinds},
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [name for name in specials.values() if name in vocabulary]}
    )
    return tokenizer


def build_ctc_tokenizer(config: Any) -> Any:
    """The tokenizer of wav2vec 2.0, with letters."""
    signs = ["<pad>", "<s>", "</s>", "<unk>", "|", *LETTERS[1:]][: config.vocab_size]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        path.write_text(json.dumps({sign: number for number, sign in enumerate(signs)}))
        return transformers.Wav2Vec2CTCTokenizer(str(path))


def build_extractor(model_type: str, shapes: Mapping[str, torch.Tensor], config: Any) -> Any:
    """The type's feature extractor, with the sizes of the inputs that its module runs on.

    Raises
    ------
    ValueError
        If transformers has none, or none of the sizes fit.
    """
    kind = getattr(transformers, _EXTRACTORS.get(model_type, ""), None)
    name, features = next(iter(shapes.items()))
    if kind is None or name not in ("input_values", "input_features"):
        raise ValueError(f"transformers has no feature extractor for {model_type}")
    if features.ndim == 2:
        return kind()
    sizes = list(features.shape[1:])
    frames = max(sizes)
    positions = [getattr(part, "max_source_positions", 0) for part in iterate_parts(config)]
    for axis in sorted((0, 1), key=lambda axis: sizes[axis]):
        bins = sizes[axis]
        for options in (
            {"num_mel_bins": bins, "feature_size": bins, "max_length": frames},  # of AST
            {"num_mel_bins": bins // 2, "feature_size": bins // 2},  # of SeamlessM4T, by pairs
            {"num_mel_bins": bins, "feature_size": bins},
            {"feature_size": bins},
            {"n_mels": bins // 2},  # of Granite-speech, by pairs
        ):
            try:
                extractor = kind(**options)
                if frames in [2 * count for count in positions] and hasattr(extractor, "n_samples"):
                    extractor.nb_max_frames = frames  # a window of Whisper's, not of 30 s
                    extractor.n_samples = frames * extractor.hop_length
                made = extract(extractor, np.full(RATE, 0.01, np.float32), name)[name]
            except (TypeError, ValueError, RuntimeError):  # sizes of another extractor
                continue
            if made.ndim == 3 and made.shape[1 + axis] == bins:
                return extractor
    raise ValueError(f"no size of {kind.__name__} fits {sizes}")


def extract(extractor: Any, audio: np.ndarray, name: str) -> dict[str, torch.Tensor]:
    """Features under their names, with a mask where the extractor makes one."""
    if "Granite" in type(extractor).__name__:
        return {name: extractor(torch.as_tensor(audio)[None])[name]}
    options = {"sampling_rate": RATE, "return_tensors": "pt"}
    return dict(extractor(audio, return_attention_mask=True, **options))


class SyntheticChat:
    """Writes a prompt around a sound, as the processor of an audio language model does."""

    def __init__(self, module: Any, extractor: Any, tokenizer: Any, shapes: Mapping[str, Any]):
        self.feature_extractor, self.tokenizer, self._module = extractor, tokenizer, module
        token_id = module.config.audio_token_id
        self.audio_token = tokenizer.convert_ids_to_tokens(token_id)
        self._names = [name for name in shapes if name not in ("input_ids", "attention_mask")]

    def apply_chat_template(self, conversation: Any, processor_kwargs: Any = None, **_: Any) -> Any:
        parts = conversation[0]["content"]
        if processor_kwargs is None:
            return self.audio_token + "le"
        import soundfile

        audio, _ = soundfile.read(io.BytesIO(base64.b64decode(parts[0]["base64"])), dtype="float32")
        return self(text=[self.audio_token + "le"], audio=[audio])

    def __call__(self, *, text: Any, audio: Any, **_: Any) -> dict[str, torch.Tensor]:
        made = extract(self.feature_extractor, audio[0], self._names[0])
        masks = [value for name, value in made.items() if name.endswith("mask")]
        inputs = {self._names[0]: made[self._names[0]]}
        inputs |= {name: torch.as_tensor(masks[0]) for name in self._names[1:] if masks}
        dtype = next(self._module.parameters()).dtype
        base = self._module.base_model
        if not hasattr(base, "get_audio_features"):
            raise ValueError(f"{type(base).__name__} does not say how many positions a sound has")
        with torch.no_grad():
            output = base.get_audio_features(
                **{name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
            )
        states = getattr(output, "pooler_output", output)
        states = states if isinstance(states, (list, tuple)) else [states]
        count = sum(len(x.flatten(0, -2)) for x in states)
        written = text[0].replace(self.audio_token, self.audio_token * count)
        ids = self.tokenizer(written, return_tensors="pt", add_special_tokens=False)["input_ids"]
        return {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}


def build_processor(model_type: str, module: Any, shapes: Mapping[str, torch.Tensor]) -> Any:
    """What is loaded with the module.

    Parameters
    ----------
    model_type : str
        As in transformers' mappings.
    module : transformers model
    shapes : dict of str to Tensor
        Inputs that the module runs on.

    Raises
    ------
    ValueError
        If there is no feature extractor that makes such inputs.
    """
    extractor = build_extractor(model_type, shapes, module.config)
    of_letters = type(extractor).__name__ in (
        "Wav2Vec2FeatureExtractor",
        "SeamlessM4TFeatureExtractor",
    )
    is_ctc = type(module).__name__.endswith("ForCTC")
    tokenizer = (build_ctc_tokenizer if is_ctc and of_letters else build_tokenizer)(module.config)
    if "input_ids" in shapes and getattr(module.config, "audio_token_id", None) is not None:
        return SyntheticChat(module, extractor, tokenizer, shapes)
    return SimpleNamespace(feature_extractor=extractor, tokenizer=tokenizer)
