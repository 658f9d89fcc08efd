"""Load a model from the hub, a folder or memory, trained or randomly initialised.

No modelling code: the model is what transformers builds. After loading, a self-check on a tiny
input (self_check.py) makes sure that the family's table fits it, so that a wrong path is an error now
and not wrong science later. An object given stays as it is: it is evaluated within `Model.in_use`,
and what has to be converted is a copy.

Build a model's torch module: from weights, randomly initialised, copied or converted.

Models with adapters (PEFT: LoRA and its kin): what is measured is a copy with the adapters
merged into the weights.

A LoRA layer adds B A x to W x. Merged, W + B A is one matrix again, so every part is where the
family's table says it is and scores are those of ``merge_and_unload()``. In: a model object with
adapters, or a folder with adapter_config.json and the model it was trained on. Out: a plain
transformers model; the object given stays as it is.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import InputError, MissingExtraError, ModelError
from ...extension import find_hook
from ...files.text_files import read_bounded
from ..binding.self_check import match_original_states, self_check
from ..capture.module_access import has_adapters, resolve_dtype
from ..families.family import Family
from ..families.registry import find_family, find_module_family
from ..generation.audio_prompt import find_audio_token_id
from ..model import Model
from ..transformers_types import Config, FeatureExtractor, Processor
from .checkpoints import (
    NO_CUSTOM_CODE,
    custom_code_message,
    find_extractor,
    first_line,
    fitting_tokenizer,
    load_processor_part,
    load_trained,
    needs_custom_code,
    read_config,
    select_chat_processor,
    split_processor,
    transformers_class,
)
from .foreign_checkpoint import ForeignCheckpoint, open_checkpoint
from .model_source import (
    check_model_reference,
    check_weights,
    is_pipeline,
    model_source_name,
    resolve_path_or_id,
    resolve_transformers_options,
    unwrap_module,
)


def merge_adapters(module: nn.Module) -> nn.Module:
    """Return a copy of a model with its active adapters merged.

    Adapters that are no change of weights (prompts, prefixes) are a ModelError.
    """
    return _merge_copy(copy.deepcopy(module))


def _merge_copy(copied: nn.Module) -> nn.Module:
    merge = getattr(copied, "merge_and_unload", None)
    if merge is not None:
        return _check_all_merged(merge())
    if hasattr(copied, "peft_config") and hasattr(copied, "get_base_model"):
        raise ModelError(
            f"{type(copied).__name__}: its adapter adds prompts and changes no weights, so there "
            "is nothing to merge. Load the "
            "model without it: model.get_base_model()"
        )
    for path, submodule in [
        *copied.named_modules()
    ]:  # adapters set into a plain model (model.add_adapter)
        if not path or not type(submodule).__module__.startswith("peft."):
            continue
        parent, _, name = path.rpartition(".")
        if hasattr(submodule, "merge") and hasattr(submodule, "get_base_layer"):
            submodule.merge()
            setattr(copied.get_submodule(parent), name, submodule.get_base_layer())
        elif hasattr(submodule, "modules_to_save"):
            setattr(
                copied.get_submodule(parent),
                name,
                submodule.modules_to_save[submodule.active_adapter],
            )
    return _check_all_merged(copied)


def _check_all_merged(module: nn.Module) -> nn.Module:
    if has_adapters(module):
        raise ModelError(
            f"{type(module).__name__}: not all of its adapters can be merged. Merge them and pass "
            "the result"
        )
    return module


def adapter_base(folder: str) -> str | None:
    """Return the model that an adapter in a folder was trained on; None for a folder with a model.

    A ModelError says that adapter_config.json cannot be read or names no model.
    """
    path = Path(folder) / "adapter_config.json"
    if not path.is_file() or (Path(folder) / "config.json").is_file():
        return None
    try:
        config = json.loads(read_bounded(path).decode("utf-8"))
        base = config.get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"cannot read {str(path)!r}: expected the config of an adapter ({error})"
        ) from error
    if not base or not isinstance(base, str) or "\0" in base:
        raise ModelError(
            f"{str(path)!r} does not say which model the adapter was trained on "
            "(base_model_name_or_path): load that model "
            "with transformers, the adapter with peft, and pass the object"
        )
    sibling_dir = Path(folder) / base
    return str(sibling_dir) if not Path(base).exists() and sibling_dir.is_dir() else base


def load_adapter(module: nn.Module, folder: str) -> nn.Module:
    """Return a model with the adapter in a folder merged into it (the module itself is used up).

    A ModelError says that the adapter cannot be read or was trained on another architecture; a
    MissingExtraError, that peft is not installed.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("peft", "peft", f"the adapter in {folder!r}") from error
    try:
        weights = peft.load_peft_weights(folder, device="cpu")
        _check_ranks(folder, weights)
        adapted = peft.PeftModel.from_pretrained(module, folder)
    except ModelError:
        raise
    except (
        Exception
    ) as error:  # a damaged file raises the errors of safetensors, pickle, zip, torch and peft
        raise ModelError(
            f"cannot load the adapter in {folder!r} into {type(module).__name__}: {first_line(error)}. "
            "Save it again with peft"
        ) from error
    unmatched_names = sorted(weights.keys() ^ peft.get_peft_model_state_dict(adapted).keys())
    if unmatched_names:
        raise ModelError(
            f"the adapter in {folder!r} does not fit {type(module).__name__}: {len(unmatched_names)} of its "
            "weights have no place there, "
            f"or places no weight ({unmatched_names[0]}). Load the model it was trained on, the adapter with "
            "peft, and pass the object"
        )
    return _merge_copy(adapted)


