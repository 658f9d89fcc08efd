"""Tiny sequence-to-sequence recognisers with the processors that their checkpoints come with: a
folder, a clip, a transcript.

Moonshine, Speech2Text and SpeechT5 with random weights. Tokenizers of the last two are
SentencePiece's, trained here on a few lines; Moonshine's reads letters.
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
import transformers

import speechmix

TEXT = "le chat dort ici"
_LINES = [
    "le chat dort ici",
    "la chatte mange",
    "elle a perdu les livres",
    "dors mon petit quinquin",
    "un kiwi w x y z b j v g h f",
]
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
_SIDES = {
    f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")
}
_SIDES |= {f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")}


@cache
def pieces(kind: str, *languages: str) -> bytes:
    """A SentencePiece model of `_LINES`: letters, or pieces of several."""
    import sentencepiece

    model, size = (
        io.BytesIO(),
        {} if kind == "char" else {"vocab_size": 60, "hard_vocab_limit": False},
    )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_LINES),
        model_writer=model,
        model_type=kind,
        user_defined_symbols=list(languages),
        minloglevel=2,
        **{"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3, **size},
    )
    return model.getvalue()


def moonshine(folder: Path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {
        token: i for i, token in enumerate([*_SPECIAL, *sorted({*"".join(_LINES)} - {" "}), "▁"])
    }
    made = Tokenizer(models.BPE(vocab=letters, merges=[], unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = (
        pre_tokenizers.Metaspace(prepend_scheme="never"),
        decoders.Metaspace(),
    )
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    heads = {f"{side}_num_attention_heads": 2 for side in ("encoder", "decoder")}
    heads |= {f"{side}_num_key_value_heads": 2 for side in ("encoder", "decoder")}
    layers = {f"{side}_num_hidden_layers": 2 for side in ("encoder", "decoder")}
    config = transformers.MoonshineConfig(
        hidden_size=32,
        intermediate_size=48,
        vocab_size=len(letters),
        decoder_start_token_id=0,
        **heads,
        **layers,
        **_IDS,
    )
    return (
        transformers.MoonshineForConditionalGeneration(config),
        transformers.Wav2Vec2FeatureExtractor(),
        tokenizer,
    )


def speech_to_text(folder: Path, *, languages: bool = False):
    codes = (
        [f"<lang:{code}>" for code in ("pt", "fr", "ru", "nl", "ro", "it", "es", "de")]
        if languages
        else []
    )
    spm = pieces("unigram", *codes)
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    import sentencepiece

    loaded = sentencepiece.SentencePieceProcessor(model_proto=spm)
    vocabulary = {loaded.id_to_piece(i): i for i in range(loaded.get_piece_size())}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    told = {"tgt_lang": "fr", "lang_codes": "mustc"} if languages else {}
    tokenizer = transformers.Speech2TextTokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), **told
    )
    config = transformers.Speech2TextConfig(
        d_model=32,
        conv_channels=24,
        vocab_size=len(vocabulary),
        decoder_start_token_id=2,
        **_SIDES,
        **_IDS,
    )
    extractor = transformers.Speech2TextFeatureExtractor()
    return transformers.Speech2TextForConditionalGeneration(config), extractor, tokenizer


def speecht5(folder: Path):
    spm = folder / "spm_char.model"
    spm.write_bytes(pieces("char"))
    tokenizer = transformers.SpeechT5Tokenizer(str(spm))
    small = {
        "hidden_size": 32,
        "conv_dim": (16,) * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
    }
    config = transformers.SpeechT5Config(
        vocab_size=len(tokenizer), decoder_start_token_id=2, **small, **_SIDES, **_IDS
    )
    return (
        transformers.SpeechT5ForSpeechToText(config),
        transformers.SpeechT5FeatureExtractor(),
        tokenizer,
    )


MODELS = {"moonshine": moonshine, "speech-to-text": speech_to_text, "speecht5": speecht5}


def saved(name: str, folder: Path) -> Path:
    """A folder in hub format, with the model and its processor."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, extractor, tokenizer = MODELS[name](folder)
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(0, 0.25)
    module.generation_config.max_length = 40
    for part in (module, extractor, tokenizer):
        part.save_pretrained(folder)
    return folder


def clip(text: str | None = TEXT, seconds: float = 1.6, **options) -> speechmix.Clip:
    """A clip of noise with its words, evenly spread."""
    words = TEXT.split()
    step = seconds / len(words)
    times = [(word, round(step * i, 3), round(step * (i + 1), 3)) for i, word in enumerate(words)]
    audio = 0.1 * np.random.default_rng(0).standard_normal(round(16_000 * seconds)).astype(
        np.float32
    )
    return speechmix.Clip.from_array(audio, 16_000, text=text, words=times, **options)
