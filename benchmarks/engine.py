"""What scoring costs: seconds and memory of mix() beside the plain forward pass and the naive
re-run of every layer.

    python benchmarks/engine.py [--layers 2] [--words 12] [--repeats 3] [--shapes whisper-encoder,xlsr]

Three shapes with random weights: Whisper-medium (1500 frames, words of 20 frames, 20 tokens), XLSR
(5 s, 249 frames, all in words) and a Conformer, wav2vec2-BERT (5 s, a kernel of 31). The naive way
runs each layer again for every source with its value rows zeroed, as one does without this package;
"of extras" compares what it and mix() take beyond one plain forward pass; "of many clips" is a clip
behind the first, for which what is made of weights is at hand. Within a repeat all ways take turns,
so that a busy machine slows all of them alike; memory is the peak of a fresh process above the
loaded model. Nothing is asserted; it is not collected by pytest.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters.delta_engine.matrix_products import WeightProducts

WIDTH = {"heads": 16, "hidden": 1024, "feed_forward": 4096}
MEASURES = ("value_zeroing", "attention", "attention_norm")
N_TOKENS = 20
SHAPES = ("whisper-encoder", "whisper-all", "xlsr", "conformer")
WAYS = (
    "forward",
    "mix, word rows",
    "mix, word rows, bf16",
    "mix, word rows, of many clips",
    "mix, word rows, of many clips, bf16",
    "mix, word rows, 3 measures",
    "mix, target rows, 3 measures",
    "mix, target rows, 3 measures, bf16",
    "mix, target rows",
    "mix, target rows, bf16",
    "mix, target rows, of many clips, bf16",
    "naive",
)


def whisper(layers: int):
    config = transformers.WhisperConfig(
        d_model=WIDTH["hidden"],
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=WIDTH["heads"],
        decoder_attention_heads=WIDTH["heads"],
        encoder_ffn_dim=WIDTH["feed_forward"],
        decoder_ffn_dim=WIDTH["feed_forward"],
        vocab_size=1000,  # the base model only looks embeddings up, so their number costs nothing
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    return transformers.WhisperModel(config)


def xlsr(layers: int):
    config = transformers.Wav2Vec2Config(
        hidden_size=WIDTH["hidden"],
        num_hidden_layers=layers,
        num_attention_heads=WIDTH["heads"],
        intermediate_size=WIDTH["feed_forward"],
        do_stable_layer_norm=True,
        feat_extract_norm="layer",
        conv_bias=True,
    )
    return transformers.Wav2Vec2Model(config)


def conformer(layers: int):
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=WIDTH["hidden"],
        num_hidden_layers=layers,
        num_attention_heads=WIDTH["heads"],
        intermediate_size=WIDTH["feed_forward"],
    )
    return transformers.Wav2Vec2BertModel(config).eval()


class Case:
    """One shape: its model, inputs, words and rows."""

    def __init__(self, shape: str, layers: int, words: int):
        torch.manual_seed(0)
        self.shape, self.kept = shape, WeightProducts()
        if shape in ("xlsr", "conformer"):
            self.model = speechmix.load(
                (xlsr if shape == "xlsr" else conformer)(layers), check=False
            )
            self.inputs = {"input_values": torch.randn(1, 80_000)}
            if shape == "conformer":
                self.inputs = {
                    "input_features": torch.randn(1, self.model.grid(80_000).n_frames, 160)
                }
            edges = (
                np.linspace(0, self.model.grid(80_000).n_frames, words + 1)
                .round()
                .astype(int)
                .tolist()
            )
            self.spans = list(itertools.pairwise(edges))
        else:
            self.model = speechmix.load(whisper(layers), check=False)
            self.inputs = {"input_features": torch.randn(1, 80, 3000)}
            self.spans = [(20 * i, 20 * (i + 1)) for i in range(words)]
            if shape == "whisper-all":
                self.inputs["decoder_input_ids"] = torch.randint(1000, (1, N_TOKENS))
        self.stacks = ("encoder", "decoder", "cross") if shape == "whisper-all" else ("encoder",)
        last_tokens = [N_TOKENS - 3, N_TOKENS - 2]
        self.target_rows = {"encoder": [words - 1], "decoder": last_tokens, "cross": last_tokens}

    def run(self, way: str, **options):
        if way == "forward":
            return self.forward()
        if way == "naive":
            return self.naive()
        if way.endswith("bf16"):
            options = {**options, "engine": "delta", "product_dtype": "bfloat16"}
        first = ",".join(f"{name}={value}" for name, value in options.items())
        others = MEASURES[1:] if "3 measures" in way else ()
        measures = [f"value_zeroing:{first}" if first else "value_zeroing", *others]
        targets = self.target_rows if "target" in way else None
        self.model.weight_products = self.kept if "many clips" in way else None
        return speechmix.mix(
            self.model,
            self.inputs,
            spans=self.spans,
            stacks=self.stacks,
            measures=measures,
            targets=targets,
        )

    def forward(self):
        with torch.no_grad():
            return self.model.family.run(self.model.base, self.inputs, self.stacks)

    def naive(self):
        """Value Zeroing of all rows by running each layer once per source; {stack: [L, rows,
        sources]}."""
        seen = {}

        def keep(module, args, kwargs, output):
            seen[module] = args, kwargs, output

        layers = {layer.module for stack in self.model.stacks.values() for layer in stack.layers}
        handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
        self.forward()
        for handle in handles:
            handle.remove()
        return {name: self._naive_stack(self.model.stacks[name], seen) for name in self.stacks}

    def _naive_stack(self, stack, seen):
        tokens = [(i, i + 1) for i in range(N_TOKENS)]
        targets = self.spans if stack.name == "encoder" else tokens
        sources = tokens if stack.name == "decoder" else self.spans
        maps = []
        for index, bound in enumerate(stack.layers):
            args, kwargs, output = seen[bound.module]
            norm = (
                stack.final_norm
                if index == len(stack) - 1 and stack.final_norm is not None
                else torch.nn.Identity()
            )
            value = bound.attention.value
            columns = []
            with torch.no_grad():
                before = norm(_first(output))[0]
                for start, stop in sources:
                    handle = value.register_forward_hook(_zeroing(start, stop))
                    after = norm(_first(bound.module(*args, **kwargs)))[0]
                    handle.remove()
                    moved = 1 - torch.cosine_similarity(before, after, dim=-1)
                    columns.append(torch.stack([moved[a:b].mean() for a, b in targets]))
            maps.append(torch.stack(columns, dim=1))
        return torch.stack(maps).numpy()

    def seconds_in_layers(self) -> float:
        """Seconds of one plain forward pass spent in the layers: what grows with their number."""
        started, total = {}, []
        handles = []
        for layer in {
            layer.module for name in self.stacks for layer in self.model.stacks[name].layers
        }:
            handles.append(
                layer.register_forward_pre_hook(
                    lambda m, a: started.__setitem__(m, time.perf_counter())
                )
            )
            handles.append(
                layer.register_forward_hook(
                    lambda m, a, o: total.append(time.perf_counter() - started[m])
                )
            )
        self.forward()
        for handle in handles:
            handle.remove()
        return sum(total)


def _first(output):
    return output[0] if isinstance(output, tuple) else output


def _zeroing(start: int, stop: int):
    def zero(module, args, output):
        output = output.clone()
        output[:, start:stop] = 0
        return output

    return zero


def seconds_of(
    case: Case, repeats: int, options: dict, typical=statistics.median
) -> dict[str, float]:
    """Typical seconds of each way; the ways take turns."""
    times: dict[str, list[float]] = {way: [] for way in (*WAYS, "layers")}
    for way in WAYS[:-1]:
        case.run(way, **(options if way.startswith("mix") else {}))
    for _ in range(repeats):
        for way in WAYS:
            began = time.perf_counter()
            case.run(way, **(options if way.startswith("mix") else {}))
            times[way].append(time.perf_counter() - began)
        times["layers"].append(case.seconds_in_layers())
    return {way: typical(found) for way, found in times.items()}


def peak_above_model(shape: str, way: str, options: argparse.Namespace) -> float | None:
    """MiB that one run takes above the loaded model, in a process of its own; None where /proc does
    not tell."""
    command = [sys.executable, __file__, "--memory-of", shape, way]
    for name in ("layers", "words", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    for name in ("engine", "product_dtype"):
        if getattr(options, name):
            command += [f"--{name.replace('_', '-')}", getattr(options, name)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


def memory_of(case: Case, way: str, options: dict) -> float | None:
    for library in ("pandas", "pyarrow", "scipy.sparse"):  # what a first call imports is no map's
        importlib.import_module(library)
    try:
        before = _status("VmRSS")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # forget the peak of building the model
        case.run(way, **(options if way.startswith("mix") else {}))
        return (_status("VmHWM") - before) / 1024
    except OSError:
        return None


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def report(shape: str, case: Case, options: argparse.Namespace, mix_options: dict) -> None:
    seconds = seconds_of(
        case, options.repeats, mix_options, min if options.best else statistics.median
    )
    forward, layers, naive = seconds["forward"], seconds["layers"], seconds["naive"]
    maps = case.run("mix, word rows", **mix_options)
    [found] = (scores.scores for (_, stack), scores in maps.items() if stack == "encoder")
    expected = case.naive()["encoder"]
    apart = np.abs(found - expected).max() / found.max()
    print(
        f"\n{shape}: {options.layers} layers, {options.words} words, forward {forward:.3f} s, "
        f"{layers:.3f} s of it in the "
        f"layers; mix and naive differ by {apart:.0e} of the largest score"
    )
    header = f"{'':<36}{'s':>8}{'extra/forward':>15}{'extra/layers':>14}{'naive/mix':>11}{'of extras':>11}{'peak MiB':>10}"
    print(header)
    for way in WAYS:
        extra = seconds[way] - forward
        ratios = (
            f"{extra / forward:>15.2f}{extra / layers:>14.2f}" if way != "forward" else f"{'':>29}"
        )
        faster = (
            f"{naive / seconds[way]:>11.1f}{(naive - forward) / extra:>11.1f}"
            if way.startswith("mix")
            else f"{'':>22}"
        )
        memory = None if options.no_memory else peak_above_model(shape, way, options)
        print(
            f"{way:<36}{seconds[way]:>8.3f}{ratios}{faster}{'' if memory is None else f'{memory:>10.0f}'}",
            flush=True,
        )


def rates() -> None:
    """Sustained rate of a batch of pairs beside the machine's own matrix products, GFLOP/s."""
    from speechmix.adapters.capture.forward_pass import Capture
    from speechmix.adapters.delta_engine.change_propagator import ChangePropagator
    from speechmix.adapters.delta_engine.matrix_products import MatrixProduct

    case, seen = Case("xlsr", 1, 12), []

    def measure(block):
        rows = torch.arange(block.n_targets)
        change = 0.01 * torch.randn(4, len(rows), WIDTH["hidden"])
        flops = (
            2
            * change[..., 0].numel()
            * WIDTH["hidden"]
            * (WIDTH["hidden"] + 2 * WIDTH["feed_forward"])
        )
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(len(rows) * 4, WIDTH["hidden"], dtype=dtype)
            w = torch.randn(WIDTH["hidden"], WIDTH["feed_forward"], dtype=dtype)
            pairs = _best(ChangePropagator(block, rows, product=MatrixProduct(dtype)), change)
            seen.append(
                (dtype, flops / pairs, 2 * x.numel() * w.shape[1] / _best(torch.matmul, x, w))
            )

    with torch.no_grad(), Capture(list(case.model.stacks.values()), measure):
        case.model.family.run(case.model.base, case.inputs, case.stacks)
    for dtype, pairs, products in seen:
        print(
            f"pairs carried through a layer, {dtype} products: {pairs / 1e9:.0f} GFLOP/s, "
            f"{pairs / products:.0%} of a matrix product's {products / 1e9:.0f}"
        )


def _best(work, *given, repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work(*given)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=2,
        help="in each stack; extra/layers is what many layers tend to",
    )
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--best",
        action="store_true",
        help="fastest repeat instead of the median: on a busy machine",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--engine", help="as value_zeroing:engine=")
    parser.add_argument("--product-dtype", help="as value_zeroing:product_dtype=")
    parser.add_argument(
        "--no-memory", action="store_true", help="leave out the peak memory (one process per line)"
    )
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    given = {"engine": options.engine, "product_dtype": options.product_dtype}
    mix_options = {name: value for name, value in given.items() if value}
    if options.memory_of:
        shape, way = options.memory_of
        print(json.dumps(memory_of(Case(shape, options.layers, options.words), way, mix_options)))
        return
    typical = "best" if options.best else "median"
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32; {typical} of "
        f"{options.repeats}"
    )
    for shape in options.shapes.split(","):
        report(shape, Case(shape, options.layers, options.words), options, mix_options)
    print()
    rates()


if __name__ == "__main__":
    main()
