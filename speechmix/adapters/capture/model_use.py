"""Run a model: in evaluation mode, in a chosen precision, one thread at a time, as its owner has it.

In: a model as `ModelDescription` describes it. Out: contexts in which it may be run, its features and
outputs. Nothing of the module is changed when a context is left.

Cache. Within `Model.unchanged`, features of a clip's audio and encoder states are computed once: maps,
ablation and transcript need the same ones. Audio is identified by its hash (`Clip.audio_hash`). What was
used longest ago is dropped first.

Precision. By default PyTorch convolves float32 numbers on a GPU with the ten bits of TF32, which moves
scores by 1e-4 of the largest one; a caller can allow the like for products. PyTorch's weight norm on a GPU
takes a root in float32 whatever the weights are, which moves the float64 scores of wav2vec 2.0 by 1e-8.

Random numbers. torch's generator belongs to the process: to save it before a pass and to put it back
behind it (`torch.random.fork_rng`) repeats what other threads have drawn in between. So functions that draw
are given a generator of the context. Some models add noise to their sound (VibeVoice): each of their runs
begins with the same numbers, and so does each row of a batch, or differences between runs would be
differences of noise. Models that drew nothing in their check run without this.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...errors import InputError, ModelError
from ...files.timing import phase
from ..binding.bound_layers import bind_stack, layer_modules
from ..delta_engine.matrix_products import WeightProducts, float32_precision
from ..loading.model_properties import ModelDescription
from ..transformers_types import HookArguments, HookKeywords, Inputs, ModelOutput, TorchFunction
from .module_access import (
    check_fits,
    exclusive_access,
    has_adapters,
    list_modules,
    precision_context,
)

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..families.family import Family
    from ..model import Model

# Bytes of features, on the host, and of encoder states, on the device: those of some 120 clips for
# a Whisper, and the states of ten for a Whisper-medium.
MAX_FEATURE_BYTES = 2**27
MAX_STATE_BYTES = 2**26


class LRUCache:
    """Least-recently-used cache of tensors by key, up to a number of bytes; safe for threads."""

    def __init__(self, max_bytes: int):
        self._max_bytes, self._used_bytes = max_bytes, 0
        self._results: OrderedDict[Hashable, Mapping[str, Tensor]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Mapping[str, Tensor] | None:
        """Return the result stored under the key, or None."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def store(self, key: Hashable, result: Mapping[str, Tensor]) -> None:
        """Store a result unless it is larger than the cache; drop what was used longest ago."""
        with self._lock:
            if key in self._results or _count_bytes(result) > self._max_bytes:
                return
            self._results[key] = result
            self._used_bytes += _count_bytes(result)
            while self._used_bytes > self._max_bytes:
                _, oldest = self._results.popitem(last=False)
                self._used_bytes -= _count_bytes(oldest)


def _count_bytes(result: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in result.values())


class ActivationCache:
    """Features and encoder states of the audio that a model ran on last."""

    def __init__(self) -> None:
        self.features = LRUCache(MAX_FEATURE_BYTES)
        self.encoder_states = LRUCache(MAX_STATE_BYTES)


