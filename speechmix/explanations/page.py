"""The page of an explanation: its words, coloured; choose one, and see and hear what it came from.

In: an `Explanation`. Out: HTML that needs no other file and no network (a page's content security policy names its one script
by its hash). A word is chosen without any script; with it, also by hovering, and parts of the sound are played. All text is
escaped: a transcript is hostile input. Numbers stand below colours, so that nothing is said by colour alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inputs.player import wav
from ..plots.coloured_tokens import shade
from ..plots.panels import spoken
from ..plots.sound_panels import sound_picture

if TYPE_CHECKING:
    from .choices import Choice
    from .claims import Claim
    from .explanation import Explanation

_TEMPLATES = Path(__file__).parent / "templates"
_GROUPS = {
    "reference": "Where it errs, against what was said",
    "": "What it wrote",
    "foil": "Against the other spelling",
    "runner_up": "Against the runner-up, where it was least sure",
}
_BEGINS = {"read": "text:", "written": "written before it:"}
_NOTE = (
    "Choose a word. Each line is what a measure claims for it; the last line shows the word's probability when that source "
    "alone is taken away. Blue speaks for the word, red against it. A click on a part of the sound plays it."
)
_SHOWN = "without it"


def page_of(explanation: Explanation, *, sound: bool = True) -> str:
    """A whole page; light or dark as the reader has it."""
    from jinja2 import Environment

    script = _file("explanation.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; script-src 'sha256-{digest}'"
    )
    head = Environment(autoescape=True).from_string(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="{{ policy }}"><title>{{ title }}</title>'
        "<style>:root { color-scheme: light dark } body { margin: 1rem auto; max-width: 60rem; padding: 0 .8rem }</style>"
        "</head><body>"
    )
    opened = head.render(policy=policy, title=f"Why: {explanation.item}")
    return f"{opened}\n{_form(explanation, sound=sound)}<script>{script}</script></body></html>\n"


def body_of(explanation: Explanation, *, sound: bool = True) -> str:
    """The same as a part of another page, as notebooks show it."""
    return f"{_form(explanation, sound=sound)}<script>{_file('explanation.js')}</script>"


@cache
def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8").strip()


def _form(explanation: Explanation, *, sound: bool) -> str:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    clip = explanation.clip
    unmarked = None if clip is None else clip.replace(cue=None, target=None, foil=None)
    picture = "" if unmarked is None else base64.b64encode(sound_picture(unmarked, height=1.2)).decode("ascii")
    left_out = [f"left out: {name}: {reason}" for name, reason in explanation.left_out]
    return environment.get_template("explanation.html").render(
        style=_file("explanation.css"),
        picture=picture,
        key=hashlib.sha256(picture.encode()).hexdigest()[:12],
        text=explanation.text,
        by=f"{explanation.item} · {explanation.by}",
        said=" ".join(explanation.said),
        notes=[_NOTE, *left_out],
        sound="" if clip is None or not sound else base64.b64encode(wav(clip)).decode("ascii"),
        groups=list(_groups(explanation)),
    )


def _groups(explanation: Explanation) -> Iterator[dict[str, Any]]:
    missing = set(range(len(explanation.errors))) - {choice.error for choice in explanation.choices}
    first = next((place for place, choice in enumerate(explanation.choices)), 0)
    for against, title in _GROUPS.items():
        places = [place for place, choice in enumerate(explanation.choices) if choice.against == against]
        if places:
            entries = [_entry(explanation, place, checked=place == first) for place in places]
            yield {"title": title, "entries": entries}
    if missing:
        unexplained = "; ".join(str(explanation.errors[number]) for number in sorted(missing))
        yield {"title": f"Errors by which no token is decided: {unexplained}", "entries": []}


def _entry(explanation: Explanation, place: int, *, checked: bool) -> dict[str, Any]:
    choice = explanation.choices[place]
    error = None if choice.error is None else explanation.errors[choice.error]
    erred = any(other.error is not None and other.unit == choice.unit for other in explanation.choices)
    kind = "error" if erred else "special" if choice.word is None else ""
    rows = [
        *(_row(explanation, place, name, claim) for name, claim in explanation.claims.items()),
        _shown(explanation, place),
    ]
    return {
        "label": choice.name if error is None else str(error),
        "title": choice.name,
        "probability": f"p {choice.probability:.2g}",
        "kind": kind,
        "checked": checked,
        "heading": _heading(explanation, choice),
        "lines": _runners_up(explanation, choice),
        "parts": _parts(explanation, place),
        "rows": [row for row in rows if row["chips"]],
    }


def _heading(explanation: Explanation, choice: Choice) -> str:
    told = f"{choice.label!r}, probability {choice.probability:.3g}"
    if choice.contrast is None:
        return told
    contrast = choice.contrast
    return f"{told}; {contrast.label!r} rather than {contrast.foil_label!r} (probability {contrast.foil_probability:.2g} there)"


def _runners_up(explanation: Explanation, choice: Choice) -> list[str]:
    """What would have been written instead of each token, where that was at all likely."""
    lines = []
    for token in (explanation.tokens[place] for place in choice.tokens):
        others = [
            f"{other.label!r} {other.probability:.2g}" for other in token.runners_up if other.probability >= 0.005
        ]
        if others:
            lines.append(f"instead of {token.label!r} ({token.probability:.2g}): {', '.join(others)}")
    return lines


def _parts(explanation: Explanation, place: int) -> list[dict[str, Any]]:
    """The sound, coloured by the first measure."""
    clip, claim = explanation.clip, next(iter(explanation.claims.values()), None)
    if clip is None or claim is None:
        return []
    values, parts = claim.values[place], []
    for index, source in enumerate(explanation.sources):
        if source.onset is None or source.offset is None:
            continue
        parts.append(
            {
                "left": round(100 * source.onset / clip.duration, 3),
                "width": round(100 * (source.offset - source.onset) / clip.duration, 3),
                "color": shade(_depth(values, index)),
                "onset": f"{source.onset:.3f}",
                "offset": f"{source.offset:.3f}",
                "label": source.label,
                "title": f"{source.label}, {source.onset:.2f} to {source.offset:.2f} s",
            }
        )
    return parts


def _row(explanation: Explanation, place: int, name: str, claim: Claim) -> dict[str, Any]:
    values = claim.values[place]
    rest = "" if claim.rest is None else f", rest {claim.rest[place]:+.2g}"
    numbers = [_number(value, claim.of) for value in values]
    depths = [_depth(values, index) for index in range(len(values))]
    units = "nats" if claim.of == "log-probability" else claim.of
    return {"name": spoken(name), "of": f"{units}{rest}", "chips": _chips(explanation, values, numbers, depths)}


def _shown(explanation: Explanation, place: int) -> dict[str, Any]:
    """How likely the word is without each source; the colour is what it loses."""
    probabilities, drops = explanation.probability_without[place], explanation.drops[place]
    numbers = [f"p {value:.2g}" for value in probabilities]
    depths = [_depth(drops, index) for index in range(len(drops))]
    chips = _chips(explanation, drops, numbers, depths)
    return {"name": _SHOWN, "of": f"probability, now {explanation.choices[place].probability:.2g}", "chips": chips}


def _chips(
    explanation: Explanation, values: np.ndarray, numbers: Sequence[str], depths: Sequence[float]
) -> list[dict[str, Any]]:
    chips, side = [], "sound"
    for index, source in enumerate(explanation.sources):
        if not np.isfinite(values[index]):
            continue
        begins = _BEGINS.get(source.side, "") if source.side != side else ""
        side = source.side
        chips.append(
            {
                "label": source.label,
                "number": numbers[index],
                "color": shade(depths[index]),
                "title": f"{source.label}: {numbers[index]}",
                "begins": begins,
                "onset": None if source.onset is None else f"{source.onset:.3f}",
                "offset": None if source.offset is None else f"{source.offset:.3f}",
            }
        )
    return chips


def _depth(values: np.ndarray, index: int) -> float:
    """A value as a part of the largest of its row."""
    largest = np.nanmax(np.abs(values), initial=0.0) if np.isfinite(values).any() else 0.0
    return float(values[index] / largest) if largest > 0 and np.isfinite(values[index]) else 0.0


def _number(value: float, of: str) -> str:
    return f"{100 * value:.0f} %" if of == "share" else f"{value:.2g}" if of == "size" else f"{value:+.2g}"
