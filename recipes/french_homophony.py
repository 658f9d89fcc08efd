"""The French homophony study: in which layers does the cue (le / les) contribute to the target noun
(livre / livres)?

`speechmix study` runs the same study, with the same options. The manifest lists clips with path,
text, cue and target; foil and words are optional. The study scores each clip with the models and
with their untrained twins. It draws the cue's contribution by layer, stack and measure, ablates the
cue in each stack, and writes one page:

    python recipes/french_homophony.py --clips clips.tsv --model openai/whisper-small --out runs/small

With a corpus, such as a Common Voice release, the study makes the clips first. It finds the pairs in
the sentences, aligns the words, transcribes with every model, and keeps the pairs that all models
spell correctly; see `speechmix study mine --help`. A study that was stopped goes on. The data set is in
`corpus/examples` in the folder of `--out`:

    python recipes/french_homophony.py --corpus cv-corpus-21.0-2025-03-14/fr --split test \\
        --balance number --max-examples 360 \\
        --model openai/whisper-small --model openai/whisper-medium --aligner jonatasgrosman/wav2vec2-large-xlsr-53-french

Without arguments the study uses two bundled tiny recognisers and synthetic clips. There it is known
which word carries the number, so the study shows whether the measures find it. It is no evidence
about real speech models. In Python the study is `speechmix.french_study(...)`.
"""

from __future__ import annotations

import sys

from speechmix.interfaces import cli


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns the exit status of `speechmix study`."""
    return cli.main(["study", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