def _check_ranks(folder: str, weights: Mapping[str, torch.Tensor]) -> None:
    """Raise a ModelError for a LoRA config whose rank its weights do not have: peft would reserve
    memory for it before it compares them."""
    config = json.loads((Path(folder) / "adapter_config.json").read_text(encoding="utf-8"))
    if config.get("peft_type") != "LORA":
        return
    sizes = [size for tensor in weights.values() for size in tensor.shape]
    pattern = config.get("rank_pattern") or {}
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    too_large = [rank for rank in ranks if isinstance(rank, int) and rank > max(sizes, default=0)]
    if too_large:
        raise ModelError(
            f"the adapter in {folder!r} is damaged: adapter_config.json has rank {too_large[0]:,}, "
            "but no side of its weights "
            f"is longer than {max(sizes, default=0):,}"
        )


def wrap_module(
    module: torch.nn.Module,
    family: Family,
    init: str,
    seed: int | None,
    dtype: torch.dtype | None,
    device: torch.device | None,
    processor: Processor,
) -> Model:
    """Wrap a module as it is; what has to be converted or merged is a copy."""
    name = getattr(module, "name_or_path", "") or type(module).__name__
    original_module = module
    if has_adapters(module):
        module = merge_adapters(module)
    config = module.config
    if init == "random":
        first_parameter = next(module.parameters())
        dtype, device = dtype or first_parameter.dtype, device or first_parameter.device
        module = build_random_module(lambda: type(module)(copy.deepcopy(config)))
    check_weights(module, name)
    first_parameter = next(module.parameters())
    if (dtype not in (None, first_parameter.dtype)) or (
        device not in (None, first_parameter.device)
    ):
        module = convert_copy(
            _copy_module(module) if module is original_module else module, dtype, device
        )
    if module is not original_module:
        module.eval().requires_grad_(False)
    extractor, tokenizer = split_processor(processor, family, config)
    processor = select_chat_processor(processor)
    return Model(module, family, name, init, seed, extractor, tokenizer, processor=processor)


