"""Phones in the bundled models: a final consonant that decides, assimilation, and liaison.

    python recipes/phones.py --out runs/phones

In: espeak-ng (extra `synthesis`) and the bundled models. All of it is SYNTHETIC: two tiny models that
were trained on a few thousand short sentences of the same synthesiser. What they do says nothing about French, nor about
models trained on people; the recipe shows how such questions are asked. Out, in the folder:

final_consonants.csv   *leurs chats dorment*: the verb's last consonant is all that tells the plural of
                       *leur(s)*. The margin log p(leurs) - log p(leur) with the sound as it is, with
                       that consonant muted, and with the verb's first consonant muted (control)
assimilation.csv       *la vache* said with [ʒ], before *brille* (voiced: the change is licensed) and
                       before *tombe* (it is not): log p(vache) - log p(vage). A listener who
                       compensates for assimilation has a larger margin before *brille* than before *tombe*
phones_sources.csv     what the states of all phones of these clips are made of, beside nine untrained twins
assimilation_sources.csv, liaison_sources.csv
                       the same of the last phone of the target of the design, and of the determiner in
                       *les écoles* (liaison) and *cette école* (the consonant is always there)
phones.png             all of it

The models were trained on nouns that begin with a consonant, so they never heard a liaison: the last
table shows how to ask, not what such a model knows of it.

Intervals (95 %) are over items: nouns, or targets. Some five minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import speechmix
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.agreement.item_selection import (
    read_assimilation_design,
    speak_assimilation_design,
    speak_clip,
)
from speechmix.extensions.phones.phone_sources import SOURCES, PhoneSources
from speechmix.files.text_files import write_csv
from speechmix.inputs.words.unit_tiers import unit_owners
from speechmix.interventions.decision import Decision
from speechmix.reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    TITLE_SIZE,
    new_figure,
    style_curve_axis,
)

MODELS = ("tiny-french-ctc", "tiny-french-whisper")
MODEL_COLORS = dict(zip(MODELS, ("0.25", "#D55E00"), strict=True))
VOICES = ("f4", "m5")  # of which the models have heard neither
NOUNS = "chat voisin jardin mouton lapin tigre poulet robot fantôme garçon".split()
VERBS = {"dort": "dorment", "vient": "viennent"}  # [dɔʁ] [dɔʁm], [vjɛ̃] [vjɛn]
VOWEL_NOUNS = "école image usine étoile orange assiette échelle armoire île amie".split()
DETERMINERS = {"liaison": "les", "always there": "cette"}


def margin(model: speechmix.adapters.Model, clip: speechmix.Clip) -> float:
    """Log-probability of the target less that of its foil, nats."""
    return Decision.prepare(model, clip).margin


def mute_phone(clip: speechmix.Clip, word: int, position: int) -> speechmix.Clip:
    """The clip with one phone of a word silent: 0 for its first, -1 for its last."""
    phones = clip.tiers["phone"]
    owners = unit_owners(phones, clip.words)
    phone = [phone for phone, owner in zip(phones, owners, strict=True) if owner == word][position]
    samples = np.array(clip.audio(16_000))
    samples[round(16_000 * phone.start) : round(16_000 * phone.end)] = 0
    return speechmix.Clip.from_array(
        samples,
        16_000,
        name=f"{clip.name} without {phone.text}",
        text=clip.text,
        words=clip.words,
        cue=clip.cue,
        target=clip.target,
        foil=clip.foil,
        language=clip.language,
    )


def final_consonants(models: Sequence[speechmix.adapters.Model], nouns: int) -> pd.DataFrame:
    """Margins of leurs with the verb as it is, and without its last or its first consonant."""
    rows = []
    for noun in NOUNS[:nouns]:
        for verb in VERBS.values():
            for voice in VOICES:
                clip = speak_clip(
                    f"leurs {noun}s {verb}", voice=f"fr+{voice}", cue=2, target=0, foil="leur"
                )
                sounds = {
                    "as it is": clip,
                    "last consonant muted": mute_phone(clip, 2, -1),
                    "first consonant muted": mute_phone(clip, 2, 0),
                }
                rows += [
                    {"model": model.name, "item": noun, "verb": verb, "voice": voice}
                    | {"sound": sound, "margin": margin(model, changed)}
                    for model in models
                    for sound, changed in sounds.items()
                ]
    return pd.DataFrame(rows)


def assimilation_margins(
    models: Sequence[speechmix.adapters.Model], clips: Sequence[speechmix.Clip]
) -> pd.DataFrame:
    """Margins of the unchanged spelling in each cell of the design."""
    rows = [
        {"model": model.name, "item": clip.meta["pair"], **clip.meta, "margin": margin(model, clip)}
        for model in models
        for clip in clips
    ]
    return pd.DataFrame(rows)


def liaison_clips(nouns: int) -> list[speechmix.Clip]:
    """Determiners before a vowel whose last consonant is a liaison, or always there."""
    return [
        speak_clip(
            f"{determiner} {noun}{'s' if kind == 'liaison' else ''}",
            voice="fr+f4",
            cue=0,
            target=1,
            meta={"pair": noun, "consonant": kind},
        )
        for noun in VOWEL_NOUNS[:nouns]
        for kind, determiner in DETERMINERS.items()
    ]


def averages(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over items, with intervals."""
    by_item = table.groupby([*by, "item"], sort=False)["margin"].mean()
    rows = []
    for key, values in by_item.groupby(list(by), sort=False):
        low, high = mean_interval(values)
        numbers = {"margin": values.mean(), "low": low, "high": high, "items": len(values)}
        rows.append(dict(zip(by, key, strict=True)) | numbers)
    return pd.DataFrame(rows)


