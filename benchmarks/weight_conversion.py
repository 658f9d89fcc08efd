"""What a bfloat16 audio language model costs whose weights are converted in each layer that runs,
beside one whose converted weights are all held: time and peak memory.

    python benchmarks/weight_conversion.py [--layers 24] [--hidden 1024] [--seconds 2] [--repeats 1]

A synthetic Qwen2-Audio with random weights: a small encoder, a wide decoder. `mix`, `explain` and
`shapley` of a clip of four tones are run in both ways, each in a process of its own (a peak cannot
be forgotten); memory is the process's resident memory above that of the loaded model. Results must
be the same to the last bit. Nothing is asserted about time; not collected by pytest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import speechmix
from recipes import tiny_audio_language_model as tiny
from speechmix.adapters.capture import module_access

CALLS = ("mix", "explain", "shapley")
FREE_BYTES = {"held": None, "by layer": 0}


def build_model(layers: int, hidden: int, seconds: int) -> speechmix.adapters.Model:
    """Return a synthetic model in bfloat16 that was never in another precision."""
    config = tiny.untrained().config
    config.audio_config.max_source_positions = 50 * seconds
    text = config.text_config
    text.num_hidden_layers, text.hidden_size, text.intermediate_size = layers, hidden, 4 * hidden
    text.num_attention_heads = text.num_key_value_heads = hidden // 64
    text.layer_types, text.max_position_embeddings = ["full_attention"] * layers, 2_000
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    module = transformers.Qwen2AudioForConditionalGeneration(config).eval()
    torch.set_default_dtype(torch.float32)
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=seconds)
    processor = transformers.Qwen2AudioProcessor(extractor, tiny.processor().tokenizer)
    model = speechmix.load(module, processor=processor, check=False)
    return model.with_prompt(tiny.PROMPT, answer="low")


def memory_bytes(name: str) -> int:
    """Resident memory of this process now (VmRSS) or at its highest (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def run_call(call: str, model: speechmix.adapters.Model, clip: speechmix.Clip) -> bytes:
    """Return the bytes of all numbers of a result."""
    if call == "mix":
        maps = speechmix.mix(model, clip)
        return b"".join(result.scores.tobytes() for result in maps.values())
    low, none = model.tokenizer.convert_tokens_to_ids(["low", "none"])
    if call == "explain":
        why = speechmix.explain(model, clip, text="low")
        return b"".join(attribution.values.tobytes() for attribution in why.attributions.values())
    inputs = model.family.prepare(model, clip, tuple(model.stacks))
    position = inputs.inputs["input_ids"].shape[1] - 3
    values = speechmix.shapley(model, clip, objective=(position, low, none))
    return np.asarray(values.table["drop"]).tobytes()


def measure(call: str, way: str, options: argparse.Namespace) -> dict[str, float | str]:
    """Run one call in this process."""
    model = build_model(options.layers, options.hidden, options.seconds)
    clip = tiny.clip_of([2, 0, 3, 4])
    run_call(call, build_model(1, 64, 2), clip)  # what is imported on the way
    module_access.free_bytes = lambda device: FREE_BYTES[way]
    weights = sum(weight.nbytes for weight in model.module.parameters())
    loaded, began = memory_bytes("VmRSS"), time.process_time()
    result = run_call(call, model, clip)
    return {
        "seconds": time.process_time() - began,
        "peak": memory_bytes("VmHWM") - loaded,
        "weights": weights,
        "result": hashlib.sha256(result).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=2, help="window of the encoder")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--run", nargs=2, metavar=("CALL", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure(*options.run, options)))
        return
    for call in CALLS:
        found: dict[str, list[dict[str, float | str]]] = {way: [] for way in FREE_BYTES}
        for _ in range(options.repeats):
            for way, runs in found.items():
                command = [sys.executable, *sys.argv, "--run", call, way]
                # Blocks of this size are given back when they are freed, as larger ones always are.
                environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
                output = subprocess.run(
                    command, capture_output=True, text=True, check=True, env=environment
                ).stdout
                runs.append(json.loads(output.splitlines()[-1]))
        assert len({run["result"] for runs in found.values() for run in runs}) == 1, call
        held, by_layer = (min(runs, key=lambda run: run["seconds"]) for runs in found.values())
        print(
            f"{call}: weights {held['weights'] / 2**20:,.0f} MiB; peak above them: held "
            f"{held['peak'] / 2**20:,.0f} MiB, by layer {by_layer['peak'] / 2**20:,.0f} MiB; "
            f"seconds of the processor: {held['seconds']:.1f}, {by_layer['seconds']:.1f}, ratio "
            f"{by_layer['seconds'] / held['seconds']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
