"""load(): a model from the hub, a folder or an object already in memory; trained, or a randomly initialised twin.

No modelling code: the model is what transformers builds. After loading, a self-check on a tiny input (check.py) makes
sure that the family's table fits it, so that a wrong path is an error now and not wrong science later.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

from ..errors import InputError, ModelError
from .blocks import Family
from .check import self_check
from .model import Model, dtype_named
from .registry import family_of_type

INITS = ("trained", "random")

# Weights that no forward pass in evaluation mode reads: spec-augment's mask embedding and pre-training heads.
_UNUSED_WEIGHTS = ("masked_spec_embed", "mask_emb", "quantizer", "project_q", "project_hid")


def load(
    source: str | Path | Any,
    *,
    init: str = "trained",
    seed: int | None = None,
    processor: Any = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    check: bool = True,
) -> Model:
    """Load a model, unmodified, in evaluation mode and without gradients.

    Parameters
    ----------
    source : str, Path or transformers.PreTrainedModel
        Hub id ("openai/whisper-small"), folder in hub format, or a model object.
    init : {"trained", "random"}
        "random" builds the untrained twin from the same config.
    seed : int, optional
        Seed of the random initialisation (0 if not given). The same seed gives the same weights.
    processor : optional
        Processor, feature extractor or tokenizer to use instead of the source's own. A model object needs one for
        clips, none for prepared inputs.
    device : optional
        Where to put the model; by default CUDA if there is one (a model object stays where it is).
    dtype : optional
        Precision of the weights, float32 by default. Scores are never computed in half precision: a half-precision
        model is run in float32 (see `speechmix.mix`).
    revision : str, optional
        Branch, tag or commit on the hub.
    check : bool
        Run the self-check (a fraction of a second; it never runs more than a few frames).

    Returns
    -------
    Model

    Raises
    ------
    ModelError
        For an unsupported architecture, weights that are missing, or a failed self-check.

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
    seed = (0 if seed is None else seed) if init == "random" else None
    dtype = None if dtype is None else dtype_named(dtype)
    device = _device(device)
    with torch.random.fork_rng(devices=[]):  # transformers draws numbers on the way; the caller's state stays as it is
        torch.manual_seed(seed or 0)
        if isinstance(source, torch.nn.Module):
            model = _from_object(source, init, seed, dtype, processor)
        else:
            device = device or ("cuda" if torch.cuda.is_available() else "cpu")
            model = _from_source(str(source), init, seed, dtype or torch.float32, revision, processor)
        model.module.to(device=device, dtype=dtype)
        model.module.eval().requires_grad_(False)
        if check:
            self_check(model)
    return model


def _device(device: str | torch.device | None) -> torch.device | None:
    try:
        return None if device is None else torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # an unknown name; CUDA that is not there
        raise InputError(f"device should be 'cpu', 'cuda' or the like, found {device!r} ({_brief(error)})") from error


def _from_object(module, init, seed, dtype, processor) -> Model:
    family = family_of_type(getattr(getattr(module, "config", None), "model_type", None))
    name = getattr(module, "name_or_path", "") or type(module).__name__
    if init == "random":
        config = copy.deepcopy(module.config)
        here = next(module.parameters())
        module = type(module)(config).to(device=here.device, dtype=dtype or here.dtype)
    return Model(module, family, name, init, seed, *_processors(processor, family, module.config))


def _from_source(source: str, init, seed, dtype, revision, processor) -> Model:
    options = {"revision": revision} if revision else {}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot read a model config from {source!r}: expected a hub id or a folder with config.json ({_brief(error)})"
        ) from error
    family = family_of_type(config.model_type)
    cls = getattr(transformers, family.auto_class(config))
    if init == "random":
        # In float32 whatever the checkpoint's precision is: weights drawn in half precision would be other weights.
        module = cls.from_config(config, dtype=torch.float32) if hasattr(cls, "from_config") else cls(config)
    else:
        try:
            module, report = cls.from_pretrained(
                source, config=config, dtype=dtype, output_loading_info=True, **options
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"cannot load the weights of {source!r}: {_brief(error)}") from error
        _refuse_missing(source, report["missing_keys"])
    extractor, tokenizer = _processors(processor, family, config)
    if processor is None:
        if family.grid is not None:
            extractor = _attempt(transformers.AutoFeatureExtractor, source, options) or extractor
        tokenizer = _attempt(transformers.AutoTokenizer, source, options)
        if tokenizer is not None and 2 * len(tokenizer) < getattr(config, "vocab_size", 0):
            tokenizer = None  # transformers makes an empty one up where a folder has no tokenizer files
    name = Path(source).resolve().name if Path(source).is_dir() else source
    return Model(module, family, name, init, seed, extractor, tokenizer)


def _refuse_missing(source: str, missing) -> None:
    """transformers fills missing weights with random numbers and goes on; a study cannot."""
    missing = sorted(key for key in missing if not any(part in key for part in _UNUSED_WEIGHTS))
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise ModelError(
            f"the checkpoint {source!r} lacks weights ({shown}), which would be filled at random. "
            "Check that the folder is complete and that config.json names the right architecture"
        )


def _attempt(auto_class, source: str, options: dict):
    """Feature extractor or tokenizer of a source, or None where it has none."""
    try:
        return auto_class.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        if Path(source).is_dir():
            return None  # a folder with weights alone is fine for prepared inputs
        warnings.warn(f"{source}: no {auto_class.__name__.removeprefix('Auto')} ({_brief(error)})", stacklevel=4)
        return None


def _processors(processor, family: Family, config) -> tuple[Any, Any]:
    """Feature extractor and tokenizer out of whatever was given; Whisper's extractor follows from its config alone."""
    extractor = getattr(processor, "feature_extractor", processor if hasattr(processor, "sampling_rate") else None)
    tokenizer = getattr(processor, "tokenizer", processor if hasattr(processor, "get_vocab") else None)
    if extractor is None and family.name == "whisper":
        seconds = family.grid(config, 0).duration
        if seconds == int(seconds):
            extractor = transformers.WhisperFeatureExtractor(
                feature_size=config.num_mel_bins, chunk_length=int(seconds)
            )
    return extractor, tokenizer


def _brief(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
