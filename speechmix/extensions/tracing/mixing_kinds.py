"""Say what mixes positions in layers for which Value Zeroing is not defined."""

from __future__ import annotations

from .attention_operations import has_attention
from .layer_lists import LayerList

# In the reason of each refusal that no table can help.
NOT_DEFINED = "Value Zeroing is not defined there"

# Functions that a kind of layer calls and others do not; the first kind that fits is named.
_KINDS = (
    (
        ("fft_fft", "fft_fftn", "fft_rfft", "fftn", "fft"),
        "Fourier mixing: positions are mixed by a Fourier transform",
    ),
    (
        ("conv1d", "cumsum", "logcumsumexp", "segment_sum"),
        "a state-space or convolution layer: positions are mixed by a scan or a convolution",
    ),
    (
        ("argsort", "sort"),
        "hash attention: positions are sorted into buckets, and no attention call runs on all of them",
    ),
)


def explain_missing_attention(layer_list: LayerList) -> str:
    """Say why a list of layers has no table: no attention runs in (some of) its layers."""
    layers = [layer for layer in layer_list.layers if not has_attention(layer)]
    names = {value.operation for layer in layers for value in layer.values}
    for functions, reason in _KINDS:
        if names & set(functions):
            return f"{reason} ({NOT_DEFINED})"
    return "neither torch's function nor a product behind a softmax was found"
