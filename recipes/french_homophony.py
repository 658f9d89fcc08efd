"""The French homophony study: which layers let the cue (le / les) into the target noun (livre /
livres)?

It is what `speechmix study` runs, with the same options. With a manifest of clips (path, text, cue,
target; foil and words if you have them) it scores each clip with the models named and with their
randomly initialised twins, draws layer-wise cue contribution per stack and measure, silences the
cue stack by stack (ablation), and writes one page:

    python recipes/french_homophony.py --clips clips.tsv --model openai/whisper-small --out runs/small

With a Common Voice release (or a data set of `datasets`, such as the paper's) it first makes the
clips itself: it mines the sentences for pairs, places the words, lets the models transcribe, and
keeps what all of them spell right; see `speechmix mine --help`. It stops and goes on at any point;
`--out` holds the data set in `corpus/examples`:

    python recipes/french_homophony.py --corpus cv-corpus-21.0-2025-03-14/fr --split test \\
        --balance number --max-examples 360 \\
        --model openai/whisper-small --model openai/whisper-medium --aligner jonatasgrosman/wav2vec2-large-xlsr-53-french

Without arguments it runs the same study on what comes with the package: two tiny recognisers
trained on synthetic French, and synthetic clips. There it is known which word carries the number,
so it shows whether the measures find it; it is no evidence about real speech models.

The steps, each a function that reads from top to bottom, are in
`speechmix/studies/french/french_study.py`: models and twins -> clips (of a manifest; mined from a
corpus; of the package) -> scores and ablation -> tables and page.
"""

from __future__ import annotations

import sys

from speechmix.interfaces import cli


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns the exit status of `speechmix study`."""
    return cli.main(["study", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