@contextmanager
def full_precision(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Compute in full precision while the block lasts.

    Examples
    --------
    >>> with full_precision(torch.device("cpu"), torch.float32):
    ...     torch.backends.cudnn.conv.fp32_precision
    'ieee'
    """
    backends: Any = torch.backends
    operations = (
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.cudnn.rnn,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
        backends.mkldnn.rnn,
    )
    with ExitStack() as exit_stack:
        for operation in operations:
            exit_stack.enter_context(float32_precision(operation, "ieee"))
        if device.type == "cuda" and dtype == torch.float64:
            exit_stack.enter_context(ExactWeightNorm())
        yield


class ExactWeightNorm(TorchFunctionMode):
    """Computes weight norm, g v / || v ||, in the precision of its numbers."""

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        if func is not torch._weight_norm:
            return func(*args, **(kwargs or {}))
        return normalize_weight(*args, **(kwargs or {}))


def normalize_weight(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Return g v / || v ||, the norm over all axes but one."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


_NOISE_FUNCTIONS = (torch.rand, torch.randn)
_CREATION_FUNCTIONS = (*_NOISE_FUNCTIONS, torch.randint, torch.randperm)
_LIKE_FUNCTIONS = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}
_SAMPLING_FUNCTIONS = (
    torch.bernoulli,
    torch.multinomial,
    torch.normal,
    Tensor.bernoulli,
    Tensor.multinomial,
)
_FILL_FUNCTIONS = (
    *(Tensor.uniform_, Tensor.normal_, Tensor.random_, Tensor.bernoulli_, Tensor.exponential_),
    *(Tensor.geometric_, Tensor.cauchy_, Tensor.log_normal_),
)
_CONTEXT = threading.local()


@contextmanager
def isolated_random_numbers(*modules: nn.Module) -> Iterator[_GeneratorMode]:
    """Draw random numbers from a generator of the context, with a fixed seed, in this thread;
    contexts may be nested.

    Each run of one of the modules begins with the same numbers, and the rows of its batch share
    normal and uniform noise.
    """
    outer_mode: _GeneratorMode | None = getattr(_CONTEXT, "mode", None)
    mode = _GeneratorMode() if outer_mode is None else outer_mode
    with ExitStack() as exit_stack:
        if outer_mode is None:
            _CONTEXT.mode = exit_stack.enter_context(mode)
            exit_stack.callback(setattr, _CONTEXT, "mode", None)
        for module in modules:
            hook = module.register_forward_pre_hook(mode.start_run, with_kwargs=True)
            exit_stack.callback(hook.remove)
        yield mode


class _GeneratorMode(TorchFunctionMode):
    """Passes a generator to functions that draw random numbers without one."""

    def __init__(self) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        self._row_count = 1
        self.has_drawn = False

    def start_run(self, module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        """Begin with the first number again, for as many rows as the module's batch has."""
        self._generators.clear()
        tensors = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim)
        self._row_count = len(next(tensors, [0]))

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _RANDOM_FUNCTIONS or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        self.has_drawn, kwargs = True, dict(kwargs)
        if func in _LIKE_FUNCTIONS:  # they take no generator in all versions
            like = args[0] if args else kwargs.pop("input")
            kwargs, args = {"dtype": like.dtype, "device": like.device, **kwargs}, (like.shape,)
            func = _LIKE_FUNCTIONS[func]
        kwargs["generator"] = self._generator(_output_device(func, args, kwargs))
        if func not in _NOISE_FUNCTIONS or self._row_count == 1:
            return func(*args, **kwargs)
        size = kwargs.pop("size") if "size" in kwargs else args
        size = size[0] if size and isinstance(size[0], Sequence) else size
        if not size or size[0] != self._row_count:
            return func(size, **kwargs)
        return func(1, *size[1:], **kwargs).repeat(self._row_count, *[1] * (len(size) - 1))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(0)
        return self._generators[device]


_RANDOM_FUNCTIONS = frozenset(
    (*_CREATION_FUNCTIONS, *_LIKE_FUNCTIONS, *_SAMPLING_FUNCTIONS, *_FILL_FUNCTIONS)
)


def _output_device(func: TorchFunction, args: HookArguments, kwargs: HookKeywords) -> torch.device:
    """Where a function draws."""
    tensor = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    if tensor is not None and func not in _CREATION_FUNCTIONS:
        return tensor.device
    return torch.device(kwargs.get("device") or torch.get_default_device())


@dataclass
class RandomNumberCheck:
    """What the check of a model found about random numbers; copies of the model share it."""

    needs_isolation: bool = True


