"""Route requests of the page to functions, and encode their responses. No sockets here.

In: requests of Starlette, with paths below the token. Out: its responses. The names of the page's
files are listed when the server starts, so that no path of a request becomes a path of a file.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import __version__
from ...errors import InputError, SpeechmixError
from ...files.json_files import Json, JsonObject, parse_json
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_flac
from ...interventions.removals import SOUND_FILLS
from ...mixing.maps.measure_registry import measure_facts
from ...reporting.pages.html_page import read_template, share_colors
from ...reporting.plots.clip_overview import sound_picture
from ..explain.page import view_file
from . import clip_changes, downloads, measurements, model_requests, run_browser
from .model_requests import open_text, parse_requested_clip, require_json_object
from .request_queue import QueueFullError, QueuePosition, RequestQueue
from .session import Session

_STATIC = Path(__file__).parent / "static"
_STATIC_NAMES = frozenset(path.name for path in _STATIC.iterdir())
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}
_WATCH_SECONDS = 20.0
_MAX_VERSION_DIGITS = 18
_PICTURE_INCHES = (12.0, 2.6)  # inches
_CLIP_FILE_ENCODERS: dict[str, Callable[..., downloads.SavedFile]] = {
    "textgrid": downloads.build_textgrid_file,
    "row": downloads.build_manifest_row_file,
    "sound": downloads.build_flac_file,
}


class App(Starlette):
    """The page's requests as an ASGI application; errors are responses.

    The path of a request is the one below the token, its state has the body.
    """

    def __init__(self, session: Session, queue: RequestQueue):
        self.session, self.queue = session, queue
        get = partial(Route, methods=["GET"])
        post = partial(Route, methods=["POST"])
        routes = [
            get("/", lambda request: _static_response("index.html")),
            get("/static/{name}", lambda request: _static_response(request.path_params["name"])),
            get("/api/session", self._session_metadata),
            post("/api/recordings", self._add_recording),
            post("/api/examples", self._open_example),
            post("/api/texts", lambda request: _Json(open_text(_parse_body(request).get("text")))),
            get("/api/recordings/{name}/sound", self._encode_sound),
            get("/api/recordings/{name}/picture", self._draw_picture),
            get("/api/clips", self._list_clips),
            post("/api/clips", self._open_clip),
            post("/api/save", self._save_file),
            post("/api/jobs", self._start_job),
            get("/api/jobs", self._watch_queue),
            get("/api/jobs/{name}", self._job_result),
            get("/api/jobs/{name}/file", self._job_file),
            post("/api/jobs/{name}/cancel", self._cancel_job),
        ]
        reasons: dict[Any, Any] = {
            QueueFullError: lambda request, error: error_response(503, str(error)),
            SpeechmixError: lambda request, error: error_response(400, str(error)),
            HTTPException: lambda request, error: error_response(
                error.status_code, "there is nothing at this address"
            ),
            Exception: lambda request, error: error_response(
                500, "an unexpected error; the terminal shows the details"
            ),
        }
        super().__init__(routes=routes, exception_handlers=reasons)
        self.router.redirect_slashes = False

    def _session_metadata(self, request: Request) -> Response:
        measures = [
            {"name": name, "what": measure_facts(name).description}
            for name in measurements.list_page_measures()
        ]
        fields = {
            "version": __version__,
            "models": list(self.session.choices),
            "measures": measures,
            "fills": list(SOUND_FILLS),
            "longest": self.session.max_seconds,
            "language": self.session.language,
            "examples": [
                {"name": clip.name, "text": clip.text} for clip in self.session.examples.values()
            ],
            "run": self.session.run.out.name if self.session.run is not None else None,
        }
        return _Json(fields)

    def _add_recording(self, request: Request) -> Response:
        clip = clip_changes.clip_from_bytes(
            request.state.body,
            request.query_params.get("name", "recording"),
            max_seconds=self.session.max_seconds,
        )
        return self._clip_response(clip)

    def _open_example(self, request: Request) -> Response:
        name = _parse_body(request).get("name")
        if not isinstance(name, str) or name not in self.session.examples:
            raise InputError(f"the page has no example {str(name)[:80]!r}: reload the page")
        return self._clip_response(self.session.examples[name])

    def _clip_response(self, clip: Clip) -> Response:
        recording = self.session.add_recording(clip)
        return _Json({**model_requests.clip_metadata(clip), "recording": recording})

    def _encode_sound(self, request: Request) -> Response:
        sound = encode_flac(self.session.get_recording(request.path_params["name"]))
        return Response(sound, media_type="audio/flac")

    def _draw_picture(self, request: Request) -> Response:
        clip = self.session.get_recording(request.path_params["name"])
        clip = clip.replace(words=None, cue=None, target=None)
        width, height = _PICTURE_INCHES
        with self.session.drawing_lock:
            picture = sound_picture(clip, width=width, height=height)
        return Response(picture, media_type="image/png")

    def _list_clips(self, request: Request) -> Response:
        if self.session.run is None:
            raise HTTPException(404)
        return _Json(run_browser.run_clip_table(self.session.run))

    def _open_clip(self, request: Request) -> Response:
        name = _parse_body(request).get("name")
        return _Json(run_browser.open_clip_from_run(self.session, name))

    def _save_file(self, request: Request) -> Response:
        fields = _parse_body(request)
        file_format = fields.get("form")
        if not isinstance(file_format, str) or file_format not in _CLIP_FILE_ENCODERS:
            raise InputError(
                f"form should be one of {', '.join(_CLIP_FILE_ENCODERS)}; found {str(file_format)[:80]!r}"
            )
        return _download_response(
            _CLIP_FILE_ENCODERS[file_format](parse_requested_clip(self.session, fields))
        )

    def _start_job(self, request: Request) -> Response:
        fields = _parse_body(request)
        task_name = fields.get("kind")
        if not isinstance(task_name, str) or task_name not in model_requests.TASK_BUILDERS:
            raise InputError(
                f"kind should be one of {', '.join(model_requests.TASK_BUILDERS)}; found {str(task_name)[:80]!r}"
            )
        job = self.queue.submit(model_requests.TASK_BUILDERS[task_name](self.session, fields))
        return _Json({"job": _encode_position(self.queue.find_position(job.id))}, 202)

    def _watch_queue(self, request: Request) -> Response:
        since = request.query_params.get("since", "")
        is_version = since.isdecimal() and len(since) < _MAX_VERSION_DIGITS
        version, jobs = self.queue.watch(int(since) if is_version else 0, _WATCH_SECONDS)
        return _Json({"version": version, "jobs": [_encode_position(job) for job in jobs]})

    def _job_result(self, request: Request) -> Response:
        position = self.queue.find_position(request.path_params["name"])
        answer = position.job.result
        is_file = isinstance(answer, downloads.SavedFile)
        return _Json(
            {**_encode_position(position), "answer": {"file": True} if is_file else answer}
        )

    def _job_file(self, request: Request) -> Response:
        job = self.queue.find_position(request.path_params["name"]).job
        if not isinstance(job.result, downloads.SavedFile):
            raise InputError(
                str(job.result) if job.state == "failed" else "this request has produced no file"
            )
        return _download_response(job.result)

    def _cancel_job(self, request: Request) -> Response:
        return _Json({"cancelled": self.queue.cancel(request.path_params["name"])})


def _encode_position(position: QueuePosition) -> JsonObject:
    """Encode the state and position of a request, without its result."""
    job = position.job
    fields = {
        "id": job.id,
        "state": job.state,
        "note": job.note,
        "expected": job.expected_seconds,
    }
    return {**fields, "before": position.requests_ahead, "seconds": round(job.seconds, 3)}


@lru_cache(maxsize=32)
def _read_static_file(name: str) -> str | None:
    """Return the text of one of the page's files, or None for any other name."""
    if name == "colors.js":
        return share_colors()
    if name in ("maps.js", "tables.js", "page.css"):
        return read_template(name)
    if name in ("explanation.js", "explanation.css"):
        return view_file(name)
    if name in _STATIC_NAMES:
        return (_STATIC / name).read_text(encoding="utf-8")
    return None


def _static_response(name: str) -> Response:
    text = _read_static_file(name)
    if text is None:
        return error_response(404, "there is nothing at this address")
    return Response(text, media_type=_MEDIA_TYPES[Path(name).suffix])


def _parse_body(request: Request) -> Mapping[str, Json]:
    return require_json_object(
        parse_json(request.state.body.decode("utf-8", "replace"), where="the request")
    )


class _Json(Response):
    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content).encode()  # in ASCII: a text may hold half of a character


def error_response(status: int, reason: str) -> Response:
    """Build a response with an error message."""
    return _Json({"error": reason}, status)


def _download_response(file: downloads.SavedFile) -> Response:
    disposition = f"attachment; filename*=UTF-8''{urllib.parse.quote(file.name, safe='')}"
    headers = {"Content-Disposition": disposition}
    return Response(file.content, media_type=file.media_type, headers=headers)
