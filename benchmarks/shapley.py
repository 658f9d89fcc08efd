"""What Shapley values of ten words cost: sets in batches beside one pass of the model each.

    python benchmarks/shapley.py [--layers 12] [--hidden 768] [--words 10] [--together 128] [--sets 4] [--repeats 2]

A Whisper's shape with random weights (1,500 encoder frames), whose decoder is fed ten words, each a
token, that are blanked. One by one the whole model is run for every set.
Both ways are timed on some of the 1,024 sets and multiplied, in seconds of the processor, and take
turns; margins must agree. Where the *sound* of ten words is taken away, each set is another sound
and runs the encoder: that floor is the encoder's own pass, which is told, times the sets. Nothing
is asserted about time; not collected by pytest.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import transformers

import speechmix
from speechmix.extensions.occlusion.input_ablation import build_word_removals
from speechmix.extensions.occlusion.shapley import RemovalMargins
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import change_inputs

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
    parser.add_argument(
        "--together", type=int, default=128, help="sets of the quick way that are timed"
    )
    parser.add_argument("--sets", type=int, default=4, help="of the slow way that are timed")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        d_model=options.hidden,
        encoder_layers=options.layers,
        decoder_layers=options.layers,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=4 * options.hidden,
        decoder_ffn_dim=4 * options.hidden,
        vocab_size=5_000,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    model = speechmix.load(transformers.WhisperForConditionalGeneration(config).eval())
    features = torch.randn(
        1, config.num_mel_bins, 3_000, generator=torch.Generator().manual_seed(0)
    )
    inputs = {
        "input_features": features,
        "decoder_input_ids": torch.arange(options.words)[None] + 5,
    }
    decision = Decision.prepare(model, inputs, objective=(options.words - 1, 7, 9))
    model.tokenizer = OneToken()
    players = decision.sources["decoder"]
    sets = (np.arange(2**options.words)[:, None] >> np.arange(options.words)) % 2 == 1
    quick = sets[:: max(1, len(sets) // options.together)]
    slow = quick[:: max(1, len(quick) // options.sets)]
    seconds: dict[str, list[float]] = {"encoder": [], "together": [], "one by one": []}
    for _ in range(options.repeats):
        decision.__dict__.pop("encoder_output", None)  # the encoder runs again
        began = time.process_time()
        _ = decision.encoder_output
        encoded = time.process_time()
        margins = RemovalMargins(decision, "text", FILL).margin_function(players)(quick)
        middle = time.process_time()
        alone = []
        for present in slow:
            taken = [
                player.index for player, there in zip(players, present, strict=True) if not there
            ]
            removals = build_word_removals(decision, taken, side="text", fill=FILL)
            changed = change_inputs(model, None, decision.prepared.inputs, removals)
            alone.append(decision.input_margin(*changed))
        ended = time.process_time()
        seconds["encoder"].append(encoded - began)
        seconds["together"].append(encoded - began + (middle - encoded) * len(sets) / len(quick))
        seconds["one by one"].append((ended - middle) * len(sets) / len(slow))
        np.testing.assert_allclose(margins[:: max(1, len(quick) // options.sets)], alone, atol=1e-3)
        assert len(np.unique(margins)) > len(quick) // 2
    middle_of = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = [
        slow / fast for fast, slow in zip(seconds["together"], seconds["one by one"], strict=True)
    ]
    print(
        f"{options.layers} + {options.layers} layers, width {options.hidden}, {len(sets)} sets of "
        f"{options.words} words: "
        f"together {middle_of['together']:.0f} s ({len(quick)} timed), one by one "
        f"{middle_of['one by one']:.0f} s "
        f"({len(slow)} timed) of the processor, ratio {statistics.median(ratios):.1f} "
        f"({min(ratios):.1f} to {max(ratios):.1f}); "
        f"the encoder once {middle_of['encoder']:.1f} s, as often as there are sets "
        f"{middle_of['encoder'] * len(sets):.0f} s"
    )


if __name__ == "__main__":
    main()
