"""Options that say which models a command asks: where they run, what a Whisper is told, which
measures are on trial.

In: a command's parser; then its parsed options. Out: the options added; models, or functions that
load them when their turn comes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...files.json_files import JsonObject

if TYPE_CHECKING:
    from ...adapters.model import Model

_Options = argparse.ArgumentParser | argparse._ArgumentGroup


def add_loading_options(command: _Options, *, precision: bool = False) -> None:
    """Add where a model runs and which of its revisions; with `precision` also that of its
    weights."""
    command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
    if precision:
        command.add_argument("--dtype", help="precision of the weights (default: float32)")
    command.add_argument("--revision", help="branch, tag or commit on the hub")


def add_prefix_options(command: _Options) -> None:
    """Add what a Whisper's decoder is told, and what an audio language model is asked."""
    from ...inputs.clips.clip_metadata import TASKS

    command.add_argument(
        "--task", choices=TASKS, help="what a Whisper is told to do (default: transcribe)"
    )
    command.add_argument(
        "--spoken-as",
        metavar="LANGUAGE",
        help="language a Whisper is told is spoken (default: that of the clip)",
    )
    command.add_argument(
        "--timestamps", action="store_true", help="timestamp tokens around what a Whisper writes"
    )
    command.add_argument(
        "--prompt",
        metavar="TEXT",
        help="what an audio language model is asked (default: to transcribe; it is fed the text)",
    )
    command.add_argument(
        "--answer",
        metavar="TEXT",
        help="what it is fed as the answer to the prompt (default: what it writes itself)",
    )


def add_measures_option(command: _Options) -> None:
    """Add the measures on trial."""
    from ...mixing.maps.measure_registry import measure_names

    command.add_argument(
        "--measures",
        nargs="+",
        help="names, or all but those that take words away themselves, "
        f"{' and '.join(measure_names('removal'))} "
        "(default: value_zeroing attention attention_norm alti gradient_input)",
    )


def loaded(options: argparse.Namespace, source: str, **further: Any) -> Model:
    """Load a model as the options say, and tell it its prefix, or its prompt, where they name one.

    Raises
    ------
    InputError, ModelError
        As `speechmix.load`, `Model.with_prefix` and `Model.with_prompt` do.
    """
    from ...adapters.loading.load import load

    asked = vars(options)
    where = {name: asked[name] for name in ("device", "dtype", "revision") if name in asked}
    model = load(source, **where, **further)
    named = {
        "task": asked.get("task"),
        "language": asked.get("spoken_as"),
        "timestamps": asked.get("timestamps") or None,
    }
    prefix: JsonObject = {name: value for name, value in named.items() if value is not None}
    model = model.with_prefix(**prefix) if prefix else model
    prompt, answer = asked.get("prompt"), asked.get("answer")
    return model if prompt is None and answer is None else model.with_prompt(prompt, answer=answer)


def model_loaders(
    options: argparse.Namespace, sources: Iterable[str], seeds: Iterable[int] | None
) -> list[Callable[[], Model]]:
    """Functions that load each model, then those that load the untrained twins of each, one a
    seed.

    Raises
    ------
    ModelError
        If there is no such model; so a command stops before it has made a folder.
    """
    from ...adapters.loading.load import check_source

    sources = list(sources)
    for source in sources:
        check_source(source, vars(options).get("revision"))
    trained = [partial(loaded, options, source) for source in sources]
    return [
        *trained,
        *(
            partial(load, init="random", seed=seed)
            for load in trained
            for seed in tuple(seeds or ())
        ),
    ]


def chosen_measures(options: argparse.Namespace) -> str | Sequence[str]:
    """Names of the measures asked for, "all", or those by default."""
    from ...evaluation.faithfulness.options import DEFAULT_MEASURES

    return "all" if options.measures == ["all"] else options.measures or DEFAULT_MEASURES
