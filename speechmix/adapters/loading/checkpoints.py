"""What lies in a folder or on the hub: config, trained weights, feature extractor and tokenizer.

In: a folder or hub id. Out: what transformers reads from it. Whatever goes wrong on the way, in a
damaged file, in the hub's client or in transformers' own imports, is a `ModelError` that says what
was wrong.

Test quickly whether the Hugging Face hub can be reached.

In: a hub id. Out: options of ``from_pretrained`` that keep it to what was downloaded before, where
the hub does not answer.

Check the files beside the weights of a model: tokenizer, feature extractor, generation.

In: a folder in hub format. Out: nothing, or an error that names the damaged file. transformers
leaves out what it cannot read and goes on: a model would then write other text, or none.

Check that torchaudio is installed and fits the version of torch.

Two functions of torchaudio are used (forced alignment, edit distance); transformers imports it,
where it is installed, before any model. A torchaudio made for another torch cannot be imported at
all.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

from ...errors import InputError, MissingExtraError, ModelError
from ...files.json_files import JsonObject
from ..families.family import Family
from ..transformers_types import Config, FeatureExtractor, Processor, Tokenizer, TorchFunction
from .foreign_checkpoint import open_checkpoint
from .model_source import quantised_message

_TIMEOUT_SECONDS = 6.0  # to answer; a slow connection takes one or two


def hub_options(source: str) -> JsonObject:
    """Return options of ``from_pretrained`` for a folder or hub id; none for a folder and while the
    hub answers."""
    return {"local_files_only": True} if hub_problem(source) else {}


def hub_problem(source: str) -> str:
    """Return why the hub cannot serve a model, as a message says it; empty if it can, or need not
    be."""
    from huggingface_hub import constants

    if Path(source).is_dir() or constants.HF_HUB_OFFLINE:
        return ""
    reason = _explain_unreachable(constants.ENDPOINT)
    return reason and (
        f"{constants.ENDPOINT} does not answer ({reason}), and {source!r} was not downloaded "
        "before: connect to the network, "
        "or give the folder of a model"
    )


@cache
def _explain_unreachable(endpoint: str) -> str:
    """Return why an address does not answer a request like the hub client's (proxies,
    certificates); empty if it does."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=_TIMEOUT_SECONDS)
    except Exception as error:  # of whichever HTTP library the client uses
        return f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"[:200]
    return ""


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "added_tokens.json",
    "special_tokens_map.json",
)
_EXTRACTOR_FILES = ("preprocessor_config.json", "processor_config.json")
_PART_FILES = {"AutoTokenizer": _TOKENIZER_FILES, "AutoFeatureExtractor": _EXTRACTOR_FILES}


def check_processor_files(folder: str | Path) -> None:
    """Raise a ModelError for a damaged JSON file beside the weights.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> check_processor_files(folder)
    >>> _ = (folder / "vocab.json").write_text('{"a": 0, ')
    >>> try:
    ...     check_processor_files(folder)
    ... except ModelError as error:
    ...     "vocab.json is damaged" in str(error)
    True
    """
    for name in (*_TOKENIZER_FILES, *_EXTRACTOR_FILES, "generation_config.json"):
        path = Path(folder) / name
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_bytes())
            problem = "" if isinstance(content, dict) else f"it holds a {type(content).__name__}"
            if name == "vocab.json" and not problem:
                problem = _vocabulary_problem(content)
        except (OSError, ValueError, RecursionError) as error:
            problem = str(error)[:200]
        if problem:
            raise ModelError(
                f"{path} is damaged ({problem}): fetch or save it again, or remove it if the model "
                "needs none"
            )


def _vocabulary_problem(content: dict[str, object]) -> str:
    """What is wrong with the numbers of a vocabulary; MMS has one for each language."""
    for token, number in content.items():
        if isinstance(number, dict):
            if problem := _vocabulary_problem(number):
                return problem
        elif type(number) is not int or number < 0:
            return f"the number of token {token!r} is {number!r:.40}"
    return ""


def fitting_tokenizer(tokenizer: Tokenizer, vocabulary_size: int, source: str) -> Tokenizer | None:
    """A tokenizer, or None if it has fewer than half of the tokens of its model.

    transformers makes an empty one up where a folder has no tokenizer files; where it has them, a
    warning says that they do not belong to the model.
    """
    if 2 * len(tokenizer) >= vocabulary_size:
        return tokenizer
    if has_part_files(source, "AutoTokenizer"):
        warnings.warn(
            f"{source}: its tokenizer has {len(tokenizer)} tokens and the model {vocabulary_size}, so it "
            "is left out: fetch or save the tokenizer's files again, or give processor=",
            stacklevel=4,
        )
    return None


def has_part_files(folder: str | Path, auto_class: str) -> bool:
    """Whether a folder has files of the part that a class of transformers loads."""
    return any((Path(folder) / name).is_file() for name in _PART_FILES.get(auto_class, ()))


