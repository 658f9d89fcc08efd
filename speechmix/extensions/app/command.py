"""`speechmix serve`: serve the app in the browser."""

from __future__ import annotations

import argparse
from functools import partial

from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    add_prefix_options,
    load_model,
)

_EXAMPLES = """examples:
  speechmix serve                                        # the bundled models and synthetic clips
  speechmix serve --model openai/whisper-small --model facebook/wav2vec2-base-960h
  speechmix serve runs/small --model openai/whisper-small
"""
_EXAMPLE_COUNT = 8


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    serve = commands.add_parser(
        "serve",
        help="open an app in the browser: record a clip, see what contributes to its words",
        epilog=_EXAMPLES,
    )
    serve.set_defaults(command=_serve)
    serve.add_argument(
        "run", nargs="?", metavar="RUN", help="folder of a run; the page lists its clips"
    )
    add_model_option(serve, required=False, note=" (default: the bundled models)")
    serve.add_argument(
        "--audio", metavar="FOLDER", help="folder of the run's audio files, if they were moved"
    )
    serve.add_argument(
        "--max-seconds", type=float, metavar="SECONDS", help="longest clip (default: 60)"
    )
    serve.add_argument(
        "--language", help="language of recordings (fr, en-us, ...); can be changed on the page"
    )
    serve.add_argument("--host", help="address to listen on (default: this computer, 127.0.0.1)")
    serve.add_argument("--port", type=int, default=0, help="port (default: a free one)")
    serve.add_argument("--no-browser", action="store_true", help="only print the address")
    add_prefix_options(serve)
    add_loading_options(serve, precision=True)


def _serve(options: argparse.Namespace) -> int:
    from ...inputs import bundled
    from .server import HOST, serve
    from .session import MAX_CLIP_SECONDS

    serve(
        options.model or list(bundled.models().values()),
        run=options.run,
        audio=options.audio,
        examples=[
            clip.replace(meta={**clip.meta, "synthetic": "yes"})
            for clip in bundled.clips()[:_EXAMPLE_COUNT]
        ],
        load=partial(load_model, options),
        host=options.host or HOST,
        port=options.port,
        max_seconds=options.max_seconds or MAX_CLIP_SECONDS,
        language=options.language,
        open_in_browser=not options.no_browser,
        log=partial(print, flush=True),
    )
    return 0
