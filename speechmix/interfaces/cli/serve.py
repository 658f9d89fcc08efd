"""`speechmix serve` on the command line: the app in the browser, one call."""

from __future__ import annotations

import argparse
from functools import partial

from .arguments import Subparsers
from .model_options import add_loading_options, add_prefix_options, loaded

_EXAMPLES = """examples:
  speechmix serve                                        # the tiny models and synthetic clips that come with the package
  speechmix serve --model openai/whisper-small --model facebook/wav2vec2-base-960h
  speechmix serve runs/small --model openai/whisper-small
"""
_EXAMPLES_SHOWN = 8


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    serve = commands.add_parser(
        "serve",
        help="an app in the browser: record a clip, see what builds its words",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.set_defaults(command=_serve)
    serve.add_argument(
        "run", nargs="?", metavar="RUN", help="folder of a run: its clips are listed, each opens"
    )
    serve.add_argument(
        "--model",
        action="append",
        help="hub id or folder; may be repeated (default: the tiny models of the package)",
    )
    serve.add_argument(
        "--audio", metavar="FOLDER", help="where the run's audio files are, if they were moved"
    )
    serve.add_argument(
        "--longest", type=float, metavar="SECONDS", help="how long a clip may be (default: 60)"
    )
    serve.add_argument(
        "--language",
        help="language of recordings that say none (fr, en-us, ...); the page has a field, too",
    )
    add_prefix_options(serve)
    add_loading_options(serve, precision=True)
    door = serve.add_argument_group("where it listens")
    door.add_argument(
        "--host", help="address to listen on (default: this computer alone, 127.0.0.1)"
    )
    door.add_argument("--port", type=int, default=0, help="port (default: one that is free)")
    door.add_argument("--no-browser", action="store_true", help="only print the address")


def _serve(options: argparse.Namespace) -> int:
    from ...inputs import bundled
    from ..app.serve import serve
    from ..app.server import HOST
    from ..app.session import MAX_CLIP_SECONDS

    serve(
        options.model or list(bundled.models().values()),
        run=options.run,
        audio=options.audio,
        examples=[
            clip.replace(meta={**clip.meta, "synthetic": "yes"})
            for clip in bundled.clips()[:_EXAMPLES_SHOWN]
        ],
        load=partial(loaded, options),
        host=options.host or HOST,
        port=options.port,
        max_seconds=MAX_CLIP_SECONDS if options.longest is None else options.longest,
        language=options.language,
        open_in_browser=not options.no_browser,
        log=partial(print, flush=True),
    )
    return 0
