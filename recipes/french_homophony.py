"""The French homophony study: which layers let the cue (le / les) into the target noun (livre / livres)?

With a manifest of clips (path, text, cue, target; words if you have them) it scores each clip with the models named and
with their randomly initialised twins, and draws layer-wise cue contribution per stack and measure:

    python recipes/french_homophony.py --manifest clips.tsv --models openai/whisper-small --seeds 0 1 2 --out runs/small

Without arguments it runs the same study on French that espeak-ng speaks and on two small models with RANDOM weights:
synthetic from end to end, so it shows what the study looks like and is evidence of nothing.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import pandas as pd

import speechmix
from speechmix.experiments.run import Run, score_clips

MEASURES = ("value_zeroing", "attention", "attention_norm")

# Pairs whose nouns (and verbs) sound alike, so that only the determiner tells the number: (singular, plural, cues, targets).
PAIRS = (
    ("il a perdu le livre", "il a perdu les livres", ("le", "les"), ("livre", "livres")),
    ("elle cherche la lumière", "elle cherche les lumières", ("la", "les"), ("lumière", "lumières")),
    ("tu fermes le volet", "tu fermes les volets", ("le", "les"), ("volet", "volets")),
    ("on regarde le rideau", "on regarde les rideaux", ("le", "les"), ("rideau", "rideaux")),
    ("je prends la carte", "je prends les cartes", ("la", "les"), ("carte", "cartes")),
    ("nous voyons la maison", "nous voyons les maisons", ("la", "les"), ("maison", "maisons")),
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    out = Path(options.out)
    try:
        if options.manifest:
            run, title = _study(options, out), f"{Path(options.manifest).name}"
        else:
            run, title = _synthetic_study(options, out), "SYNTHETIC speech, UNTRAINED models"
    except speechmix.SpeechmixError as error:
        print(f"french_homophony: {error}", file=sys.stderr)
        return 1
    print(run.summary())
    table = run.contributions
    if table.empty:
        print("no clip has both cue and target, so there is no cue contribution to draw")
        return 1
    print(headline(table))
    for path in draw(table, out, title):
        print(f"figure: {path}")
    return 0


def headline(table: pd.DataFrame) -> str:
    """Cue contribution (mean over clips, %) at each model's best layer, beside what the cue's length alone would give."""
    keys = ["model", "init", "stack", "measure"]
    by_layer = table.groupby([*keys, "layer"], sort=False).contribution.mean().mul(100).reset_index()
    best = by_layer.loc[by_layer.groupby(keys, sort=False).contribution.idxmax()].set_index(keys)
    mean = by_layer.groupby(keys, sort=False).contribution.mean().rename("mean over layers")
    length = table.groupby(keys, sort=False).share_of_length.mean().mul(100).rename("cue's share of length")
    shown = best.rename(columns={"contribution": "best layer's mean", "layer": "best layer"}).join(mean).join(length)
    clips = table["clip"].nunique()
    return f"cue contribution in %, mean over {clips} clips:\n{shown.round(1).to_string()}"


def draw(table: pd.DataFrame, out: Path, title: str) -> list[Path]:
    """Draw curves with the spread over clips, and the layer x measure heat map."""
    from speechmix.reports.figures import cue_figure, cue_heat_map

    paths = []
    for name, figure in (("cue_contribution", cue_figure(table)), ("cue_heat_map", cue_heat_map(table))):
        figure.suptitle(title, fontsize=9)
        paths.append(out / f"{name}.png")
        figure.savefig(paths[-1], dpi=150, bbox_inches="tight")
    return paths


def _study(options, out: Path) -> Run:
    """Score a manifest's clips with the models named and their random twins."""
    skipped: list[tuple[str, str]] = []
    clips = speechmix.read_clips(
        options.manifest,
        allow_outside=options.allow_outside,
        on_error=lambda row, name, error: skipped.append((name or f"row {row}", str(error))),
    )
    if not options.models:
        raise speechmix.SpeechmixError("name the models to score: --models openai/whisper-small ...")
    for clip in clips:
        clip.language = clip.language or options.language
    load = partial(speechmix.load, device=options.device)
    models = [partial(load, source) for source in options.models]
    models += [partial(load, source, init="random", seed=seed) for source in options.models for seed in options.seeds]
    return _score(models, clips, options, out, skipped)


