#!/bin/sh
# onnxruntime 1.32.0, graph optimisation of a statically quantised model: smart-turn 3.2 of pipecat-ai 1.14.0 (Whisper tiny's encoder
# with a head), which decides whether a speaker has finished.
#
# One would guess: levels of graph optimisation change how fast a model runs, and its numbers by rounding.
# True: the same file gives other probabilities. At the level "extended" and above (the default), pairs of quantising and dequantising
# around a product are fused into products of integers. After 9.0 s of a recording the probability that the speaker has finished is
# .84 without optimisation and with "basic", and .34 by default: the opposite decision. After 4.1 s it is .59 and .24.
# Cost: a threshold that was tuned at one level decides otherwise at another; tests of an export without optimisation, or in another
# runtime, do not hold for what is deployed; a copy of the weights is none of the two.
# Remedy: evaluate at the level, and on the kind of processor, that is deployed (these numbers: x86-64 with AVX2, without VNNI).
#
# Run: sh findings/onnxruntime_optimisation_levels.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnxruntime==1.32.0 numpy==2.4.6 soundfile==0.14.0
"$folder/env/bin/pip" install --quiet --no-deps pipecat-ai==1.14.0 moonshine-voice==0.1.5
"$folder/env/bin/python" - <<'PYTHON'
import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import soundfile

RATE, SECONDS = 16_000, 8  # of the model's window


def package_folder(name):
    return Path(importlib.util.find_spec(name).submodule_search_locations[0])


turn = package_folder("pipecat") / "audio" / "turn" / "smart_turn"
# The file by itself: the package around it imports what is not needed here.
spec = importlib.util.spec_from_file_location("features", turn / "_whisper_features.py")
features = importlib.util.module_from_spec(spec)
spec.loader.exec_module(features)
audio, rate = soundfile.read(package_folder("moonshine_voice") / "assets" / "beckett.wav", dtype="float32")
assert rate == RATE


def session(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(turn / "data" / "smart-turn-v3.2-cpu.onnx", options)


def probability(model, end):
    """Of a finished speaker, as pipecat computes it: the last 8 s, filled up at the beginning."""
    samples = audio[: int(end * RATE)][-SECONDS * RATE :]
    samples = np.pad(samples, (SECONDS * RATE - len(samples), 0))
    inputs = features.compute_whisper_log_mel_features(samples, do_normalize=True)[None]
    return float(model.run(None, {"input_features": inputs})[0].ravel()[0])


levels = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
models = {level: session(level) for level in levels}
print(f"onnxruntime {onnxruntime.__version__}")
largest = 0.0
for end in (4.1, 8.0, 9.0):
    row = {level: probability(model, end) for level, model in models.items()}
    print(f"after {end} s:", ", ".join(f"{level} {value:.2f}" for level, value in row.items()))
    assert abs(row["ORT_DISABLE_ALL"] - row["ORT_ENABLE_BASIC"]) < 1e-3, "the behaviour has changed"
    largest = max(largest, abs(row["ORT_DISABLE_ALL"] - row["ORT_ENABLE_ALL"]))
assert largest > 0.2, "the behaviour has changed"
PYTHON