def torchaudio_function(name: str, purpose: str) -> TorchFunction:
    """Return a function of torchaudio.functional; a ModelError if torchaudio cannot be imported."""
    try:
        importlib.import_module("torchaudio")
        result: TorchFunction = getattr(importlib.import_module("torchaudio.functional"), name)
        return result
    except Exception as error:
        is_missing = getattr(error, "name", None) == "torchaudio"
        raise ModelError(
            f"{purpose} needs torchaudio, which is not installed: {_PAIR_ADVICE} as docs/start.md says"
            if is_missing
            else f"{purpose} needs torchaudio: {torchaudio_problem() or error}"
        ) from error


def torchaudio_problem() -> str | None:
    """Say why torchaudio cannot be imported and what to do; None if it can, or is not installed."""
    try:
        importlib.import_module("torchaudio")
    except (
        Exception
    ) as error:  # not installed; or a library that is not there, a symbol of another torch
        if isinstance(error, ModuleNotFoundError) and error.name == "torchaudio":
            return None
        lines = str(error).strip().splitlines() or [type(error).__name__]
    else:
        return None
    return (
        f"torchaudio is installed but cannot be imported ({lines[0][:200]}): {_TORCHAUDIO_ADVICE}"
    )


_PAIR_ADVICE = (
    f"torch {torch.__version__} and torchaudio have to be of one release and for one kind of "
    "machine. Install the pair"
)
_TORCHAUDIO_ADVICE = (
    f"{_PAIR_ADVICE} as docs/start.md says, or do without torchaudio (pip uninstall torchaudio)"
)


# Weights that no forward pass in evaluation mode reads: spec-augment's mask embedding and
# pre-training heads.
_UNUSED_WEIGHTS = ("masked_spec_embed", "mask_emb", "quantizer", "project_q", "project_hid")

# For every from_pretrained and from_config of an Auto class: without it transformers asks on the
# terminal whether to run the Python code that a model folder brings, and runs it after a "y" on
# standard input.
NO_CUSTOM_CODE = {"trust_remote_code": False}

_PROCESSOR_ATTRIBUTES = (
    "feature_extractor",
    "audio_processor",
    "tokenizer",
    "sampling_rate",
    "get_vocab",
)


def read_config(source: str, options: dict[str, str]) -> Config:
    """Config of a folder or hub id; of a model that thinks and talks (Qwen2.5-Omni) that of its
    thinker."""
    if (checkpoint := open_checkpoint(source)) is not None:
        return checkpoint.config
    check_processor_files(source)
    try:
        config = transformers_class("AutoConfig").from_pretrained(
            source, **options, **hub_options(source), **NO_CUSTOM_CODE
        )
        _refuse_kernels(source, config)
        return getattr(config, "thinker_config", config)
    except ModelError:
        raise
    except Exception as error:  # whatever the hub's client or a damaged file makes of it
        if needs_custom_code(error):
            raise ModelError(custom_code_message(source)) from error
        if problem := hub_problem(source):
            raise ModelError(f"cannot load {source!r}: {problem}") from error
        parent_dir, name = Path(source).parent, Path(source).name
        is_missing_child = (
            parent_dir != Path() and parent_dir.is_dir() and not Path(source).exists()
        )
        path_hint = (
            f"; no such folder: {str(parent_dir)!r} is there, but {name!r} is not in it"
            if is_missing_child
            else ""
        )
        raise ModelError(
            f"cannot read a model config from {source!r}: expected a hub id or a folder with "
            "config.json "
            f"({first_line(error)}){path_hint}"
        ) from error


def load_trained(
    cls: Any, source: str, config: Config, dtype: torch.dtype, options: dict[str, str]
) -> torch.nn.Module:
    """Trained weights of a folder or hub id, as transformers reads them."""
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(quantised_message(source, config.quantization_config))
    if getattr(config, "has_lora_adapter", False) and find_spec("peft") is None:
        raise MissingExtraError("peft", "peft", f"the adapter that {source!r} hears with")
    try:
        with _hide_loading_bar():
            module, report = cls.from_pretrained(
                source,
                config=config,
                dtype=dtype,
                output_loading_info=True,
                **options,
                **hub_options(source),
                **NO_CUSTOM_CODE,
            )
    except Exception as error:  # damaged files raise the errors of many libraries
        if needs_custom_code(error):
            raise ModelError(custom_code_message(source)) from error
        raise ModelError(f"cannot load the weights of {source!r}: {first_line(error)}") from error
    _check_missing_weights(source, report["missing_keys"])
    result: torch.nn.Module = module
    return result


