"""What knocking out every word in every layer costs: all runs in one growing batch beside one pass
of the model each.

    python benchmarks/interventions.py [--layers 24] [--words 20] [--hidden 512] [--pairs 24]

Random weights: a text decoder (GPT-2) and a Whisper whose decoder is asked about (1500 encoder
frames), each word a token. The naive way runs the model again for every (layer, word), with a hook
that zeroes the values; of a Whisper it is given the encoder's output, so that the encoder runs once
in both ways. It is timed on some pairs, evenly chosen, and multiplied. In each repeat both ways
take turns; margins must agree. Nothing is asserted about time; not collected by pytest.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import torch
import transformers

import speechmix
from speechmix.interventions.decision import Decision
from speechmix.interventions.value_knock_out import knock_out_words


def text_decoder(options) -> tuple[speechmix.adapters.Model, dict]:
    config = transformers.GPT2Config(
        n_embd=options.hidden, n_layer=options.layers, n_head=8, n_positions=64, vocab_size=1000
    )
    ids = torch.arange(options.words)[None] + 5
    return speechmix.load(transformers.GPT2LMHeadModel(config).eval()), {"input_ids": ids}


def whisper(options) -> tuple[speechmix.adapters.Model, dict]:
    config = transformers.WhisperConfig(
        d_model=options.hidden,
        encoder_layers=4,
        decoder_layers=options.layers,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=4 * options.hidden,
        decoder_ffn_dim=4 * options.hidden,
        vocab_size=1000,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    features = torch.randn(1, config.num_mel_bins, 3000, generator=torch.Generator().manual_seed(0))
    ids = torch.arange(options.words)[None] + 5
    model = speechmix.load(transformers.WhisperForConditionalGeneration(config).eval())
    return model, {"input_features": features, "decoder_input_ids": ids}


SHAPES = {"text": text_decoder, "whisper": whisper}


def naive(decision: Decision, stack: str, pairs: list[tuple[int, int]]) -> list[float]:
    """Margins of one pass each, with values zeroed by a hook of the projection."""
    model, inputs = decision.model, dict(decision.inputs)
    margins = []
    with torch.no_grad(), model.in_use():
        if "cross" in model.stacks:
            inputs["encoder_outputs"] = model.family.run(model.base, inputs, ("encoder",))
            del inputs["input_features"]
        for layer, position in pairs:
            attention = model.stacks[stack].layers[layer].attention
            width = (
                attention.value.weight.shape[-1] - attention.output.weight.shape[0]
            )  # GPT-2 holds q, k, v in one

            def zero(module, args, output, position=position, width=width):
                output = output.clone()
                output[:, position, -output.shape[-1] // (3 if width else 1) :] = 0
                return output

            handle = attention.value.register_forward_hook(zero)
            margins.append(decision.compute_margins(model.module(**inputs, use_cache=False)).item())
            handle.remove()
    return margins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument(
        "--pairs", type=int, default=24, help="passes of the naive way that are timed"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shapes", default="text,whisper")
    options = parser.parse_args()
    torch.manual_seed(0)
    for shape in options.shapes.split(","):
        model, inputs = SHAPES[shape](options)
        decision = Decision.prepare(model, inputs, objective=(options.words - 1, 7, 9))
        every = list(itertools.product(range(options.layers), range(options.words)))
        pairs = every[:: max(1, len(every) // options.pairs)]
        seconds: dict[str, list[float]] = {"together": [], "one by one": []}
        for _ in range(options.repeats):
            start = time.perf_counter()
            drops = knock_out_words(decision, stacks=["decoder"])
            middle = time.perf_counter()
            margins = naive(decision, "decoder", pairs)
            seconds["together"].append(middle - start)
            seconds["one by one"].append((time.perf_counter() - middle) * len(every) / len(pairs))
            for (layer, word), margin in zip(pairs, margins, strict=True):
                assert abs(drops.scores("decoder", "margin")[layer, word] - margin) < 1e-3
        ratio = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
        print(
            f"{shape}: {options.layers} layers x {options.words} words, width {options.hidden}: "
            f"together {statistics.median(seconds['together']):.2f} s, one by one "
            f"{statistics.median(seconds['one by one']):.2f} s ({len(pairs)} of {len(every)} "
            f"timed), ratio {ratio:.1f}"
        )


if __name__ == "__main__":
    main()
