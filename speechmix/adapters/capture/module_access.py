"""Hold a module exclusively, in evaluation mode and a chosen dtype, then restore it.

In: any module, its owner's or our own. For a while every part is in evaluation mode, no parameter
asks for a gradient and numbers are raised to one precision. Nothing is converted back: what has to
be converted is *exchanged* for a stand-in and the very same object is put back, so values, storages
and gradients are those of before, bit for bit. Parameters that have the precision already are used as they are;
buffers, which are small, are copied, because some forward passes write to them (rotary tables that grow with
the text).

Weights in half precision, or packed in 4 bits, are converted where code reads `module.weight`, in a forward pass
or outside one. Nothing is rounded, so it does not matter when a weight is converted, or how often. What is read
first is held as long as there is memory; the rest is converted again in each layer that runs.

Before a forward pass it is checked that the clip fits into memory, because a system that runs out of memory
kills the process. What grows with the clip is the convolutional front end of models that read samples; Whisper's
window and texts are bounded by the model itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Condition, get_ident
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ...errors import InputError

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

    from ..loading.model_properties import ModelDescription


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


_OWNER_CHANGE = Condition()
_OWNERS: dict[int, int] = {}  # id of what is in use to its thread


@contextmanager
def exclusive_access(module: nn.Module) -> Iterator[None]:
    """Lock a module for one thread: others that need it, or anything that shares parts with it,
    wait.

    Hooks, parts, parameters and configs belong to the module and not to a thread. A model and its
    own base model share them.
    """
    thread_id = get_ident()
    if _OWNERS.get(id(module)) == thread_id:  # with all its parts
        yield
        return
    # The objects stay alive, so that no other one has the same id.
    objects_by_id = {
        id(shared_object): shared_object for shared_object in _list_shared_objects(module)
    }
    with _OWNER_CHANGE:
        _OWNER_CHANGE.wait_for(
            lambda: all(
                _OWNERS.get(object_id, thread_id) == thread_id for object_id in objects_by_id
            )
        )
        acquired_ids = [object_id for object_id in objects_by_id if object_id not in _OWNERS]
        _OWNERS.update(dict.fromkeys(acquired_ids, thread_id))
    try:
        yield
    finally:
        with _OWNER_CHANGE:
            for object_id in acquired_ids:
                del _OWNERS[object_id]
            _OWNER_CHANGE.notify_all()


def _list_shared_objects(module: nn.Module) -> Iterator[object]:
    """Everything in a module that measuring it changes for a while: parts, their weights and
    configs."""
    for submodule in list_modules(module):
        yield submodule
        yield from (
            parameter for parameter in submodule._parameters.values() if parameter is not None
        )
        config = getattr(submodule, "config", None)
        if config is not None:
            yield config


@contextmanager
def precision_context(module: nn.Module, dtype: torch.dtype | None = None) -> Iterator[None]:
    """Prepare a module for measuring while the block lasts: no dropout, no gradients of weights.

    Parameters and buffers coarser than `dtype` are raised to it; with None each keeps its own.
    """
    buffer_replacements: dict[int, Tensor] = {}  # by what they replace
    with ExitStack() as exit_stack:
        modules = list_modules(module)
        converter = None if dtype is None else _make_converter(exit_stack, modules, dtype)
        for submodule in modules:
            _set_temporarily(exit_stack, submodule, "training", False)
            _set_temporarily(
                exit_stack, submodule, "chunk_size_feed_forward", 0
            )  # saves memory, refuses lengths it does not divide
            if submodule._parameters:
                _exchange_parameters(exit_stack, submodule, converter)
            if submodule._buffers:
                _exchange_buffers(exit_stack, submodule, buffer_replacements, dtype)
        yield


def _set_temporarily(
    exit_stack: ExitStack, submodule: nn.Module, name: str, value: bool | int | list[Tensor]
) -> None:
    """Set an attribute that is there and has another value."""
    old_value = submodule.__dict__.get(name)
    if old_value:
        submodule.__dict__[name] = value
        exit_stack.callback(submodule.__dict__.__setitem__, name, old_value)


def has_adapters(module: nn.Module) -> bool:
    """True if some module of a model is PEFT's."""
    return any(type(submodule).__module__.startswith("peft.") for submodule in list_modules(module))


def list_modules(module: nn.Module) -> list[nn.Module]:
    """Return a module with all its parts, each once: its ``modules()``, several times as fast."""
    modules_by_id: dict[int, nn.Module] = {}
    pending: list[nn.Module | None] = [module]
    while pending:
        submodule = pending.pop()
        if submodule is not None and id(submodule) not in modules_by_id:
            modules_by_id[id(submodule)] = submodule
            pending.extend(reversed([*submodule._modules.values()]))
    return list(modules_by_id.values())


