"""The app's functions behind a Gradio page, for a hosted space: a clip in, its words coloured, a
word silenced.

In: models by name, on the command line. Out: a page at Gradio's own address. It wraps
`speechmix.interfaces.app.measurements`, as `speechmix serve` does, which has more (borders, all
layers at once, comparison) and needs no Gradio:

    pip install '.[gradio]'    # in a checkout
    python recipes/gradio_app.py openai/whisper-small
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import speechmix
from speechmix.inputs import bundled
from speechmix.interfaces.app import measurements as answers
from speechmix.interventions.audio_removal import SOUND_FILLS
from speechmix.reporting import plots

load = lru_cache(maxsize=4)(speechmix.load)


def placed_clip(source: str, path: str, text: str) -> speechmix.Clip:
    """A recording with its words: the text that was typed, or else what the model writes."""
    clip = answers.clip_from_bytes(Path(path).read_bytes(), Path(path).name, longest=30.0)
    clip = clip.replace(text=text.strip() or answers.transcribe_clip(load(source), clip) or None)
    return answers.place_words(clip, model=load(source))


def look(source: str, path: str, text: str, measure: str, stack: str, layer: int):
    """Text, coloured words (HTML) and a figure of a recording."""
    clip = placed_clip(source, path, text)
    maps = answers.measure_clip(load(source), clip, measures=[measure]).maps
    mixing_map = maps.get((measure, stack)) or next(iter(maps.values()))
    layer = min(int(layer), mixing_map.layers[-1])
    words = plots.coloured_tokens(mixing_map, layer=layer)._repr_html_()
    return (
        clip.text,
        words,
        plots.clip_figure(clip, {(measure, mixing_map.stack): mixing_map}, layers=[layer]),
    )


def silence(source: str, path: str, text: str, word: int, fill: str):
    """What the model writes before and after, and the sound it heard then."""
    result = answers.mute_words(
        load(source), placed_clip(source, path, text), [int(word)], fill=fill
    )
    return (
        result.before,
        result.after,
        (answers.RATE, (32_767 * result.clip.audio(answers.RATE)).astype("int16")),
    )


def page(sources: list[str]):
    """The Gradio page."""
    import gradio as gr

    with gr.Blocks(title="speechmix") as blocks:
        asked = [
            gr.Dropdown(sources, value=sources[0], label="model"),
            gr.Audio(type="filepath", label="clip"),
        ]
        asked += [gr.Textbox(label="text (empty: the model writes it)")]
        measure = gr.Dropdown(list(answers.page_measures()), value="value_zeroing", label="measure")
        stack = gr.Dropdown(["encoder", "decoder", "cross"], value="encoder", label="stack")
        layer = gr.Slider(0, 31, value=0, step=1, label="layer")
        shown = [gr.Textbox(label="text"), gr.HTML(), gr.Plot()]
        gr.Button("Look").click(look, [*asked, measure, stack, layer], shown)
        word, fill = (
            gr.Number(0, precision=0, label="word"),
            gr.Dropdown(list(SOUND_FILLS), value="zeros", label="with"),
        )
        heard = [gr.Textbox(label="before"), gr.Textbox(label="after"), gr.Audio(label="silenced")]
        gr.Button("Silence").click(silence, [*asked, word, fill], heard)
    return blocks


if __name__ == "__main__":
    page(sys.argv[1:] or [str(path) for path in bundled.models().values()]).launch()
