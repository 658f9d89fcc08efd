"""Say how layers without attention mix positions: why they have no table."""

from __future__ import annotations

from .attention_operations import has_attention
from .layer_lists import LayerList

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
            return f"no attention runs in its layers: {reason}"
    return (
        "no attention runs in its layers, neither torch's function nor a product behind a softmax"
    )
