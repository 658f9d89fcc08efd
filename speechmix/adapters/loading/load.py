"""Load a model from the hub, a folder or memory, trained or randomly initialised.

No modelling code: the model is what transformers builds. After loading, a self-check on a tiny
input (self_check.py) makes sure that the family's table fits it, so that a wrong path is an error now
and not wrong science later. An object given stays as it is: it is evaluated within `Model.in_use`,
and what has to be converted is a copy.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from ...errors import InputError
from ...extension import find_hook
from ..binding.fidelity_check import match_original_states
from ..binding.self_check import self_check
from ..capture.module_access import has_adapters, resolve_dtype
from ..families.family import Family
from ..families.registry import find_family, find_module_family
from ..generation.audio_prompt import find_audio_token_id
from ..model import Model
from ..transformers_types import Config, FeatureExtractor, Processor
from .checkpoints import (
    NO_CUSTOM_CODE,
    find_extractor,
    first_line,
    fitting_tokenizer,
    load_processor_part,
    load_trained,
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
from .module_construction import (
    adapter_base,
    build_random_module,
    check_config,
    convert_copy,
    load_adapter,
    merge_adapters,
    wrap_module,
)

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
    return Model(
        module,
        family,
        name,
        init,
        seed,
        extractor,
        tokenizer,
        processor=select_chat_processor(processor),
    )


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
