#!/bin/sh
# onnxruntime 1.32.0, quantize_dynamic: the usual int8 export of speech models (optimum, transformers.js).
#
# One would guess: what a model computes for one recording does not depend on the other recordings of its batch, but for rounding.
# True: the scale of activations is one number for the whole batch (DynamicQuantizeLinear takes the range of the whole tensor). Beside a
# loud recording a quiet one is rounded coarsely: its output changes by over 5 % here, in three layers; that of the float model not at all.
# The same holds within a recording: a loud passage rounds the quiet ones.
# Cost: transcripts and probabilities depend on which files were batched together; results of a batch are not those of single files, and
# padding or another order of files changes them.
# Remedy: one recording at a time, or scales for each row (CTranslate2's int8 has one for each position).
#
# Run: sh findings/onnxruntime_dynamic_quantisation_batch.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/env/bin/python" - "$folder" <<'PYTHON'
import logging
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

logging.disable(logging.WARNING)
WIDTH, LAYERS = 256, 3
folder, rng = Path(sys.argv[1]), np.random.default_rng(0)
weights = [rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
nodes = []
for layer in range(LAYERS):
    nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"y{layer}"]))
    nodes.append(helper.make_node("Relu", [f"y{layer}"], [f"x{layer + 1}"]))
shape = ["batch", "time", WIDTH]
graph = helper.make_graph(
    nodes,
    "layers",
    [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
    [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, shape)],
    [numpy_helper.from_array(value, f"w{layer}") for layer, value in enumerate(weights)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, folder / "float.onnx")
quantize_dynamic(folder / "float.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)

quiet = rng.normal(0, 1, (1, 20, WIDTH)).astype(np.float32)
loud = 10 * rng.normal(0, 1, (1, 20, WIDTH)).astype(np.float32)
changes = {}
for name in ("float", "int8"):
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
    alone = session.run(None, {"x0": quiet})[0]
    batched = session.run(None, {"x0": np.concatenate([quiet, loud])})[0][:1]
    changes[name] = float(np.abs(batched - alone).max() / np.abs(alone).max())
print(f"onnxruntime {onnxruntime.__version__}")
print("the quiet recording changes beside a loud one by", changes, "of its largest output")
assert changes["float"] < 1e-5, "the float model has changed"
assert changes["int8"] > 0.05, "the behaviour has changed"
PYTHON