@contextmanager
def _hide_loading_bar() -> Iterator[None]:
    """Keep transformers' bar of weights being read out of what is printed; downloads show theirs,
    in a terminal."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

    has_weights_bar, has_download_bar = (
        logging.is_progress_bar_enabled(),
        not are_progress_bars_disabled(),
    )
    if not has_weights_bar:
        yield
        return
    logging.disable_progress_bar()  # silences downloads, too
    if has_download_bar:
        enable_progress_bars()
    try:
        yield
    finally:
        logging.enable_progress_bar()


def transformers_class(name: str) -> Config:
    """Return a class of transformers by name; a ModelError if it cannot be imported, which names
    torchaudio where that is the reason."""
    try:
        return getattr(transformers, name)
    except AttributeError as error:
        raise ModelError(
            f"transformers {transformers.__version__} has no {name}: a newer one may"
        ) from error
    except (ImportError, OSError, RuntimeError) as error:
        broken = torchaudio_problem()  # transformers imports it before any model
        raise ModelError(
            broken or f"transformers cannot import {name}: {first_line(error)}"
        ) from error


def _check_missing_weights(source: str, missing_names: Sequence[str]) -> None:
    """transformers fills missing weights with random numbers and goes on; a study cannot."""
    missing_names = sorted(
        key
        for key in missing_names
        if not any(name_fragment in key for name_fragment in _UNUSED_WEIGHTS)
    )
    if missing_names:
        listed_names = ", ".join(missing_names[:4]) + (
            f" and {len(missing_names) - 4} more" if len(missing_names) > 4 else ""
        )
        raise ModelError(
            f"the checkpoint {source!r} lacks weights ({listed_names}), which would be filled at random. "
            "Check that the folder is complete and that config.json names the right architecture"
        )


def load_processor_part(auto_class: str, source: str, options: dict[str, str]) -> Config:
    """Feature extractor or tokenizer of a source, or None where it has none."""
    try:
        return transformers_class(auto_class).from_pretrained(
            source, **options, **hub_options(source), **NO_CUSTOM_CODE
        )
    except Exception as error:  # a damaged file, the hub's client, a library that is not installed
        if needs_custom_code(error):
            part_name = auto_class.removeprefix("Auto").lower()
            warnings.warn(
                f"no {part_name}: {custom_code_message(source)}, and its {part_name} as processor=",
                stacklevel=4,
            )
            return None
        if Path(source).is_dir() and not has_part_files(source, auto_class):
            return None  # a folder with weights alone is fine for prepared inputs
        warnings.warn(
            f"{source}: no {auto_class.removeprefix('Auto')} ({first_line(error)})", stacklevel=4
        )
        return None


def split_processor(processor: Processor, family: Family, config: Config) -> tuple[Any, Any]:
    """Feature extractor and tokenizer out of whatever was given; Whisper's extractor follows from
    its config alone."""
    if processor is not None and not any(
        hasattr(processor, name) for name in _PROCESSOR_ATTRIBUTES
    ):
        raise InputError(
            "processor= takes a processor, feature extractor or tokenizer object, found "
            f"{processor!r:.80}"
        )
    extractor = find_extractor(processor)
    tokenizer = getattr(
        processor, "tokenizer", processor if hasattr(processor, "get_vocab") else None
    )
    if extractor is None and family.name == "whisper" and family.grid is not None:
        seconds = family.grid(config, 0).duration
        if seconds == int(seconds):
            extractor = transformers_class("WhisperFeatureExtractor")(
                feature_size=config.num_mel_bins, chunk_length=int(seconds)
            )
    return extractor, tokenizer


def find_extractor(processor: Processor) -> FeatureExtractor:
    """Return the feature extractor in whatever was given, or None."""
    extractor = getattr(
        processor, "feature_extractor", processor if hasattr(processor, "sampling_rate") else None
    )
    return getattr(processor, "audio_processor", extractor)


def select_chat_processor(processor: Processor) -> Processor:
    """The whole processor, where it writes a prompt around a sound; else None."""
    is_chat = getattr(processor, "audio_token", None) and find_extractor(processor) is not None
    return processor if is_chat else None


def needs_custom_code(error: Exception) -> bool:
    """Whether transformers refused to run the Python code that a model brings."""
    return "trust_remote_code" in str(error)


def custom_code_message(source: str) -> str:
    """Message for a model that transformers loads only with the model's own Python code."""
    return (
        f"{source!r} needs Python code of its own (auto_map in its config), which speechmix never "
        "runs: read that code, load "
        "the model with transformers (trust_remote_code=True) and pass the model object to "
        "speechmix.load"
    )


def _refuse_kernels(source: str, config: Config) -> None:
    """Raise a ModelError for a config that names an attention kernel on the hub, which transformers
    would download and run."""
    configs = [
        config,
        *(subconfig for subconfig in vars(config).values() if hasattr(subconfig, "model_type")),
    ]
    implementation_names = [
        getattr(subconfig, "_attn_implementation", None) for subconfig in configs
    ]
    kernels = [name for name in implementation_names if isinstance(name, str) and "/" in name]
    if kernels:
        raise ModelError(
            f"the config of {source!r} asks for code from the hub, "
            f"attn_implementation={kernels[0]!r:.100}, which speechmix "
            "never runs: remove that entry from config.json"
        )


def first_line(error: Exception) -> str:
    """First line of an error."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