def compensation(table: pd.DataFrame) -> pd.DataFrame:
    """How much larger the margin of the changed form is where the next word licenses the change."""
    changed = table[table["form"] == "changed"]
    cells = changed.pivot_table(index=["model", "item"], columns="context", values="margin")
    difference = (cells["viable"] - cells["unviable"]).rename("margin").reset_index()
    return averages(difference, ["model"])


def draw(finals: pd.DataFrame, cells: pd.DataFrame, sources: dict[str, PhoneSources]) -> Figure:
    """Margins above, sources of phones below."""
    titles = {
        "phones": (None, "all phones"),
        "assimilation": ("changed", "last phone of the target, changed"),
        "liaison": ("liaison", "[z] of the liaison"),
    }
    figure = new_figure(9.6, 6.0)
    axes = figure.subplots(2, 3)
    _draw_margins(axes[0, 0], finals, ["sound"], "leurs rather than leur")
    _draw_margins(axes[0, 1], cells, ["form", "context"], "vache rather than vage")
    axes[0, 2].set_axis_off()
    lines = [
        Line2D([], [], color=color, label=source.replace("_", " "))
        for source, color in zip(SOURCES, LINE_COLORS, strict=False)
    ]
    lines += [
        Line2D([], [], color="0.4", linestyle="--", label="mean of the untrained twins"),
        Line2D([], [], color="0.4", marker="o", label="filled marker: differs from the twins"),
    ]
    lines += [
        Line2D([], [], color=color, marker="o", linestyle="", label=model)
        for model, color in MODEL_COLORS.items()
    ]
    axes[0, 2].legend(handles=lines, fontsize=LABEL_SIZE, frameon=False, loc="lower left")
    for ax, (name, result) in zip(axes[1], sources.items(), strict=True):
        level, title = titles[name]
        result.plot(level=level, ax=ax)
        ax.set_title(f"{title}\n{ax.get_title().splitlines()[-1]}", size=TITLE_SIZE - 1)
    return figure


def _draw_margins(ax, table: pd.DataFrame, by: list[str], title: str) -> None:
    labels = table[by].agg("\n".join, axis=1)
    order = list(dict.fromkeys(labels))
    for index, (model, rows) in enumerate(table.groupby("model", sort=False)):
        positions = np.array([order.index(label) for label in labels[rows.index]]) + 0.2 * index
        errors = np.abs(rows[["low", "high"]].to_numpy().T - rows["margin"].to_numpy())
        color = MODEL_COLORS[model]
        ax.errorbar(positions, rows["margin"], errors, fmt="o", markersize=4, color=color)
    ax.axhline(0, color="0.4", linewidth=0.7)
    ax.set_xticks(np.arange(len(order)) + 0.1, [label.replace(" ", "\n") for label in order])
    ax.set_ylabel("margin (nats)", size=LABEL_SIZE)
    ax.set_title(title, size=TITLE_SIZE - 1)
    style_curve_axis(ax)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, help="folder for tables and figure")
    parser.add_argument("--items", type=int, default=11, help="items of each part (default: all)")
    parser.add_argument("--twins", type=int, default=9, help="untrained twins (default: 9)")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    models = [speechmix.load(f"bundled:{name}") for name in MODELS]
    finals = final_consonants(models, options.items)
    write_csv(finals, options.out / "final_consonants.csv")
    items = read_assimilation_design("french")[: options.items]
    design = speak_assimilation_design(items, variants=VOICES)
    margins = assimilation_margins(models, design)
    write_csv(margins, options.out / "assimilation.csv")
    final_means, cells = (
        averages(finals, ["model", "sound"]),
        averages(margins, ["model", "form", "context"]),
    )
    for table in (final_means, cells, compensation(margins)):
        print(table.round(2).to_string(index=False), end="\n\n")
    twins = [
        speechmix.load(f"bundled:{MODELS[0]}", init="random", seed=seed)
        for seed in range(options.twins)
    ]
    one_voice = [clip for clip in design if clip.meta["voice"].endswith(VOICES[0])]
    viable = [clip for clip in one_voice if clip.meta["context"] == "viable"]
    last = {"position": "final"}
    questions = {
        "phones": ([clip for clip in viable if clip.meta["form"] == "kept"], (), None),
        "assimilation": (viable, "form", {"role": "target", **last}),
        "liaison": (liaison_clips(options.items), "consonant", {"role": "cue", **last}),
    }
    sources = {}
    for name, (clips, by, where) in questions.items():
        result = speechmix.phone_sources(models[0], clips, twins=twins, by=by, where=where)
        write_csv(result.to_dataframe(), options.out / f"{name}_sources.csv")
        claims = result.shares[result.shares["claim"] != ""]
        columns = [*result.by, "source", "share", "low", "high", "random", "claim"]
        print(f"{name}: {len(claims)} shares of the whole encoder differ from untrained models")
        if len(claims):
            print(claims[columns].round(1).to_string(index=False), end="\n\n")
        sources[name] = result
    draw(final_means, cells, sources).savefig(options.out / "phones.png", dpi=200)
    return 0


if __name__ == "__main__":
    sys.exit(main())
