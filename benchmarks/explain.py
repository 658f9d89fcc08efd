"""What explaining every token of a ten-second clip costs, beside transcribing it: the measures that
take nothing away.

    python benchmarks/explain.py [--layers 12] [--words 12] [--measure NAME ...] [--repeats 1]
    python benchmarks/explain.py --backward gradient_input chefer lrp [--tokens 6]

A Whisper of small's shape with random weights (1,500 encoder frames), a clip of noise with its
words, a text of about three tokens a word. Both are timed in one process by its processor time, one
after the other; the transcript is as many greedy steps as the text has tokens. An explanation
transcribes first, so the whole is the sum of both. The model's fingerprint, made once a model, and
imports are not counted. Measures that run the model for each word (occlusion, Value Zeroing) can be
asked for, and cost as many runs.

With --backward it is told instead what a token costs with measures that go back through the model
from each token: one token by itself, and each further one of several that are asked together.
Nothing is asserted about time; not collected by pytest.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters.generation.greedy_generation import generate_greedily
from speechmix.inputs import bundled
from speechmix.mixing.passes.forward_pass import mix_objectives

CHEAP = ("attention", "alti_logit")
SECONDS, RATE = 10, 16_000


def model_of(layers: int) -> speechmix.adapters.Model:
    """Whisper-small's shape, with the tokenizer of the bundled one."""
    torch.manual_seed(0)
    tokenizer = speechmix.load(bundled.models()["tiny-french-whisper"]).tokenizer
    config = transformers.WhisperConfig(
        d_model=768,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        vocab_size=51_865,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.convert_tokens_to_ids("<|startoftranscript|>"),
    )
    module = transformers.WhisperForConditionalGeneration(config).eval()
    processor = transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(), tokenizer)
    return speechmix.load(module, processor=processor, check=False)


def clip_of(words: int) -> speechmix.Clip:
    """Noise with words of two letters, evenly spread."""
    step, generator = SECONDS / words, np.random.default_rng(0)
    texts = ["".join(generator.choice(list("abcdefgh"), 2)) for _ in range(words)]
    times = [(text, step * place, step * (place + 1)) for place, text in enumerate(texts)]
    audio = 0.1 * generator.standard_normal(SECONDS * RATE).astype(np.float32)
    return speechmix.Clip.from_array(audio, RATE, text=" ".join(texts), words=times, language="fr")


def seconds_of(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def tell_backward(
    model: speechmix.adapters.Model, clip: speechmix.Clip, measure: str, tokens: int
) -> None:
    """Print what a token costs alone, and beside others."""
    logits = [(3 + place, 100 + place) for place in range(tokens)]

    def made(objectives: list[tuple[int, int]]) -> None:
        if measure == "lrp":
            speechmix.logit_contributions(model, clip, objective=objectives, measure=measure)
        else:
            mix_objectives(
                model, clip, objectives, measure, stacks=["encoder", "decoder"], layers=0
            )

    before, together, behind = (
        seconds_of(lambda asked=asked: made(asked)) for asked in (logits[:1], logits, logits[:1])
    )
    alone = (before + behind) / 2
    further = (together - alone) / (tokens - 1)
    print(
        f"{measure}: a token alone {alone:.1f} s of the processor ({before:.1f}, {behind:.1f}), "
        f"each further one of {tokens} "
        f"together {further:.1f} s: {alone / further:.1f} times cheaper",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--measure", nargs="+", default=list(CHEAP))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--backward", nargs="+", default=[])
    parser.add_argument("--tokens", type=int, default=6)
    options = parser.parse_args()
    model, clip = model_of(options.layers), clip_of(options.words)
    print(f"model {model.fingerprint}, {speechmix.explain.__name__}")  # and what it imports
    if options.backward:
        with model.unchanged():
            for measure in options.backward:
                tell_backward(model, clip, measure, options.tokens)
        return
    seconds: dict[str, list[float]] = {"transcribed": [], "explained": []}
    count = len(model.tokenizer(f" {clip.text}", add_special_tokens=False).input_ids)
    asked = {"text": clip.text, "by": "token", "measures": options.measure, "top": 0}
    why: list[speechmix.Explanation] = []
    for _ in range(options.repeats):
        with (
            model.unchanged()
        ):  # as within one explanation, which transcribes first: what is heard is remembered
            seconds["transcribed"].append(
                seconds_of(lambda: generate_greedily(model, clip, max_tokens=count))
            )
            seconds["explained"].append(
                seconds_of(lambda: why.append(speechmix.explain(model, clip, **asked)))
            )
    transcribed, explained = (statistics.median(times) for times in seconds.values())
    print(
        f"{options.layers} + {options.layers} layers, {len(why[0].units)} tokens, "
        f"{len(why[0].sources)} sources, "
        f"{', '.join(options.measure)}: transcribed {transcribed:.1f} s, explained {explained:.1f} "
        "s of the processor; "
        f"with the transcript {1 + explained / transcribed:.2f} times the transcript"
    )


if __name__ == "__main__":
    main()
