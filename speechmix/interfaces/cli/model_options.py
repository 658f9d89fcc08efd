"""Add options for models and measures to a command, and load the models.

In: a command; then its parsed options. Out: models, or functions that load them later.

`speechmix check`: load models, and check that their layers are understood.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...evaluation.statistics.claim_rule import DEFAULT_TWINS
from ...extension import find_hook
from ...files.json_files import JsonObject
from ...inputs.clips.clip import TASKS
from .command_parser import Subparsers

if TYPE_CHECKING:
    from ...adapters.model import Model


OptionContainer = argparse._ActionsContainer


def add_model_option(command: OptionContainer, *, required: bool = True, note: str = "") -> None:
    """Add `--model`, which may be repeated."""
    help_text = f"hub id[@REVISION], folder, bundled:NAME; repeatable{note}"
    command.add_argument("--model", action="append", required=required, help=help_text)


def add_twin_options(command: OptionContainer, *, default: int = 0, note: str = "") -> None:
    """Add the number of untrained twins; without a number as many as are recommended."""
    command.add_argument(
        "--twins",
        type=int,
        nargs="?",
        default=default,
        const=DEFAULT_TWINS,
        metavar="N",
        help=f"untrained twins of each model: random weights{note} (default: {default}; --twins alone: "
        f"{DEFAULT_TWINS})",
    )


def add_seed_option(command: OptionContainer, *, note: str = "") -> None:
    """Add the seed of random choices and of the first twin."""
    command.add_argument(
        "--seed", type=int, help=f"first seed; twins take the next ones too{note} (default: 0)"
    )


def list_twin_seeds(options: argparse.Namespace) -> range:
    """Return the seeds of the untrained twins.

    Examples
    --------
    >>> list(list_twin_seeds(argparse.Namespace(twins=2, seed=None)))
    [0, 1]
    """
    if options.twins < 0:
        raise InputError(f"--twins takes a number from 0, found {options.twins}")
    first_seed = options.seed or 0
    return range(first_seed, first_seed + options.twins)


def select_only_model(options: argparse.Namespace) -> str:
    """Return the model of a command that takes one; InputError if several are given."""
    if len(options.model) > 1:
        raise InputError(f"expected one --model, found {', '.join(options.model)}")
    source: str = options.model[0]
    return source


def split_revision(source: str) -> tuple[str, str | None]:
    """Return the hub id and the revision of NAME@REVISION; an existing path has no revision.

    Examples
    --------
    >>> split_revision("openai/whisper-small@main"), split_revision("openai/whisper-small")
    (('openai/whisper-small', 'main'), ('openai/whisper-small', None))
    """
    name, at_sign, revision = source.rpartition("@")
    return (name, revision) if at_sign and not Path(source).exists() else (source, None)


def add_loading_options(
    command: OptionContainer, *, precision: bool = False, engine: bool = True
) -> None:
    """Add the device of models; with `precision` also their dtype, with `engine` the engine beside
    the measured copy."""
    command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available)")
    if precision:
        command.add_argument("--dtype", help="precision of the weights (default: float32)")
    if engine:
        add_inference_engine_option(command)


def add_inference_engine_option(command: OptionContainer, *, required: bool = False) -> None:
    """Add the engine that writes transcripts beside the measured copy of its weights: `engine=` of
    `speechmix.load`. `--engine` is who computes a run."""
    command.add_argument(
        "--inference-engine",
        required=required,
        metavar="ENGINE",
        help="lets ctranslate2, whisper.cpp or onnxruntime write the transcripts of a model in its "
        "format; behind a colon its compute type or level of optimisation, as ctranslate2:int8",
    )


def add_prefix_option(command: OptionContainer) -> None:
    """Add the decoder prefix of a Whisper."""
    command.add_argument(
        "--prefix",
        type=_parse_prefix,
        metavar="NAME=VALUE,...",
        help="decoder prefix of a Whisper: task=translate, language=fr, timestamps=true",
    )


def _parse_prefix(text: str) -> JsonObject:
    """Parse the arguments of `Model.with_prefix`."""
    values = {"task": TASKS, "language": (), "timestamps": ("true", "false")}
    prefix: JsonObject = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in values or not value or (values[name] and value not in values[name]):
            raise argparse.ArgumentTypeError(
                f"expected task={' or task='.join(TASKS)}, language=CODE, timestamps=true; found {part!r}"
            )
        prefix[name] = value == "true" if name == "timestamps" else value
    return prefix


def add_prefix_options(command: OptionContainer) -> None:
    """Add the decoder prefix of a Whisper, and the prompt of an audio language model."""
    add_prefix_option(command)
    command.add_argument(
        "--prompt",
        metavar="TEXT",
        help="prompt of an audio language model (default: a prompt to transcribe), or of a Whisper: text before the sound",
    )
    command.add_argument(
        "--hotwords",
        metavar="TEXT",
        help="words before the prompt of a Whisper, as in faster-whisper",
    )
    command.add_argument(
        "--answer",
        metavar="TEXT",
        help="answer to the prompt that the model is given (default: the one that it generates)",
    )


def add_evaluated_measures_option(command: OptionContainer) -> None:
    """Add `--measure` for commands that evaluate measures."""
    from ...mixing.maps.measure_registry import measure_names

    command.add_argument(
        "--measure",
        action="append",
        help="a measure, or all (but those that remove words themselves: "
        f"{', '.join(measure_names('removal'))}); may be repeated "
        "(default: value_zeroing attention attention_norm alti gradient_input)",
    )


def list_engine_kinds(options: argparse.Namespace) -> dict[str, JsonObject]:
    """Return the kind of result that a run of a model beside its engine has: how far the copy is."""
    if not vars(options).get("inference_engine"):
        return {}
    list_kinds = find_hook("engine_kinds")
    return {} if list_kinds is None else list_kinds()


@contextmanager
def collect_garbage_once(library: str) -> Iterator[None]:
    """Look for garbage once, behind a block that imports a library; as usual if it is there already.

    torch and transformers make a million objects, which stay. To go through them again and again
    takes a sixth of the time of a short command.
    """
    if library in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.collect()  # the file of the weights, too, is garbage by now; frozen, it would stay
        gc.freeze()
        gc.enable()


def load_model(options: argparse.Namespace, source: str, **load_options: Any) -> Model:
    """Load a model with the options, and set its decoder prefix or prompt if they name one.

    Errors are those of `speechmix.load`, `Model.with_prefix` and `Model.with_prompt`.
    """
    from ...adapters.loading.load import load

    values = vars(options)
    name, revision = split_revision(source)
    load_options |= {key: values[key] for key in ("device", "dtype") if key in values}
    if values.get("inference_engine") and load_options.get("init") != "random":
        load_options["engine"] = values["inference_engine"]
    with collect_garbage_once("transformers.modeling_utils"):
        model = load(name, revision=revision, **load_options)
    model = model.with_prefix(**values["prefix"]) if values.get("prefix") else model
    texts = {option: values.get(option) for option in ("answer", "hotwords")}
    prompt, given = values.get("prompt"), {n: text for n, text in texts.items() if text is not None}
    return model if prompt is None and not given else model.with_prompt(prompt, **given)


def create_loaders(
    options: argparse.Namespace, sources: Iterable[str], twin_seeds: Iterable[int] = ()
) -> list[Callable[[], Model]]:
    """Return functions that load each model, then those for the untrained twins of each.

    ModelError if a model does not exist; so a command stops before it makes a folder.
    """
    from ...adapters.loading.load import check_model_source

    sources = list(sources)
    for source in sources:
        check_model_source(*split_revision(source))
    loaders = [partial(load_model, options, source) for source in sources]
    twin_loaders = [  # the trained model of the same architecture has passed the self-check
        partial(loader, init="random", seed=seed, check=False)
        for loader in loaders
        for seed in twin_seeds
    ]
    return [*loaders, *twin_loaders]


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    check = commands.add_parser(
        "check", help="load a model and check that its layers are understood"
    )
    check.set_defaults(command=_check)
    add_model_option(check)
    add_loading_options(check, precision=True)


def _check(options: argparse.Namespace) -> int:
    from ...files.cache_keys import versions

    for source in options.model:
        model = load_model(options, source)
        print(model.describe())
        processors = {
            "feature extractor": model.feature_extractor,
            "tokenizer": model.tokenizer,
        }
        names = [name for name, processor in processors.items() if processor]
        print(f"  processor: {', '.join(names) or 'none found (prepared inputs only)'}")
        print(
            "  self-check passed: attention rows sum to one, the replayed layers equal the forward "
            "pass, zeroing values changes the output"
        )
    print(versions())
    return 0
