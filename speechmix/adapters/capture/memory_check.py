"""Check that the forward pass of a clip fits into memory.

Checked before it runs, because a system that runs out of memory kills the process.

In: a model and a clip's length. Out: nothing, or an error that says how long a clip may be. What
grows with the clip is the convolutional front end of models that read samples; Whisper's window and
texts are bounded by the model itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ...errors import InputError

if TYPE_CHECKING:
    from ..loading.model_properties import ModelDescription

# Measured: the widest moment of a forward pass holds 2.6 (group norm) to 3.5 (layer norm) times the
# first layer's output.
_PEAK_FACTOR = 3.5


def check_fits(model: ModelDescription, n_samples: int) -> None:
    """Refuse a clip of `n_samples` at the model's rate whose forward pass needs more memory than
    there is.

    The InputError says what is needed, what is free, and about how long a clip may be.
    """
    sample_bytes = bytes_per_sample(model)
    available_bytes = free_bytes(model.device) if sample_bytes else None
    if available_bytes is None or sample_bytes * n_samples <= available_bytes:
        return
    seconds, max_seconds = (
        n_samples / model.sample_rate,
        available_bytes / sample_bytes / model.sample_rate,
    )
    raise InputError(
        f"a clip of {seconds:,.0f} s needs about {sample_bytes * n_samples / 2**30:,.0f} GiB for one "
        f"forward pass of {model.name}, "
        f"{available_bytes / 2**30:,.1f} GiB are free: cut it (Clip.cut, --cut) to less than {max_seconds:,.0f} s, "
        "or use a larger machine"
    )


def bytes_per_sample(model: ModelDescription) -> float:
    """Memory that a forward pass takes for each sample of audio, in bytes; 0 where it does not grow
    with the audio."""
    widths, strides = (getattr(model.config, name, None) for name in ("conv_dim", "conv_stride"))
    if not widths or not strides or not model.hears:
        return 0.0
    result: float = _PEAK_FACTOR * model.state_dtype.itemsize * widths[0] / strides[0]
    return result


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on a device, in bytes, also what torch holds there for use again; None
    where it is not known."""
    if device.type == "cuda":
        reserved_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserved_bytes
    if device.type != "cpu":
        return None
    limits = []
    for path, name in (("/proc/meminfo", "MemAvailable:"), ("/sys/fs/cgroup/memory.max", "")):
        try:
            words = Path(path).read_text(encoding="ascii").split()
        except OSError:
            continue
        if name in words:
            limits.append(1024 * int(words[words.index(name) + 1]))
        elif words and words[0].isdigit():
            limits.append(int(words[0]))
    return min(limits, default=None)


def weight_bytes(source: str | Path, revision: str | None = None) -> int:
    """Size of the weights of a folder or hub id, as they lie on this machine; 0 where they do not
    yet."""
    folder = Path(source)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            folder = Path(snapshot_download(str(source), revision=revision, local_files_only=True))
        except (LocalEntryNotFoundError, HFValidationError):
            return 0
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        sizes = [path.stat().st_size for path in folder.glob(pattern)]
        if sizes:
            return sum(sizes)
    return 0
