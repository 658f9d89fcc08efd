#!/bin/sh
# torchaudio 2.11.0 and 2.11.1 (its last releases) beside torch of other releases and builds.
#
# One would guess: torchaudio X.Y needs torch X.Y, so a project that uses both pins the pair (ours did: torch<2.12).
# True: since 2.11 it is built on torch's stable interface, and its release need not be torch's. What decides is CUDA:
# - The package index has one build for Linux, linked against CUDA's libraries. Beside a torch for the CPU alone of ANY
#   release, the same one included, it cannot be imported: "Could not load this library: .../_torchaudio.abi3.so". The
#   reason, libc10_cuda.so, is only in the cause of the error.
# - 2.11.0 (CUDA 13.0) refuses each torch of another CUDA 13.x: torch 2.15.0 of the index has 13.2. 2.11.1 (13.2) refuses
#   only another major version of CUDA. Neither is in the packages' metadata: pip installs all of these pairs.
# - It matters to those who do not use torchaudio: where it is installed, transformers imports it before any speech
#   model, and then no model loads.
# Remedy: do without it. What was used of it, forced alignment, is forty lines (adapters/generation/emission_paths.py).
#
# Run: sh findings/torchaudio_beside_torch.sh   (downloads about 4 GB into a temporary folder; fails if it changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/cpu"
python3 -m venv "$folder/cuda"
"$folder/cpu/bin/pip" install --quiet --retries 1 torch==2.13.0+cpu numpy==2.4.6 \
    --extra-index-url https://download.pytorch.org/whl/cpu
"$folder/cuda/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

expect() { # environment, version of torchaudio, what is to be printed
    "$folder/$1/bin/pip" install --quiet --no-deps torchaudio=="$2"
    printed=$("$folder/$1/bin/python" - <<'PYTHON'
import torch

try:
    import torchaudio
    from torchaudio.functional import forced_align, resample

    log_probs = torch.eye(3)[None].log_softmax(-1)
    path, _ = forced_align(log_probs, torch.tensor([[1, 2]], dtype=torch.int32), blank=0)
    length = resample(torch.zeros(1, 441), 44_100, 16_000).shape[1]
    result = f"works: path {path[0].tolist()}, {length} samples"
except Exception as error:
    reason = error.__cause__ or error  # torch's own message does not say which library
    result = f"{type(error).__name__}: {reason}".splitlines()[0]
print(f"torch {torch.__version__} (CUDA {torch.version.cuda}): {result}")
PYTHON
)
    echo "torchaudio $2, $printed"
    case "$printed" in
        *"$3"*) ;;
        *) echo "the behaviour has changed: expected $3" >&2; exit 1 ;;
    esac
}

expect cpu 2.11.0 "libc10_cuda.so: cannot open"
expect cpu 2.11.1 ".so: cannot open"
expect cuda 2.11.0 "CUDA version 13.2 whereas TorchAudio has CUDA version 13.0"
expect cuda 2.11.1 "works: path [0, 1, 2]"