class MeasurableModel(ModelDescription):
    """What runs a `Model`, and what it stores in the meantime."""

    family: Family
    weight_products: WeightProducts | None
    activation_cache: ActivationCache | None
    _modules: list[torch.nn.Module]  # that the stacks are bound to
    random_number_check: RandomNumberCheck

    def features(self, audio: np.ndarray) -> dict[str, torch.Tensor]:
        """Return what the model's feature extractor makes of audio [samples] at the model's
        rate."""
        if self.feature_extractor is None:
            raise ModelError(
                f"{self.name} was loaded without a feature extractor, so it cannot be given audio: "
                "load it with "
                "processor=, or pass prepared inputs"
            )
        check_fits(self, len(audio))
        if self.family.grid is not None:
            self.family.grid(self.config, len(audio))  # raises for sound shorter than a frame
        with phase("features"):
            features = self.feature_extractor(
                audio, sampling_rate=self.sample_rate, return_tensors="pt"
            )
            # Cohere's also tells which part of which sound each row is.
            return {name: x for name, x in features.items() if isinstance(x, torch.Tensor)}

    def run_with_head(self, inputs: Inputs, **options: object) -> ModelOutput:
        """Run the whole module within `in_use`, with its head and without a cache of past tokens.

        The inputs are on the model's device; the options are further arguments of the module
        ("encoder_outputs" instead of the encoder's input). A decoder behind an encoder that is fed
        nothing is an InputError; one that predicts several codes at a position (Dia), a ModelError.
        """
        needs_text = self.capabilities.generated_input == "decoder_input_ids"
        if needs_text and "decoder_input_ids" not in inputs:
            raise InputError(
                f"{self.name} predicts nothing without decoder_input_ids: give them with the inputs"
            )
        if "decoder" in self.stacks:
            options = {"use_cache": False, **options}
        if self.family.run_head is not None:
            return self.family.run_head(self.module, inputs, **options)
        with _protected_states({**inputs, **options}.get("encoder_outputs"), self.family.is_traced):
            output = self.module(**inputs, **options, return_dict=True)
        codes = inputs.get("decoder_input_ids")
        if codes is not None and codes.ndim == 3 and len(output.logits) != len(codes):
            raise ModelError(
                f"{self.name} predicts a code of each of {codes.shape[-1]} codebooks at a position: a "
                "decision between two tokens is not defined there; measure its maps with speechmix.mix"
            )
        return output

    @contextmanager
    def in_use(
        self, dtype: torch.dtype | None = None, *, is_sampling: bool = False
    ) -> Iterator[None]:
        """Evaluate while the block lasts: no dropout, no gradients of weights, in a given
        precision, and in all its digits. Then all is as before.

        `dtype` is the weights' own precision or a finer one; None converts nothing. Whatever runs
        the module runs it in here, for the module may be its owner's, who trains it in between.
        Threads that share a model, or modules of one, take turns. Random numbers are drawn apart
        from the caller's, the same in each run and each row of a batch. Set `is_sampling` if the
        block itself draws some.
        """
        weights_dtype = self.dtype
        if dtype is not None and torch.finfo(dtype).eps > torch.finfo(weights_dtype).eps:
            raise ModelError(
                f"cannot run a {weights_dtype} model in {dtype} and give it back unchanged: load it with "
                "dtype= instead"
            )
        with exclusive_access(self.module):
            self.rebind()
            with (
                self._isolate_if_needed(is_sampling),
                precision_context(self.module, dtype),
                full_precision(self.device, dtype or weights_dtype),
            ):
                yield

    @contextmanager
    def _isolate_if_needed(self, is_sampling: bool) -> Iterator[None]:
        """Isolate random numbers where some may be drawn; to intercept each operation takes a fifth
        of a tiny model's time."""
        check = self.random_number_check
        if (
            is_sampling
            or check.needs_isolation
            or self.device.type not in ("cpu", "cuda")
            or getattr(_CONTEXT, "mode", None) is not None
            or _has_custom_code(self._modules)
        ):
            with isolated_random_numbers(self.module, self.base):
                yield
            return
        states = _random_states(self.device)
        try:
            yield
        finally:
            has_drawn = not all(map(torch.equal, states, _random_states(self.device)))
            if has_drawn and not check.needs_isolation:
                check.needs_isolation = True
                warnings.warn(
                    f"{self.name} drew random numbers, and none when it was loaded (or another thread drew some). "
                    "The last result may differ from run to run: compute it again",
                    stacklevel=4,
                )

    @contextmanager
    def check_random_numbers(self) -> Iterator[None]:
        """Record whether the module draws random numbers in this block."""
        states = _random_states(self.device)
        with isolated_random_numbers() as mode:
            yield
        has_drawn = not all(map(torch.equal, states, _random_states(self.device)))
        self.random_number_check.needs_isolation = has_drawn or mode.has_drawn

    def rebind(self) -> None:
        """Find the modules again that were exchanged inside layers since the model was loaded.

        A ModelError says that whole layers were exchanged, that the model was given adapters, or
        that its table does not fit the new modules.
        """
        modules = list_modules(self.module)
        if len(modules) == len(self._modules) and all(map(operator.is_, modules, self._modules)):
            return
        for name, stack in self.stacks.items():
            if layer_modules(stack.spec, self.base) != tuple(
                layer.module for layer in stack.layers
            ):
                raise ModelError(
                    f"{self.name}: layers of the {name} were exchanged after loading: load it again"
                )
        if has_adapters(self.module):
            raise ModelError(
                f"{self.name} was given adapters after loading: load it again, so that they are "
                "merged"
            )
        for name, stack in self.stacks.items():
            bound_stack = bind_stack(stack.spec, self.base, stack.heads)
            if bound_stack is not None:
                self.stacks[name] = replace(
                    bound_stack, unknown_sum_reason=stack.unknown_sum_reason
                )
        self._modules, self.random_number_check.needs_isolation = modules, True

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Promise that weights and feature extractor do not change while the block lasts: what is
        computed from them is computed once.

        What is made of the weights for one clip serves the next (on a CPU); what is made of a
        clip's sound, features and the states of a Whisper's encoder, serves the next question about
        it.
        """
        if self.activation_cache is not None:
            yield
            return
        self.activation_cache = ActivationCache()
        self.weight_products = WeightProducts() if self.device.type == "cpu" else None
        try:
            yield
        finally:
            self.weight_products = self.activation_cache = None


def _has_custom_code(modules: Iterable[nn.Module]) -> bool:
    """Whether modules have hooks that are not from transformers, or a replaced `forward`."""
    return any(
        "forward" in vars(module)
        or any(
            not (getattr(hook, "__module__", None) or "").startswith("transformers.")
            for hooks in (module._forward_pre_hooks, module._forward_hooks)
            for hook in hooks.values()
        )
        for module in modules
    )


def _random_states(device: torch.device) -> list[Tensor]:
    """States of the generators that a module draws from by default."""
    return [torch.get_rng_state()] + (
        [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    )


@contextmanager
def _protected_states(encoder_output: ModelOutput, is_needed: bool) -> Iterator[None]:
    """Give the decoder a copy of an encoder's states: Moonshine Streaming's writes into them, and
    they are used again."""
    if encoder_output is None or not is_needed:
        yield
        return
    states = encoder_output[0]
    encoder_output.last_hidden_state = states.clone()
    try:
        yield
    finally:
        encoder_output.last_hidden_state = states


class Features(NamedTuple):
    """Features of a clip: tensors by name, and the hash of the audio (None where they are not
    cached)."""

    tensors: dict[str, Tensor]
    audio_hash: str | None


def extract_features(model: Model, clip: Clip) -> Features:
    """Extract a clip's features; within `Model.unchanged` once for clips with the same audio.

    Do not write to the tensors. An InputError says that the audio cannot be read or that the
    features are not finite; a ModelError, that the model makes none.
    """
    # Read once: a late thread must not store its result for the next `unchanged`.
    cache = model.activation_cache
    if cache is None:
        return Features(_compute_features(model, clip), None)
    audio_hash = clip.audio_hash
    features = cache.features.get(audio_hash)
    if features is None:
        features = _compute_features(model, clip)
        if clip.audio_hash != audio_hash:  # the file was exchanged in between
            return Features(features, None)
        cache.features.store(audio_hash, features)
    return Features(dict(features), audio_hash)


def _compute_features(model: Model, clip: Clip) -> dict[str, Tensor]:
    """Features of a clip; Speech2Text divides them by how much they vary, which in digital silence
    is nothing."""
    features = dict(model.features(clip.audio(model.sample_rate)))
    for name, tensor in features.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InputError(
                f"{clip.name}: {name} that the feature extractor of {model.name} makes of this "
                "sound are not all finite, as of "
                "a sound that is silent throughout: leave the clip out, or use one with sound in it"
            )
    return features


def run_encoder(
    model: Model, inputs: Inputs, audio_hash: str | None, *, attention: str | None = None
) -> ModelOutput:
    """Run an encoder on a clip's inputs, or return its cached output for the same audio.

    Call it within `Model.in_use`, without gradients. The first input is the sound [1, ...], on the
    model's device and in the precision to compute in; `attention` is an implementation to run under
    instead of the model's own. Only passes of one clip are cached: in a batch the same numbers may
    be summed in another order.
    """
    key = _encoder_states_key(model, audio_hash, next(iter(inputs.values())), attention)
    states = (
        None
        if model.activation_cache is None or audio_hash is None
        else model.activation_cache.encoder_states.get(key)
    )
    if states is not None:
        return wrap_encoder_states(states["states"].clone())  # a decoder may write into them
    output = model.family.run(model.base, inputs, ("encoder",))
    store_encoder_states(model, output[0], audio_hash, attention=attention)
    return output


def reuse_encoder_states(model: Model, inputs: Inputs, audio_hash: str | None) -> dict[str, Any]:
    """Replace the audio among a model's inputs by the encoder's states, where the decoder reads them
    by cross-attention and they are those of one clip."""
    audio_inputs = {
        name: tensor for name, tensor in inputs.items() if not name.startswith("decoder_")
    }
    if audio_hash is None or not model.capabilities.decoder_stacks or len(audio_inputs) != 1:
        return dict(inputs)
    other_inputs = {name: tensor for name, tensor in inputs.items() if name not in audio_inputs}
    return {**other_inputs, "encoder_outputs": run_encoder(model, audio_inputs, audio_hash)}


def wrap_encoder_states(states: Tensor) -> ModelOutput:
    """Wrap an encoder's states [B, T, D] as a decoder takes them, none of them padding.

    The attention mask is there and None, because Moonshine looks for it.
    """
    from transformers.modeling_outputs import BaseModelOutput

    output: ModelOutput = BaseModelOutput(states)
    output.attention_mask = None
    return output


def store_encoder_states(
    model: Model, states: Tensor, audio_hash: str | None, *, attention: str | None = None
) -> None:
    """Store an encoder's output [1, T, D] for the next call with the same audio."""
    if model.activation_cache is not None and audio_hash is not None and len(states) == 1:
        key = _encoder_states_key(model, audio_hash, states, attention)
        model.activation_cache.encoder_states.store(key, {"states": states.detach().clone()})


def _encoder_states_key(
    model: Model, audio_hash: str | None, tensor: Tensor, attention: str | None
) -> Hashable:
    """Return what decides an encoder's output: audio, device, precision, attention
    implementation."""
    return (
        audio_hash,
        tensor.device,
        tensor.dtype,
        attention or getattr(model.config, "_attn_implementation", None),
    )
