"""Serve the app's functions as a Gradio page, for a hosted space: colour words, mute a word.

In: models by name, on the command line. Out: a page at Gradio's own address. It wraps
`speechmix.extensions.app.measurements`. `speechmix serve` has more (boundaries, all layers at once,
comparison) and needs no Gradio:

    pip install '.[gradio]'    # in a checkout
    python recipes/gradio_app.py openai/whisper-small
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import speechmix
from speechmix.extensions.app import clip_changes, measurements
from speechmix.inputs import bundled
from speechmix.interventions.removals import SOUND_FILLS
from speechmix.reporting import plots

load = lru_cache(maxsize=4)(speechmix.load)


def align_clip(source: str, path: str, text: str) -> speechmix.Clip:
    """Read a recording and align its text, or else the transcript of the model."""
    clip = clip_changes.clip_from_bytes(Path(path).read_bytes(), Path(path).name, max_seconds=30.0)
    clip = clip.replace(
        text=text.strip() or measurements.transcribe_clip(load(source), clip) or None
    )
    return clip_changes.add_word_times(clip, model=load(source))


def show_contributions(source: str, path: str, text: str, measure: str, stack: str, layer: int):
    """Return text, coloured words (HTML) and a figure of a recording."""
    clip = align_clip(source, path, text)
    maps = measurements.measure_clip(load(source), clip, measures=[measure]).maps
    mixing_map = maps.get((measure, stack)) or next(iter(maps.values()))
    layer = min(int(layer), mixing_map.layers[-1])
    words = plots.coloured_tokens(mixing_map, layer=layer)._repr_html_()
    return (
        clip.text,
        words,
        plots.clip_figure(clip, {(measure, mixing_map.stack): mixing_map}, layers=[layer]),
    )


def mute(source: str, path: str, text: str, word: int, fill: str):
    """Return the transcripts before and after muting a word, and the changed audio."""
    result = clip_changes.mute_words(
        load(source), align_clip(source, path, text), [int(word)], fill=fill
    )
    return (
        result.text_before,
        result.text_after,
        (
            measurements.SAMPLE_RATE,
            (32_767 * result.clip.audio(measurements.SAMPLE_RATE)).astype("int16"),
        ),
    )


def build_page(sources: list[str]):
    """Build the Gradio page."""
    import gradio as gr

    with gr.Blocks(title="speechmix") as blocks:
        inputs = [
            gr.Dropdown(sources, value=sources[0], label="model"),
            gr.Audio(type="filepath", label="clip"),
        ]
        inputs += [gr.Textbox(label="text (empty: the model transcribes)")]
        measure = gr.Dropdown(
            list(measurements.list_page_measures()), value="value_zeroing", label="measure"
        )
        stack = gr.Dropdown(["encoder", "decoder", "cross"], value="encoder", label="stack")
        layer = gr.Slider(0, 31, value=0, step=1, label="layer")
        outputs = [gr.Textbox(label="text"), gr.HTML(), gr.Plot()]
        gr.Button("Show contributions").click(
            show_contributions, [*inputs, measure, stack, layer], outputs
        )
        word, fill = (
            gr.Number(0, precision=0, label="word"),
            gr.Dropdown(list(SOUND_FILLS), value="zeros", label="with"),
        )
        transcripts = [
            gr.Textbox(label="before"),
            gr.Textbox(label="after"),
            gr.Audio(label="muted audio"),
        ]
        gr.Button("Mute").click(mute, [*inputs, word, fill], transcripts)
    return blocks


if __name__ == "__main__":
    build_page(sys.argv[1:] or [str(path) for path in bundled.models().values()]).launch()
