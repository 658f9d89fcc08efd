"""The published ablation of speech models: the cue silenced in the sound, its tokens blanked in the
decoder, or both.

In: a model with its head, a clip with cue and target. Out: a tidy table: by how much the
probability of the target's sub-tokens falls, as their mean and their largest change, and the
margin; beside it the published control (the target itself) and one of ours (another word of about
the cue's length). Protocol: Mohebbi et al. 2023, EMNLP, the ablation of cue words. Where its code
reads an encoder at the cue's own frames, this reads it at the target's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import pandas as pd
import torch

from ..errors import InputError
from ..inputs.clips.clip import Clip
from .ablation import CONTROL, CUE, control_words
from .audio_removal import SOUND_FILLS
from .decision import Decision
from .removals import DECODER_IDS, SOUND, Removal
from .runner import INTACT, run_interventions
from .target_readings import ARG_MAX, TRANSCRIPT, read, readings_of, require_clip
from .token_removal import id_of_fill, token_fills

if TYPE_CHECKING:
    from ..adapters.model import Model

TARGET = "target"
TOKENS, BOTH = "tokens", "both"
CONDITIONS = (SOUND, TOKENS, BOTH)
MEAN, LARGEST, SIGNED_MAX = AGGREGATIONS = ("mean", "max", "signed max")
COLUMNS = (
    "silenced",
    "condition",
    "fill",
    "words",
    "tokens",
    "blank",
    "reading",
    "aggregation",
    "intact",
    "ablated",
    "drop",
)


def ablate_speech(
    model: Model,
    clip: Clip,
    *,
    sound_fills: Sequence[str] = ("zeros",),
    fills_of_tokens: Sequence[str | int] | None = None,
) -> pd.DataFrame:
    """Take cue, another word and target out of the sound, the decoder's tokens, and both, and read
    the target.

    With p(t) the probability of a sub-token t at the position that predicts it, the transcript's
    tokens before it being fed,

        drop(t) = p(t | clip as it is) - p(t | clip without the word)

    Parameters
    ----------
    model : Model
        Whisper, or with a CTC head (then only the sound can be silenced).
    clip : Clip
        With text, words, cue and target; a foil makes the margin that of a choice between two
        spellings.
    sound_fills : sequence of {"zeros", "room", "noise", "word"}
        What takes the place of a word's sound (`silence`); "zeros" as published.
    fills_of_tokens : sequence of {"unk", "pad", "mask", "remove"} or int, optional
        What takes the place of tokens. A tokenizer's unknown token, as published, is whatever a
        checkpoint says: in Whisper the end of text, which is no neutral blank; so by default "unk"
        stands beside "remove", the text without them. An int is the id of a token of one's own
        choice. The column blank says what was put in.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`. silenced: "cue", "another word" or "target". condition: "sound",
        "tokens", "both"; of the target, as published, the one token just before it is blanked
        (which may be the cue's). words, tokens: what was taken away; blank: the token put in.
        intact, ablated, drop: what each reading says, by aggregation. Readings:

        - "arg-max": probability of the tokens that the intact model finds likeliest at the target's
          positions (as published); of a CTC model, at the target's own frames. "transcript": of the
          target's own tokens; of a CTC model, of its letters at the frames of the best path through
          the intact clip. Aggregations over sub-tokens (frames, letters): "mean"; "max", the change
          of greatest size, with its sign; "signed max", as published, the greatest of signed drops,
          which is above zero where changes are noise.
        - "margin" (nats): log p(target) - log p(foil), without a foil log p(target's tokens).
          "text" (nats, CTC): log p(text).

    Raises
    ------
    InputError
        If the clip lacks what is needed, or something asked for is not possible.
    ModelError
        If the model has no head.

    Examples
    --------
    >>> table = ablate_speech(model, clip)                                                # doctest: +SKIP
    >>> table[(table.reading == "arg-max") & (table.aggregation == "mean")]["drop"]       # doctest: +SKIP
    """
    decision = _prepared(model, clip, sound_fills)
    clip = require_clip(decision)
    ablated = list(_ablations(decision, clip, sound_fills, _token_fills(model, fills_of_tokens)))
    clean = run_interventions(decision, [INTACT], read=lambda output: output.logits)[0]
    readings = readings_of(decision, torch.from_numpy(clean))
    intact = read(decision, readings, torch.from_numpy(clean))
    numbers = run_interventions(
        decision,
        [removals for _, removals in ablated],
        read=lambda output: torch.tensor(
            [[*chain(*read(decision, readings, logits).values())] for logits in output.logits],
            dtype=torch.float64,
        ),
    )
    changed = (_like(intact, run.tolist()) for run in numbers)
    rows = [
        {**cells, **row}
        for (cells, _), values in zip(ablated, changed, strict=True)
        for row in _rows(intact, values)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _prepared(model: Model, clip: Clip, sound_fills: Sequence[str]) -> Decision:
    if not clip.words or not clip.cue_words or clip.target is None:
        raise InputError(
            f"{clip.name}: the ablation of speech needs text, words with times, a cue and a target"
        )
    model.refuse_audio_tokens(
        f"{model.name}: the published ablation is of a Whisper or a CTC model; of an audio language "
        "model ask speechmix.ablate_input (its sound) or speechmix.knock_out (its sound, prompt "
        "and answer)"
    )
    if unknown := set(sound_fills) - set(SOUND_FILLS):
        raise InputError(f"sound_fills should be of {SOUND_FILLS}, found {sorted(unknown)}")
    if not sound_fills:
        raise InputError("sound_fills names nothing that could take the place of a word's sound")
    return Decision.of(model, clip)


def _token_fills(model: Model, asked: Sequence[str | int] | None) -> tuple[str | int, ...]:
    """What takes the place of tokens: by default what is published, where a tokenizer has it, and
    nothing."""
    if asked is not None:
        return tuple(asked)
    return tuple(fill for fill in token_fills(model) if fill in ("unk", "remove"))


def _ablations(
    decision: Decision, clip: Clip, sound_fills: Sequence[str], fills: Sequence[str | int]
) -> Iterator[tuple[dict[str, str], tuple[Removal, ...]]]:
    """All that is taken away: cue, another word and target; in the sound, the tokens, and both."""
    target = () if clip.target is None else (clip.target,)
    for silenced, words in (
        (CUE, clip.cue_words),
        (CONTROL, control_words(clip)),
        (TARGET, target),
    ):
        if not words:
            continue
        spelled = " ".join((clip.words or ())[word].text for word in words)
        cells = {"silenced": silenced, "words": spelled, "tokens": "", "blank": ""}
        sounds = {fill: Removal(SOUND, tuple(words), fill) for fill in sound_fills}
        for sound_fill, sound in sounds.items():
            yield {**cells, "condition": SOUND, "fill": sound_fill}, (sound,)
        positions = _positions(decision, clip, silenced, words)
        tokens = decision.prepared.tokens
        if tokens is None or not positions:
            continue
        for fill in fills:
            cells["tokens"] = " ".join(tokens.labels[place] for place in positions)
            cells["blank"] = _label(decision, fill)
            removal = Removal(DECODER_IDS, positions, fill)
            yield {**cells, "condition": TOKENS, "fill": str(fill)}, (removal,)
            for sound_fill, sound in sounds.items():
                yield (
                    {**cells, "condition": BOTH, "fill": f"{sound_fill} + {fill}"},
                    (sound, removal),
                )


def _positions(
    decision: Decision, clip: Clip, silenced: str, words: Sequence[int | None]
) -> tuple[int, ...]:
    """Positions of the decoder's tokens to blank; of the target the one token of the text before
    it, if there is one."""
    tokens = decision.prepared.tokens
    if tokens is None:
        return ()
    owners = tokens.words[: len(tokens.ids)]
    if silenced != TARGET:
        return tuple(
            place for place, owner in enumerate(owners) if owner is not None and owner in words
        )
    before = owners.index(clip.target) - 1
    return (before,) if tokens.kinds[before] == "token" else ()


def _label(decision: Decision, fill: str | int) -> str:
    """The token that is put in, as its tokenizer writes it."""
    id_ = id_of_fill(decision.model, fill)
    return "" if id_ is None else str(decision.model.tokenizer.convert_ids_to_tokens(id_))


def _like(values: dict[str, list[float]], numbers: Sequence[float]) -> dict[str, list[float]]:
    """Numbers in a row as values of the same readings."""
    following = iter(numbers)
    return {name: list(islice(following, len(of_name))) for name, of_name in values.items()}


def _rows(
    intact: dict[str, list[float]], ablated: dict[str, list[float]]
) -> Iterator[dict[str, object]]:
    """Drops of every reading, aggregated over sub-tokens."""
    for reading, before in intact.items():
        after = ablated[reading]
        drops = [was - now for was, now in zip(before, after, strict=True)]
        if len(drops) == 1 and reading not in (ARG_MAX, TRANSCRIPT):
            yield {
                "reading": reading,
                "aggregation": "",
                "intact": before[0],
                "ablated": after[0],
                "drop": drops[0],
            }
            continue
        mean = {"intact": sum(before) / len(before), "ablated": sum(after) / len(after)}
        yield {
            "reading": reading,
            "aggregation": MEAN,
            **mean,
            "drop": mean["intact"] - mean["ablated"],
        }
        sizes = {LARGEST: [abs(drop) for drop in drops], SIGNED_MAX: drops}
        for name, size in sizes.items():
            place = size.index(max(size))
            values = {"intact": before[place], "ablated": after[place], "drop": drops[place]}
            yield {"reading": reading, "aggregation": name, **values}
