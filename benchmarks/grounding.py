"""What grounding a window costs, beside transcribing it: the ratio that `speechmix ground` takes.

    python benchmarks/grounding.py [--layers 6] [--width 512] [--words 25] [--tokens 3] [--repeats 3]

A Whisper of base's shape with random weights, a window of 30 s with 25 s of noise, and a text of so many words, each of
three tokens. Transcribing is one pass of the encoder and as many greedy steps as the text has tokens; grounding is that and
all readings of the words. Of a CTC model: one pass of the bundled model's, and all passes. Processor time, one process,
taking turns. Nothing is asserted; not collected by pytest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_prefix
from speechmix.adapters.generation.greedy_generation import generate_greedily, transcribe
from speechmix.extensions.grounding.readers import find_reader
from speechmix.extensions.grounding.windows import DecodedWindow, decode_windows
from speechmix.inputs import bundled

SECONDS, RATE = 25, 16_000


def build_model(layers: int, width: int) -> speechmix.load:
    """Return a Whisper of this shape, with the tokenizer of the bundled one."""
    torch.manual_seed(0)
    tokenizer = speechmix.load(bundled.models()["tiny-french-whisper"]).tokenizer
    config = transformers.WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        vocab_size=51_865,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.convert_tokens_to_ids("<|startoftranscript|>"),
    )
    module = transformers.WhisperForConditionalGeneration(config).eval()
    processor = transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(), tokenizer)
    return speechmix.load(module, processor=processor, check=False)


def time_decoder(options: argparse.Namespace) -> list[tuple[float, float]]:
    """Processor seconds of transcribing and of the readings, for each repeat."""
    model = build_model(options.layers, options.width)
    noise = 0.1 * np.random.default_rng(0).standard_normal(SECONDS * RATE).astype(np.float32)
    clip = speechmix.Clip.from_array(noise, RATE, language="fr")
    letters = "abcdefgh"[: options.tokens - 1]
    text = " ".join([letters] * options.words)
    ids = model.tokenizer(" " + text, add_special_tokens=False).input_ids
    prefix = decoder_prefix(model, clip)
    reader = find_reader(model)
    pairs = []
    for _ in range(options.repeats + 1):  # the first encodes silence, once for a model
        with model.unchanged():
            plain = _processor_seconds(lambda: generate_greedily(model, clip, max_tokens=len(ids)))
            prepared = model.family.prepare(model, clip, ("encoder",))
            window = DecodedWindow(
                0.0,
                noise,
                RATE,
                prepared.inputs,
                (*prefix, *ids),
                len(prefix),
                audio_hash=prepared.audio_hash,
            )
            pairs.append((plain, _processor_seconds(partial(reader.read, window))))
    return pairs[1:]


def time_frames(options: argparse.Namespace) -> list[tuple[float, float]]:
    """The same of the bundled CTC model, for twenty seconds of its clips."""
    model = speechmix.load(bundled.models()["tiny-french-ctc"])
    audio = np.concatenate([clip.audio(RATE) for clip in bundled.clips()[:15]])[: 20 * RATE]
    clip = speechmix.Clip.from_array(audio, RATE)
    reader = find_reader(model)
    [window] = decode_windows(model, clip)
    reader.read(window)
    return [
        (
            _processor_seconds(lambda: transcribe(model, clip)),
            _processor_seconds(lambda: reader.read(window)),
        )
        for _ in range(options.repeats)
    ]


def _processor_seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--words", type=int, default=25)
    parser.add_argument("--tokens", type=int, default=3, help="of a word")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    pairs = time_decoder(options)
    plain, readings = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(
        f"decoder: transcribing {plain:.2f} s, readings {readings:.2f} s: {1 + readings / plain:.2f} times"
    )
    pairs = time_frames(options)
    plain, readings = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(
        f"CTC: transcribing {plain:.2f} s, grounding {readings:.2f} s: {readings / plain:.2f} times"
    )


if __name__ == "__main__":
    main()
