"""What Shapley values of ten words cost: all 1,024 sets in batches beside one pass of the model each.

    python tests/benchmarks/shapley.py [--layers 12] [--hidden 768] [--words 10] [--sets 24] [--repeats 3]

A Whisper's shape with random weights (1,500 encoder frames), whose decoder is fed ten words, each a token, that are blanked.
One by one the whole model is run for every set, as `ablate_input` does; that is timed on some sets and multiplied. Both ways
take turns; margins must agree. Nothing is asserted about time; not collected by pytest.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import transformers

import speechmix
from speechmix.interventions.decision import Decision
from speechmix.interventions.input_ablation import inputs_without
from speechmix.interventions.shapley import exact_values, margins_of_sets

FILL = "unk"


class OneToken:
    """A tokenizer that knows one id, of what blanks a word."""

    unk_token_id = 4
    mask_token_id = pad_token_id = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--words", type=int, default=10)
    parser.add_argument("--sets", type=int, default=24, help="of the slow way that are timed")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        d_model=options.hidden, encoder_layers=options.layers, decoder_layers=options.layers, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=4 * options.hidden, decoder_ffn_dim=4 * options.hidden,
        vocab_size=5_000, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    model = speechmix.load(transformers.WhisperForConditionalGeneration(config).eval())
    features = torch.randn(1, config.num_mel_bins, 3_000, generator=torch.Generator().manual_seed(0))
    inputs = {"input_features": features, "decoder_input_ids": torch.arange(options.words)[None] + 5}
    decision = Decision.of(model, inputs, objective=(options.words - 1, 7, 9))
    model.tokenizer = OneToken()
    players = decision.sources["decoder"]
    sets = (np.arange(2**options.words)[:, None] >> np.arange(options.words)) % 2 == 1
    timed = sets[:: len(sets) // options.sets]
    seconds: dict[str, list[float]] = {"together": [], "one by one": []}
    for _ in range(options.repeats):
        decision.__dict__.pop("_encoded", None)  # the encoder runs again
        began = time.perf_counter()
        margins = margins_of_sets(decision, players, sets, "text", FILL)
        exact_values(len(players), lambda every, margins=margins: margins)
        middle = time.perf_counter()
        alone = []
        for present in timed:
            taken = [player.index for player, there in zip(players, present, strict=True) if not there]
            alone.append(decision.of_inputs(inputs_without(decision, taken, side="text", fill=FILL)[0]))
        seconds["together"].append(middle - began)
        seconds["one by one"].append((time.perf_counter() - middle) * len(sets) / len(timed))
        np.testing.assert_allclose(margins[:: len(sets) // options.sets], alone, atol=1e-3)
    ratio = statistics.median(slow / fast for fast, slow in zip(*seconds.values(), strict=True))
    print(
        f"{options.layers} + {options.layers} layers, width {options.hidden}, {len(sets)} sets of {options.words} words: "
        f"together {statistics.median(seconds['together']):.1f} s, one by one "
        f"{statistics.median(seconds['one by one']):.0f} s ({len(timed)} timed), ratio {ratio:.1f}"
    )


if __name__ == "__main__":
    main()