def _make_converter(
    exit_stack: ExitStack, modules: Iterable[nn.Module], dtype: torch.dtype
) -> WeightConverter | None:
    """Make a converter of modules' weights that may use the free memory; None if all weights have
    the precision already."""
    weights = dict.fromkeys(weight for module in modules for weight in module._parameters.values())
    coarse_weights = [
        weight for weight in weights if weight is not None and needs_conversion(weight, dtype)
    ]
    if not coarse_weights:
        return None
    converter = WeightConverter(dtype, free_bytes(coarse_weights[0].device))
    if not converter.can_hold(coarse_weights):
        exit_stack.enter_context(saved_tensors_hooks(converter.pack_saved, converter.unpack_saved))
    return converter


def _exchange_parameters(
    exit_stack: ExitStack, submodule: nn.Module, converter: WeightConverter | None
) -> None:
    parameters = submodule._parameters
    unconverted_parameters = dict(dict.items(parameters))  # also of one that is converted already
    if converter is not None and any(
        parameter is not None and needs_conversion(parameter, converter.dtype)
        for parameter in unconverted_parameters.values()
    ):
        exit_stack.callback(submodule.__dict__.__setitem__, "_parameters", parameters)
        submodule.__dict__["_parameters"] = ConvertedParameters(unconverted_parameters, converter)
        if isinstance(submodule, nn.Linear) and any(
            parameter is not None and is_packed(parameter)
            for parameter in unconverted_parameters.values()
        ):
            if (instance_forward := submodule.__dict__.get("forward")) is not None:
                exit_stack.callback(submodule.__dict__.__setitem__, "forward", instance_forward)
            exit_stack.callback(submodule.__dict__.pop, "forward")
            submodule.__dict__["forward"] = partial(  # its own reads packed numbers
                nn.Linear.forward, submodule
            )
        if isinstance(submodule, nn.RNNBase):  # which has them by number too
            names = submodule._flat_weights_names
            weights = [getattr(submodule, name) for name in names]
            _set_temporarily(exit_stack, submodule, "_flat_weights", weights)
    trainable_parameters = [
        parameter
        for parameter in submodule._parameters.values()
        if parameter is not None and parameter.requires_grad
    ]
    if trainable_parameters:
        for parameter in trainable_parameters:
            parameter.requires_grad_(False)
        exit_stack.callback(
            lambda: [parameter.requires_grad_(True) for parameter in trainable_parameters]
        )


def _exchange_buffers(
    exit_stack: ExitStack,
    submodule: nn.Module,
    replacements: dict[int, Tensor],
    dtype: torch.dtype | None,
) -> None:
    original_buffers, original_attributes = dict(submodule._buffers), dict(submodule.__dict__)
    non_persistent_names = set(submodule._non_persistent_buffers_set)
    for name, buffer in original_buffers.items():
        if buffer is not None:
            if id(buffer) not in replacements:
                replacements[id(buffer)] = buffer.detach().to(
                    dtype if needs_conversion(buffer, dtype) else buffer.dtype, copy=True
                )
            submodule._buffers[name] = replacements[id(buffer)]
    states_before = {
        name: (buffer, _write_count(buffer)) for name, buffer in submodule._buffers.items()
    }

    def restore_buffers() -> None:
        states_after = {
            name: (buffer, _write_count(buffer)) for name, buffer in submodule._buffers.items()
        }
        is_written = states_after.keys() != states_before.keys() or any(
            states_after[name][0] is not states_before[name][0]
            or states_after[name][1] != states_before[name][1]
            for name in states_before
        )
        submodule._buffers.clear()
        submodule._buffers.update(original_buffers)
        submodule._non_persistent_buffers_set.clear()
        submodule._non_persistent_buffers_set.update(non_persistent_names)
        if (
            is_written
        ):  # and with its tables what it notes about them, such as how long a text they reach
            for name in submodule.__dict__.keys() - original_attributes.keys():
                del submodule.__dict__[name]
            submodule.__dict__.update(original_attributes)

    exit_stack.callback(restore_buffers)


def _write_count(tensor: Tensor | None) -> int | None:
    """How often a tensor has been written to."""
    return None if tensor is None or tensor.is_inference() else tensor._version


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return a floating-point type given by name or as it is."""
    resolved_dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(resolved_dtype, torch.dtype) or not resolved_dtype.is_floating_point:
        raise InputError(
            "dtype should be float32 or float64 (to hold weights also bfloat16 or float16), found "
            f"{dtype!r}"
        )
    return resolved_dtype
