"""Convert a module's weights when they are read, and hold as many of them as memory allows.

In: parameters in half precision, or packed in 4 bits. Out: the same numbers in a finer precision,
wherever code reads `module.weight`, in a forward pass or outside one. From half precision to a
finer one nothing is rounded, so it does not matter when a weight is converted, or how often. What
is read first is held as long as there is memory; the rest is converted again in each layer that
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

# Bytes of the weights read last that are held where not all of them fit: a layer of Whisper-large
# takes 105 MB.
_RECENT_BYTES = 2**27

_QUANTISERS = ("quantized", "bitsandbytes", "torchao", "auto_gptq", "gptqmodel", "awq")

# Of the free memory, for converted weights; states need the rest.
_MEMORY_SHARE = 0.5


class WeightConverter:
    """Converts parameters to one precision, each once as long as they fit into memory.

    Converted weights may take half of `free_bytes`; with None all are held.
    """

    def __init__(self, dtype: torch.dtype, free_bytes: int | None = None):
        self.dtype = dtype
        self._free_bytes = None if free_bytes is None else _MEMORY_SHARE * free_bytes
        # By the id of what they were made of, which its owner's module keeps alive.
        self._held: dict[int, nn.Parameter] = {}
        self._recent: dict[int, nn.Parameter] = {}
        self._placeholders: dict[int, nn.Parameter] = {}
        # Of those that are not held: their address, they themselves, what they were made of.
        self._sources: dict[int, tuple[ReferenceType[nn.Parameter], nn.Parameter]] = {}

    def can_hold(self, parameters: Sequence[nn.Parameter]) -> bool:
        """Return whether memory is enough to convert parameters once."""
        count = sum(_unpacked_shape(parameter).numel() for parameter in parameters)
        return self._free_bytes is None or count * self.dtype.itemsize <= self._free_bytes

    def convert(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return a parameter in this precision; while one is held, the same object."""
        converted = self._held.get(id(parameter), self._recent.get(id(parameter)))
        return self._convert_and_hold(parameter) if converted is None else converted

    def _convert_and_hold(self, parameter: nn.Parameter) -> nn.Parameter:
        byte_count = _unpacked_shape(parameter).numel() * self.dtype.itemsize
        fits = self._free_bytes is None or byte_count <= self._free_bytes
        if not fits:
            while self._recent and byte_count + self._count_recent_bytes() > _RECENT_BYTES:
                del self._recent[next(iter(self._recent))]
        with torch.inference_mode(False):  # a gradient may be taken through it later
            converted = nn.Parameter(_unpack(parameter).to(self.dtype), requires_grad=False)
        if fits:
            self._held[id(parameter)] = converted
            self._free_bytes = None if self._free_bytes is None else self._free_bytes - byte_count
        else:
            self._recent[id(parameter)] = converted
            self._sources[converted.data_ptr()] = ref(converted), parameter
        return converted

    def _count_recent_bytes(self) -> int:
        return sum(converted.nbytes for converted in self._recent.values())

    def placeholder(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return what has a converted parameter's shape, precision and device, and takes no memory:
        its numbers are NaN."""
        if id(parameter) not in self._placeholders:
            nan = torch.full((), torch.nan, dtype=self.dtype, device=parameter.device)
            self._placeholders[id(parameter)] = nn.Parameter(
                nan.expand(_unpacked_shape(parameter)), requires_grad=False
            )
        return self._placeholders[id(parameter)]

    def pack_saved(self, tensor: Tensor) -> Any:
        """Return what a backward pass keeps instead of a tensor: for a weight that is not held, its
        source; else the tensor."""
        converted_ref, source = self._sources.get(
            tensor.untyped_storage().data_ptr(), (lambda: None, None)
        )
        if converted_ref() is None:
            return tensor
        return source, tensor.shape, tensor.stride(), tensor.storage_offset()

    def unpack_saved(self, saved: Any) -> Tensor:
        """Return the tensor that `pack_saved` was given."""
        if isinstance(saved, Tensor):
            return saved
        source, shape, stride, offset = saved
        return self.convert(source).as_strided(shape, stride, offset)


class ConvertedParameters(dict[str, "nn.Parameter | None"]):
    """Parameters of a module by name, in place of its own: each is converted when it is read.

    Iterating (``module.parameters()``) converts nothing and yields placeholders: code reads a
    model's precision and device in this way.
    """

    def __init__(self, parameters: dict[str, nn.Parameter | None], converter: WeightConverter):
        super().__init__(parameters)
        self.converter = converter

    def __getitem__(self, name: str) -> nn.Parameter | None:
        parameter = super().__getitem__(name)
        if parameter is None or not needs_conversion(parameter, self.converter.dtype):
            return parameter
        return self.converter.convert(parameter)

    def items(self) -> dict_items[str, nn.Parameter | None]:
        return {
            name: self.converter.placeholder(parameter)
            if parameter is not None and needs_conversion(parameter, self.converter.dtype)
            else parameter
            for name, parameter in super().items()
        }.items()

    def values(self) -> dict_values[str, nn.Parameter | None]:
        return dict(self.items()).values()


def needs_conversion(tensor: Tensor, dtype: torch.dtype | None) -> bool:
    """Return True if a tensor has coarser numbers; finer ones stay (rotary tables of half-precision
    models are float32)."""
    if dtype is not None and is_packed(tensor):
        return True
    if dtype is None or tensor.dtype == dtype or not tensor.is_floating_point():
        return False
    return torch.finfo(tensor.dtype).eps > torch.finfo(dtype).eps


def is_packed(tensor: Tensor) -> bool:
    """True for a weight in 4 bits of bitsandbytes.

    Its layer multiplies by the numbers that bitsandbytes unpacks it to, and rounds no states: with
    these numbers the layer is the same function.
    """
    return (
        type(tensor).__name__ == "Params4bit" and getattr(tensor, "quant_state", None) is not None
    )


def find_quantised_layer(module: nn.Module) -> str | None:
    """Return the class of a layer of a quantiser whose weights cannot be unpacked here, or None."""
    for layer in module.modules():
        is_quantised = any(word in type(layer).__module__ for word in _QUANTISERS)
        if is_quantised and not any(map(is_packed, layer.parameters())):
            return type(layer).__name__
    return None


def _unpack(parameter: nn.Parameter) -> Tensor:
    if not is_packed(parameter):
        return parameter.detach()
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight

    unpacked: Tensor = dequantize_bnb_weight(parameter)
    return unpacked


def _unpacked_shape(parameter: Any) -> torch.Size:
    return torch.Size((parameter.quant_state if is_packed(parameter) else parameter).shape)