def _score(models, clips, options, out: Path, skipped=()) -> Run:
    return score_clips(
        models,
        clips,
        out,
        aligner=speechmix.load(options.aligner, device=options.device) if options.aligner else None,
        figures=options.figures,
        overwrite=options.overwrite,
        progress=sys.stderr.isatty(),
        skipped=skipped,
        measures=list(options.measures),
        stacks=options.stacks,
        heads="mean",
    )


def _synthetic_study(options, out: Path) -> Run:
    """The same study on speech synthesised here and two small untrained architectures."""
    clips = speechmix.read_clips(synthesise(out / "synthetic_clips"))
    folders = [_tiny_xlsr(out / "models" / "tiny-xlsr-shape"), _tiny_whisper(out / "models" / "tiny-whisper-shape")]
    models = [
        partial(speechmix.load, folder, init="random", seed=seed, device=options.device)
        for folder in folders
        for seed in options.seeds
    ]
    return _score(models, clips, options, out)


def synthesise(folder: Path) -> Path:
    """Let espeak-ng speak the pairs; writes clips, word times and a manifest, and returns the manifest."""
    import json
    from dataclasses import asdict

    import soundfile

    from speechmix.alignment.espeak import speak

    folder.mkdir(parents=True, exist_ok=True)
    rows = ["path\ttext\twords\tcue\ttarget\tlanguage\tpair\tnumber"]
    for pair, (singular, plural, cues, targets) in enumerate(PAIRS):
        for number, text, cue, target in zip(("sg", "pl"), (singular, plural), cues, targets, strict=True):
            name = f"synthetic_{pair:02d}_{number}"
            speech = speak(text, voice="fr-fr")
            soundfile.write(folder / f"{name}.wav", speech.audio, speech.sample_rate)
            words = json.dumps([asdict(word) for word in speech.words], ensure_ascii=False)
            (folder / f"{name}.json").write_text(words, encoding="utf-8")
            rows.append(f"{name}.wav\t{text}\t{name}.json\t{cue}\t{target}\tfr\t{pair}\t{number}")
    manifest = folder / "manifest.tsv"
    manifest.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return manifest


def _tiny_xlsr(folder: Path) -> Path:
    """Write the config of a small model of XLSR's architecture (stable layer norm) in hub format; no weights."""
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor

    Wav2Vec2Config(
        hidden_size=96,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=192,
        conv_dim=(32,) * 7,
        do_stable_layer_norm=True,
        feat_extract_norm="layer",
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    ).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True).save_pretrained(folder)
    return folder


def _tiny_whisper(folder: Path) -> Path:
    """Write config and a byte-level tokenizer of a small model of Whisper's architecture, 4-second window; no weights."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperTokenizer

    special = ["<|endoftext|>", "<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]
    vocabulary = {token: index for index, token in enumerate([*sorted(ByteLevel.alphabet()), *special])}
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=[], additional_special_tokens=special)
    tokenizer.save_pretrained(folder)
    end = vocabulary["<|endoftext|>"]
    WhisperConfig(
        vocab_size=len(vocabulary),
        d_model=96,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=192,
        decoder_ffn_dim=192,
        max_source_positions=200,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=vocabulary["<|startoftranscript|>"],
    ).save_pretrained(folder)
    WhisperFeatureExtractor(chunk_length=4).save_pretrained(folder)
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", help="TSV, CSV or JSONL with path, text, cue, target (words, language)")
    parser.add_argument("--allow-outside", action="store_true", help="let the manifest name files outside its folder")
    parser.add_argument("--models", nargs="+", help="hub ids or folders; each is scored trained and as random twins")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1], help="seeds of the random twins (default: 0 1)")
    parser.add_argument("--measures", nargs="+", default=MEASURES, help=f"default: {' '.join(MEASURES)}")
    parser.add_argument("--stacks", nargs="+", help="encoder, decoder, cross (default: all there are)")
    parser.add_argument("--aligner", help="CTC model that places the words of clips without word times")
    parser.add_argument("--language", default="fr", help="language of clips that do not say (default: fr)")
    parser.add_argument("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    parser.add_argument("--out", default="runs/french_homophony", help="folder of the run; a stopped run goes on there")
    parser.add_argument("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    parser.add_argument("--figures", type=int, default=4, help="clips to draw a figure of, per model (default: 4)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