def check_config(module: torch.nn.Module) -> None:
    """Raise `ModelError` unless a module has a config, as transformers' models do."""
    if getattr(module, "config", None) is None:
        raise ModelError(
            f"expected a transformers model, found {type(module).__name__}, which has no config: "
            "wrap it in a "
            "PreTrainedModel and describe it with speechmix.register"
        )


def build_random_module(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A model with random weights, drawn on the CPU and in float32 wherever and in whatever
    precision it is wanted.

    Weights drawn in half precision, or on a GPU, would be other weights.
    """
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            return build()
    except Exception as error:  # a config that fits no model
        if needs_custom_code(error):
            raise ModelError(custom_code_message("the model")) from error
        raise ModelError(
            f"cannot build a random twin from the model's config: {first_line(error)}"
        ) from error
    finally:
        torch.set_default_dtype(default_dtype)


def _copy_module(module: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # hooks and modules may hold anything
        raise ModelError(
            f"{type(module).__name__} should be converted on a copy, but cannot be copied "
            f"({first_line(error)}): convert it with "
            ".to(...) and leave dtype= and device= out"
        ) from error


def convert_copy(
    module: torch.nn.Module, dtype: torch.dtype | None, device: torch.device | str | None
) -> torch.nn.Module:
    """Put a module of our own elsewhere, and into another precision.

    As in a model that transformers loads in that precision, buffers that no checkpoint stores are
    not rounded (rotary tables, which a half-precision model keeps in float32).
    """
    if dtype is None:
        return module.to(device)
    for submodule in module.modules():
        for tables, non_persistent_names in (
            (submodule._parameters, ()),
            (submodule._buffers, submodule._non_persistent_buffers_set),
        ):
            for name, tensor in tables.items():
                if (
                    tensor is not None
                    and tensor.is_floating_point()
                    and (name not in non_persistent_names or _has_higher_precision(dtype, tensor))
                ):
                    tensor.data = tensor.data.to(dtype)
    return module.to(device)


def _has_higher_precision(dtype: torch.dtype, tensor: torch.Tensor) -> bool:
    return torch.finfo(dtype).eps < torch.finfo(tensor.dtype).eps


INITS = ("trained", "random")


def load(
    source: str | Path | Any,
    *,
    init: str = "trained",
    seed: int | None = None,
    processor: Processor = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    engine: str | None = None,
    check: bool = True,
    **transformers_options: Any,
) -> Model:
    """Load a model, unmodified.

    A model object stays as its owner has it: it runs in evaluation mode and without gradients while
    it is measured and is given back as it was, so it may be trained further in between. What is
    read from a folder is in evaluation mode.

    Parameters
    ----------
    source : str, Path, transformers.PreTrainedModel, transformers.Pipeline or peft.PeftModel
        Hub id ("openai/whisper-small"), folder in hub format, a file or folder of another engine
        (CTranslate2 and faster-whisper, whisper.cpp, openai-whisper, MLX, ONNX; recognised by its
        content), "package:NAME" for the model that an installed
        Python package holds, or a model object. Adapters (LoRA),
        as an object or as a folder with adapter_config.json, are merged into a copy of their model.
        Of a pipeline: its model and processor.
    init : {"trained", "random"}
        "random" builds the untrained twin from the same config.
    seed : int, optional
        Seed of the random initialisation (0 if not given). The same seed gives the same weights.
    processor : optional
        Processor, feature extractor or tokenizer to use instead of the source's own. A model object
        needs one for clips, none for prepared inputs.
    device : optional
        Where to put the model; by default CUDA if there is one (a model object stays where it is).
    dtype : optional
        Precision of the weights, float32 by default; "auto" for that of the checkpoint. Scores are
        never computed in half precision: a half-precision model is run in float32 (see
        `speechmix.mix`).
    revision : str, optional
        Branch, tag or commit on the hub.
    engine : str, optional
        "ctranslate2", "whisper.cpp" or "onnxruntime": also opens the file of this engine in the engine
        itself (extra ``engines``). The engine writes transcripts, the copy is measured, and the distance
        between them is measured on each clip. Behind a colon: its compute type ("ctranslate2:int8") or
        level of optimisation ("onnxruntime:basic").
    check : bool
        Run the self-check (a fraction of a second; it looks at a few frames).
    **transformers_options
        `torch_dtype` and `device_map` are taken for dtype and device, as long as the model lies on
        one device.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        For a source or an option that cannot be used.
    ModelError
        For a folder that is not there, an unsupported architecture, weights that are missing or
        quantised, or a failed self-check.
    MissingExtraError
        For a folder with an adapter, without peft.

    Examples
    --------
    >>> import transformers
    >>> config = transformers.WhisperConfig(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
    ...     decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50, vocab_size=100,
    ...     pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3)
    >>> load(transformers.WhisperForConditionalGeneration(config), init="random", seed=1, device="cpu").stacks.keys()
    dict_keys(['encoder', 'decoder', 'cross'])
    """
    if init not in INITS:
        raise InputError(f"init must be one of {INITS}, found {init!r}")
    if seed is not None and init != "random":
        raise InputError("seed= goes with init='random': a trained model has nothing to draw")
    if engine is not None and (init != "trained" or not isinstance(source, (str, Path))):
        raise InputError("engine= goes with the path of a trained model of that engine")
    seed = (0 if seed is None else seed) if init == "random" else None
    dtype, device = resolve_transformers_options(transformers_options, dtype=dtype, device=device)
    precision = None if dtype is None or dtype == "auto" else resolve_dtype(dtype)
    device = _resolve_device(device)
    if is_pipeline(source):
        source, processor = source.model, source if processor is None else processor
    check_model_reference(source)
    with torch.random.fork_rng(
        devices=[]
    ):  # transformers draws numbers on the way; the caller's state stays as it is
        torch.default_generator.manual_seed(
            seed or 0
        )  # not torch.manual_seed, which sets every GPU's too
        if isinstance(source, torch.nn.Module):
            module = unwrap_module(source)
            check_config(module)
            family = find_module_family(module, lambda: find_extractor(processor))
            model = wrap_module(module, family, init, seed, precision, device, processor)
        else:
            path_or_id = resolve_path_or_id(source)
            device = device or ("cuda" if torch.cuda.is_available() else "cpu")
            precision = torch.float32 if dtype is None else precision  # None for "auto"
            name = model_source_name(source, path_or_id)
            model = _load_from_source(
                path_or_id, name, init, seed, precision, device, revision, processor, engine
            )
        match_original_states(model)
        if check:
            self_check(model)
    return model


def check_model_source(source: str, revision: str | None = None) -> None:
    """Raise a ModelError if a model cannot be found or is not supported, before anything is made
    for it.

    Only the config is downloaded from the hub.

    Examples
    --------
    >>> check_model_source("bundled:tiny-french-ctc")
    """
    _resolve_config(resolve_path_or_id(source), {"revision": revision} if revision else {})


def _resolve_config(
    source: str, options: dict[str, str], processor: Processor = None
) -> tuple[str, Config, Family]:
    """Where the weights are (of an adapter those of its base), the config and the family."""
    adapter_base_id = adapter_base(source)
    path_or_id = source if adapter_base_id is None else resolve_path_or_id(adapter_base_id)
    config = read_config(path_or_id, options if adapter_base_id is None else {})

    def read_extractor() -> FeatureExtractor:
        extractor = find_extractor(processor)
        if extractor is None:
            extractor = load_processor_part("AutoFeatureExtractor", path_or_id, options)
        return extractor

    return path_or_id, config, find_family(config, read_extractor=read_extractor)


def _resolve_device(device: str | torch.device | None) -> torch.device | None:
    try:
        return None if device is None else torch.empty(0, device=device).device
    except (
        RuntimeError,
        AssertionError,
        TypeError,
    ) as error:  # an unknown name; CUDA that is not there
        raise InputError(
            f"device should be 'cpu', 'cuda' or the like, found {device!r} ({first_line(error)})"
        ) from error


def _load_from_source(
    source: str,
    name: str,
    init: str,
    seed: int | None,
    dtype: torch.dtype | None,
    device: torch.device | str,
    revision: str | None,
    processor: Processor,
    engine: str | None,
) -> Model:
    if (checkpoint := open_checkpoint(source)) is not None:
        model = _load_foreign(checkpoint, name, init, seed, dtype, device, processor)
        if engine is not None and (open_engine := find_hook("open_engine")) is not None:
            model.engine = open_engine(engine, checkpoint)
        return model
    if engine is not None:
        raise InputError(
            f"{source} is no model of {engine}: leave engine= (--inference-engine) out, or give its file"
        )
    options = {"revision": revision} if revision else {}
    path_or_id, config, family = _resolve_config(source, options, processor)
    is_adapter = path_or_id != source
    model_class = transformers_class(family.auto_class(config))
    dtype = _checkpoint_dtype(config) if dtype is None else dtype
    if init == "random":
        module = build_random_module(
            lambda: (
                model_class.from_config(config, dtype=torch.float32, **NO_CUSTOM_CODE)
                if hasattr(model_class, "from_config")
                else model_class(config)
            )
        )
        module = convert_copy(module, dtype, device)
    else:
        module = load_trained(model_class, path_or_id, config, dtype, {} if is_adapter else options)
        module = load_adapter(module, source) if is_adapter else module
        module = (merge_adapters(module) if has_adapters(module) else module).to(
            device
        )  # Granite-speech comes with one
        check_weights(module, source)
    module.eval().requires_grad_(False)
    if processor is None and find_audio_token_id(config) is not None:
        processor = load_processor_part("AutoProcessor", path_or_id, options)
    extractor, tokenizer = split_processor(processor, family, config)
    if processor is None:
        if family.grid is not None:
            extractor = (
                load_processor_part("AutoFeatureExtractor", path_or_id, options) or extractor
            )
        tokenizer = load_processor_part("AutoTokenizer", path_or_id, options)
        text_config = getattr(config, "text_config", None) or config
        if tokenizer is not None:
            tokenizer = fitting_tokenizer(
                tokenizer, getattr(text_config, "vocab_size", 0), path_or_id
            )
    processor = select_chat_processor(processor)
    return Model(module, family, name, init, seed, extractor, tokenizer, processor=processor)


def _checkpoint_dtype(config: Config) -> torch.dtype:
    checkpoint_dtype = getattr(config, "dtype", None)
    return checkpoint_dtype if isinstance(checkpoint_dtype, torch.dtype) else torch.float32


def _load_foreign(
    checkpoint: ForeignCheckpoint,
    name: str,
    init: str,
    seed: int | None,
    dtype: torch.dtype | None,
    device: torch.device | str,
    processor: Processor,
) -> Model:
    """Load a checkpoint of another engine as a model of transformers, or its untrained twin."""
    config = checkpoint.config
    family = find_family(config, read_extractor=lambda: find_extractor(processor))
    dtype = _checkpoint_dtype(config) if dtype is None else dtype
    if init == "random":
        module = build_random_module(lambda: checkpoint.model_class(config))
        module = convert_copy(module, dtype, device)
    else:
        module = checkpoint.load_module(dtype).to(device)
    module.eval().requires_grad_(False)
    extractor, tokenizer = split_processor(processor, family, config)
    if processor is None:
        extractor = checkpoint.load_extractor() or extractor
        tokenizer = checkpoint.load_tokenizer()
    model = Model(module, family, name, init, seed, extractor, tokenizer)
    if init == "trained":
        model.origin = checkpoint.origin()
        if checkpoint.remarks:
            warnings.warn(f"{checkpoint.path}: {'; '.join(checkpoint.remarks)}", stacklevel=4)
    return model
