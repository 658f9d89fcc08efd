"""Clips of a manifest with word times, for commands that take one: `faithfulness`, `probe`.

In: the options that `add_alignment_options` adds, and ``options.manifest``. Out: clips; what cannot be used is recorded with
its reason.
"""

from __future__ import annotations

import argparse


def add_alignment_options(command: argparse.ArgumentParser) -> None:
    """Add how the words of a manifest's clips are placed."""
    command.add_argument(
        "--align", choices=("auto", "ctc", "whisper", "synthesis"), default="auto", help="how to place words"
    )
    command.add_argument("--aligner", metavar="MODEL", help="CTC or Whisper model that aligns (default: by synthesis)")
    command.add_argument("--language", default="fr", help="language of clips that do not say (default: fr)")
    command.add_argument("--allow-outside", action="store_true", help="let the manifest name files outside its folder")


def aligned_clips(options: argparse.Namespace, skipped: list[tuple[str, str]]) -> list:
    """Clips of the manifest with word times; rows that cannot be used, and clips that cannot be aligned, are recorded."""
    from ..adapters import load
    from ..alignment import align
    from ..corpora.reading import listed_clips
    from ..errors import InputError, SpeechmixError
    from ..files.names import distinct_names

    def record(row: int, name: str, error: InputError) -> None:
        skipped.append((name or f"row {row}", str(error)))

    aligner = load(options.aligner, device=options.device) if options.aligner else None
    clips = []
    for clip in distinct_names(listed_clips(options.manifest, allow_outside=options.allow_outside, on_error=record)):
        clip = clip if clip.language else clip.replace(language=options.language)
        try:
            clips.append(align(clip, model=aligner, method=options.align))
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
    if not clips:
        raise InputError(
            f"no clip can be used: {'; '.join(reason for _, reason in skipped[:3]) or 'the manifest is empty'}"
        )
    return clips
