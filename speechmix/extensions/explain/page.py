"""HTML page of an explanation, with words to hover, tap or focus.

In: an `Explanation`. Out: HTML that needs no other file and no network (a page's content security
policy names its one script by its hash). What is shown is data (`view`), drawn by
`templates/explanation.js`, here as in notebooks and in the app; all of it goes into the page as
text, for a transcript is hostile input. Where no script runs, the explanation stands as plain text.

What the view of an explanation shows, as plain data: words, sources, numbers, the outline of the
sound.

In: an `Explanation`. Out: a dict for JSON that `templates/explanation.js` draws, wherever it is
shown: on a page of its own, in a notebook, in the app. Numbers have six digits, of frames a byte;
what is not known is None.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...inputs.audio.spectrograms import waveform_envelope
from ...inputs.clips.player import encode_wav
from ...mixing.maps.measure_registry import measure_label
from .plain_text import DECIDING_NATS, SAME_FOR_ALL, explanation_text, format_doubts, list_remarks
from .tables import COLUMNS, PAIR_COLUMNS

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from .choices import Choice
    from .explanation_numbers import ExplanationNumbers

_MIN_RUNNER_UP_PROBABILITY = (
    0.005  # probability of what could have been written instead, below which it is not told
)
_BARS_PER_SECOND, _MIN_BARS, _MAX_BARS = 150, 600, 1500  # of the outline of the sound


def explanation_view(explanation: ExplanationNumbers, *, sound: bool = True) -> dict[str, object]:
    """All that is shown of an explanation.

    Parameters
    ----------
    explanation : ExplanationNumbers
    sound : bool
        With the sound (WAV, base64), so that parts of it can be played.
    """
    clip = explanation.clip
    explained = {choice.error for choice in explanation.choices}
    silent = [
        str(error) for number, error in enumerate(explanation.errors) if number not in explained
    ]
    notes = [f"Not computed: {name}: {reason}" for name, reason in explanation.left_out]
    besides = explanation.without_own_sound()
    return {
        "item": explanation.item,
        "text": explanation.text,
        "by": explanation.by,
        "said": " ".join(explanation.said),
        "notes": [
            *explanation.remarks,
            *format_doubts(explanation),
            *(
                f"{error}: no token of the model decides this error, so it has no explanation"
                for error in silent
            ),
            *notes,
        ],
        "sound": None if clip is None else _encode_sound(clip, with_samples=sound),
        "sources": [
            {
                "label": source.label,
                "name": name,
                "side": source.side,
                "index": source.source.index,
                "onset": _round_value(source.onset),
                "offset": _round_value(source.offset),
                "pieces": [
                    [_round_value(onset), _round_value(offset)] for onset, offset in source.times
                ],  # of a word in several
            }
            for source, name in zip(explanation.sources, explanation.source_names, strict=True)
        ],
        "measures": [
            {
                "name": name,
                "title": measure_label(name),
                "of": attribution.of,
                "unit": attribution.unit,
                "distance": _round_value(explanation.distances[name]),
                "mark": "" if explanation.tells_words_apart(name) else SAME_FOR_ALL,
            }
            for name, attribution in explanation.attributions.items()
        ],
        "deciding": DECIDING_NATS,
        "fills": [{"side": fill.side, "label": fill.label} for fill in explanation.fills],
        "layers": list(explanation.layer_texts),
        "columns": {"attributions": [*COLUMNS], "pairs": [*PAIR_COLUMNS]},
        "frames": _frame_edges(explanation.frames),
        "units": [_encode_unit(explanation, unit) for unit in explanation.units],
        "choices": [
            _encode_choice(explanation, besides, choice_index)
            for choice_index in range(len(explanation.choices))
        ],
    }


def _encode_sound(clip: Clip, *, with_samples: bool) -> dict[str, object]:
    """Length, lowest and highest sample of each stretch in hundredths of the loudest, and the sound
    itself."""
    samples = clip.audio(16_000)
    count = min(max(round(_BARS_PER_SECOND * clip.duration), _MIN_BARS), _MAX_BARS)
    _, low, high = waveform_envelope(samples, 16_000, count)
    loudest = max(float(np.abs(samples).max(initial=0.0)), 1e-6)
    return {
        "seconds": _round_value(clip.duration),
        "low": np.round(100 * low / loudest).astype(int).tolist(),
        "high": np.round(100 * high / loudest).astype(int).tolist(),
        "wav": base64.b64encode(encode_wav(clip)).decode("ascii") if with_samples else None,
    }


def _frame_edges(frames: np.ndarray) -> list[float | None]:
    """Where frames begin, and where the last ends: one follows the other."""
    return _round_values(np.array([*frames[:, 0], *frames[-1:, 1]]))


def _encode_bytes(values: np.ndarray) -> dict[str, object]:
    """Numbers for colours: the largest, and all as parts of it in 127ths, a byte each (base64)."""
    largest = float(np.abs(np.nan_to_num(values)).max(initial=0.0))
    scaled_values = np.round(127 * np.nan_to_num(values) / (largest or 1.0)).astype(np.int8)
    return {
        "largest": _round_value(largest),
        "parts": base64.b64encode(scaled_values.tobytes()).decode("ascii"),
    }


def _encode_unit(explanation: ExplanationNumbers, unit: Choice) -> dict[str, object]:
    erred = any(
        other.error is not None and other.unit == unit.unit for other in explanation.choices
    )
    fed_at = {explanation.tokens[token].fed_at for token in unit.tokens}
    as_source = (
        source_index
        for source_index, source in enumerate(explanation.sources)
        if source.side == "written" and fed_at & set(source.source.positions)
    )
    return {
        "label": unit.label,
        "probability": _round_value(unit.probability),
        "kind": "error" if erred else "special" if unit.word is None else "",
        "source": next(as_source, None),  # what it is to the words behind it
    }


def _encode_choice(
    explanation: ExplanationNumbers, besides: ExplanationNumbers, choice_index: int
) -> dict[str, object]:
    choice, contrast = explanation.choices[choice_index], explanation.choices[choice_index].contrast
    error = None if choice.error is None else explanation.errors[choice.error]
    attributions = explanation.attributions.items()
    return {
        "unit": choice.unit,
        "against": choice.against,
        "name": choice.name if error is None else str(error),
        "error": None if error is None else error.kind,
        "contrast": None
        if contrast is None
        else {
            "label": contrast.label,
            "foil": contrast.foil_label,
            "probability": _round_value(contrast.foil_probability),
        },
        "runners_up": _list_runners_up(explanation, choice),
        "value": _round_value(explanation.values[choice_index]),
        "spelling_margin": _round_value(explanation.spellings.margin[choice_index]),
        "spelling_prior": _round_value(explanation.spellings.prior[choice_index]),
        "own": np.flatnonzero(explanation.own_sound[choice_index]).tolist(),
        "remarks": {
            "all": list_remarks(explanation, choice_index),
            "besides": list_remarks(besides, choice_index),
        },
        "probability": _round_value(choice.probability),
        "attribution": {
            name: _round_values(attribution.values[choice_index])
            for name, attribution in attributions
        },
        "attribution_error": {
            name: _round_values(attribution.errors[choice_index])
            for name, attribution in attributions
            if attribution.errors is not None
        },
        "specific": {
            name: _round_values(explanation.specific[name][choice_index])
            for name, _ in attributions
        },
        "by_frame": {
            name: _encode_bytes(frame_parts.values[choice_index])
            for name, attribution in attributions
            if (frame_parts := attribution.by_frame)
        },
        "rest": {
            name: _round_value(attribution.rest[choice_index])
            for name, attribution in attributions
            if attribution.rest is not None
        },
        "value_without": _round_values(explanation.value_without[choice_index]),
        "drop": _round_values(explanation.drops[choice_index]),
        "drop_low": _round_values(explanation.drop_range[0][choice_index]),
        "drop_high": _round_values(explanation.drop_range[1][choice_index]),
        "drop_by_fill": [
            _round_values(drops) for drops in explanation.drop_by_fill[:, choice_index]
        ],
        "probability_without": _round_values(explanation.probability_without[choice_index]),
        "pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "kind": pair.kind,
                "beyond": _round_value(pair.beyond),
            }
            | {
                "drop_first": _round_value(pair.drop_first),
                "drop_second": _round_value(pair.drop_second),
                "fills": pair.fills,
            }
            | {
                "drop_both": _round_value(pair.drop_both),
                "probability": _round_value(pair.probability_without),
            }
            for pair in explanation.pairs
            if pair.choice == choice_index
        ],
    }


def _list_runners_up(explanation: ExplanationNumbers, choice: Choice) -> list[dict[str, object]]:
    """What would have been written instead of each token, where that was at all likely."""
    listed: list[dict[str, object]] = []
    for token in (explanation.tokens[token_index] for token_index in choice.tokens):
        others: Iterable[Mapping[str, object]] = [
            {"label": other.label, "probability": _round_value(other.probability)}
            for other in token.runners_up
            if other.probability >= _MIN_RUNNER_UP_PROBABILITY
        ]
        if others:
            listed.append(
                {
                    "label": token.label,
                    "probability": _round_value(token.probability),
                    "others": others,
                }
            )
    return listed


def _round_value(value: float | None) -> float | None:
    """A number of six digits; None where it is none."""
    return None if value is None or not np.isfinite(value) else float(f"{float(value):.6g}")


def _round_values(values: np.ndarray) -> list[float | None]:
    return [_round_value(value) for value in values]


_TEMPLATES = Path(__file__).parent / "templates"


def explanation_page(explanation: ExplanationNumbers, *, sound: bool = True) -> str:
    """A whole page; light or dark as the reader has it."""
    body = explanation_body(explanation, sound=sound)
    return (
        "<!doctype html>\n<html "
        f'lang="en"><head>{_html_head(explanation.item)}</head><body>{body}</body></html>\n'
    )


def explanation_body(explanation: ExplanationNumbers, *, sound: bool = True) -> str:
    """The same as a part of another page, as notebooks show it."""
    view = {**explanation_view(explanation, sound=sound), "head": _html_head(explanation.item)}
    data = json.dumps(view, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div class="why-view"><style>{view_file("explanation.css")}</style>'
        f'<div class="why"><pre>{escape(explanation_text(explanation), quote=False)}</pre></div>'
        f'<script type="application/json">{data}</script><script>{view_file("explanation.js")}</script></div>'
    )


@cache
def view_file(name: str) -> str:
    """Text of the view's script (explanation.js) or of its style (explanation.css)."""
    return (_TEMPLATES / name).read_text(encoding="utf-8").strip()


def _html_head(item: str) -> str:
    digest = base64.b64encode(hashlib.sha256(view_file("explanation.js").encode()).digest()).decode(
        "ascii"
    )
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; "
        f"script-src 'sha256-{digest}'"
    )
    return (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        f'content="{escape(policy)}"><title>{escape(f"Why: {item}")}</title>'
        "<style>:root { color-scheme: light dark } body { margin: 1rem auto; max-width: 62rem; "
        "padding: 0 .8rem }</style>"
    )
