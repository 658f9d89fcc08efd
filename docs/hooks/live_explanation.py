"""A MkDocs hook: the explanation on the first page, computed when the site is built.

In: a bundled model and a synthetic clip. Out: `live/explanation.html`, the page that
`speechmix explain --out` writes, with its sound.
"""

from __future__ import annotations

CLIP, MODEL = "left_18_pl", "bundled:tiny-french-whisper"


def explanation_page() -> str:
    """Return the page of the clip."""
    import speechmix
    from speechmix.inputs import bundled

    (clip,) = (clip for clip in bundled.clips() if clip.name == CLIP)
    return speechmix.explain(speechmix.load(MODEL, device="cpu"), clip).to_html()


def on_files(files, config):
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "live/explanation.html", content=explanation_page()))
    return files
