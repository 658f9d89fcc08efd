"""What a whole study costs: clips per second, the share of it that is the plain forward pass, one
full frame map.

    python benchmarks/study.py [--device cuda] [--clips 64] [--layers 24] [--product-dtype tf32] [--frame-map]

The shape of Whisper-medium (or of `--model small, base, tiny`) with random weights, over the
bundled synthetic clips, in a 30-second window: cue contribution (target rows), three measures, all
stacks, as a run computes it, features made on the way (audio is in memory). The forward pass alone
gets the same inputs, in the same batches, ready on the device. Two models (trained and random) over
1,000 clips take 2,000 times what one clip takes. `--frame-map` also measures the map of all 1,500
frames of one encoder layer. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from functools import partial

import torch
import transformers

import speechmix
from speechmix.adapters.model import Model
from speechmix.inputs import bundled
from speechmix.mixing.passes.batches import clips_per_pass, pad_batch, split_into_groups

MEASURES = ("value_zeroing", "attention", "attention_norm")
# Width, layers, heads.
SHAPES = {
    "medium": (1024, 24, 16),
    "small": (768, 12, 12),
    "base": (512, 6, 8),
    "tiny": (384, 4, 6),
    "nano": (64, 1, 2),  # no Whisper's: to try what is run on the others
}


def model_of(shape: str, layers: int | None, device: str) -> Model:
    """Random weights; letters from the bundled model's tokenizer, features as every Whisper has
    them."""
    width, depth, heads = SHAPES[shape]
    depth = layers or depth
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundled.models()["tiny-french-whisper"])
    processor = transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(), tokenizer)
    letters = transformers.AutoConfig.from_pretrained(bundled.models()["tiny-french-whisper"])
    config = transformers.WhisperConfig(
        d_model=width,
        encoder_layers=depth,
        decoder_layers=depth,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        **{
            name: getattr(letters, name)
            for name in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")
        },
        decoder_start_token_id=letters.decoder_start_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):  # where its weights are drawn
        module = transformers.WhisperForConditionalGeneration(config).eval()
    return speechmix.load(module, processor=processor)


def seconds(work, device: str) -> float:
    """Wall time of work that may still be running on a GPU when it returns."""
    if device != "cpu":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", choices=SHAPES, default="medium")
    parser.add_argument(
        "--layers", type=int, help="in each stack, to try it quickly; the shape's own by default"
    )
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--clips-at-once", type=int, help="as mix(clips_at_once=)")
    parser.add_argument("--product-dtype", help="as value_zeroing:product_dtype=")
    parser.add_argument("--frame-map", action="store_true")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    model = model_of(options.model, options.layers, options.device)
    shape = (
        f"{len(model.stacks['encoder'])} layers a stack, {model.device}, "
        f"{torch.get_num_threads()} threads"
    )
    print(f"shape of Whisper {options.model}, RANDOM weights: {shape}")
    name = MEASURES[0]
    if options.product_dtype:
        name = f"{name}:product_dtype={options.product_dtype}"
    study(model, options, [name, *MEASURES[1:]])
    if options.frame_map:
        frame_map(model, options, [name])


def study(model: Model, options: argparse.Namespace, measures: list[str]) -> None:
    """Print seconds a clip of scoring, of preparing inputs and of the forward pass alone."""
    at_once = options.clips_at_once or clips_per_pass(model)
    clips = list(itertools.islice(itertools.cycle(bundled.clips()), options.clips))
    asked = {"measures": measures, "targets": "target", "clips_at_once": at_once}
    speechmix.mix(model, clips[:at_once], **asked)

    prepared: list[dict] = []
    stacks = tuple(model.stacks)
    preparing = seconds(
        lambda: prepared.extend(model.family.prepare(model, clip, stacks).inputs for clip in clips),
        options.device,
    )
    batches = [
        {name: tensor.to(model.device) for name, tensor in pad_batch(model, group).items()}
        for group in split_into_groups(prepared, at_once)
    ]

    def forward() -> None:
        with torch.no_grad():
            for inputs in batches:
                model.family.run(model.base, inputs, stacks)

    forward()
    plain = seconds(forward, options.device)
    whole = seconds(lambda: speechmix.mix(model, clips, **asked), options.device)
    count = len(clips)
    print(
        f"{count} clips, {at_once} at once, three measures, all stacks, target rows: "
        f"{count / whole:.2f} clips/s "
        f"({1000 * whole / count:.0f} ms each)\n"
        f"  forward pass alone {1000 * plain / count:.0f} ms a clip, {plain / whole:.0%} of it; "
        "making the inputs "
        f"{1000 * preparing / count:.0f} ms\n"
        f"  1,000 clips, trained and random: {2000 * whole / count / 60:.1f} minutes"
    )


def frame_map(model: Model, options: argparse.Namespace, measures: list[str]) -> None:
    """Print seconds of the Value Zeroing map of all frames of one encoder layer, beyond a pass that
    asks for one row."""
    repeats = (
        1 if options.device == "cpu" else 4
    )  # there it takes minutes; here the first run warms up
    inputs = {"input_features": torch.randn(1, model.config.num_mel_bins, 3000)}
    given = {
        "stacks": "encoder",
        "layers": [model.config.encoder_layers // 2],
        "units": "frame",
        "measures": measures,
    }

    def some(targets):
        work = partial(speechmix.mix, model, inputs, targets=targets, **given)
        return min(seconds(work, options.device) for _ in range(repeats))

    one, every = some([0]), some(None)
    print(
        f"map of all {model.config.max_source_positions} frames of one encoder layer: "
        f"{every - one:.2f} s"
    )


if __name__ == "__main__":
    main()
