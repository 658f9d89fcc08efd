"""Route requests of the page to functions, and encode their responses. No sockets here.

In: a method, a path below the token, a query, a body. Out: a `Response`. The names of the page's
files are listed when the server starts, so that no path of a request becomes a path of a file.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ... import __version__
from ...errors import InputError, SpeechmixError
from ...files.json_files import Json, JsonObject, parse_json
from ...inputs.clips.player import encode_flac
from ...interventions.removals import SOUND_FILLS
from ...mixing.maps.measure_registry import measure_facts
from ...reporting.pages.html_page import read_template, share_colors
from ...reporting.plots.sound_panels import sound_picture
from ..explain.page import view_file
from . import clip_changes, downloads, measurements, model_requests, run_browser
from .request_queue import QueuedRequest, QueueFullError, QueuePosition, RequestQueue
from .requests import open_text, parse_requested_clip, require_json_object
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


@dataclass(frozen=True)
class Response:
    """Hold an HTTP response: status, media type, body, further headers."""

    content: bytes
    media_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """Hold an HTTP request: GET or POST, the path below the token, the query, the body."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""


class App:
    """Answer requests without a server: `answer` takes a `Request` and returns errors as responses."""

    def __init__(self, session: Session, queue: RequestQueue):
        self.session, self.queue = session, queue

    def answer(self, request: Request) -> Response:
        """Answer a request; the response may be an error message."""
        try:
            return self._route(request)
        except QueueFullError as error:
            return error_response(503, str(error))
        except SpeechmixError as error:
            return error_response(400, str(error))

    def _route(self, request: Request) -> Response:
        match request.method, *request.path.split("/"):
            case "GET", "":
                return _static_response("index.html")
            case "GET", "static", name:
                return _static_response(name)
            case "GET", "api", "session":
                return _json_response(self._session_metadata())
            case "POST", "api", "recordings":
                return _json_response(self._add_recording(request))
            case "POST", "api", "examples":
                return _json_response(self._open_example(request))
            case "POST", "api", "texts":
                return _json_response(open_text(_parse_body(request).get("text")))
            case "GET", "api", "recordings", name, "sound":
                return Response(encode_flac(self.session.get_recording(name)), "audio/flac")
            case "GET", "api", "recordings", name, "picture":
                return self._draw_picture(name)
            case "GET", "api", "clips" if self.session.run is not None:
                return _json_response(run_browser.run_clip_table(self.session.run))
            case "POST", "api", "clips":
                return _json_response(
                    run_browser.open_clip_from_run(self.session, _parse_body(request).get("name"))
                )
            case "POST", "api", "save":
                return self._save_file(request)
            case "POST", "api", "jobs":
                return self._start_job(request)
            case "GET", "api", "jobs":
                return self._watch_queue(request)
            case "GET", "api", "jobs", name:
                return self._job_result(name)
            case "GET", "api", "jobs", name, "file":
                return _job_file(self.queue.find_position(name).job)
            case "POST", "api", "jobs", name, "cancel":
                return _json_response({"cancelled": self.queue.cancel(name)})
        return error_response(404, "there is nothing at this address")

    def _session_metadata(self) -> JsonObject:
        measures = [
            {"name": name, "what": measure_facts(name).description}
            for name in measurements.list_page_measures()
        ]
        return {
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

    def _add_recording(self, request: Request) -> JsonObject:
        clip = clip_changes.clip_from_bytes(
            request.body,
            request.query.get("name", "recording"),
            max_seconds=self.session.max_seconds,
        )
        return {**model_requests.clip_metadata(clip), "recording": self.session.add_recording(clip)}

    def _open_example(self, request: Request) -> JsonObject:
        name = _parse_body(request).get("name")
        if not isinstance(name, str) or name not in self.session.examples:
            raise InputError(f"the page has no example {str(name)[:80]!r}: reload the page")
        clip = self.session.examples[name]
        return {**model_requests.clip_metadata(clip), "recording": self.session.add_recording(clip)}

    def _draw_picture(self, name: str) -> Response:
        clip = self.session.get_recording(name).replace(words=None, cue=None, target=None)
        with self.session.drawing_lock:
            return Response(
                sound_picture(clip, width=_PICTURE_INCHES[0], height=_PICTURE_INCHES[1]),
                "image/png",
            )

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
        return _json_response({"job": _encode_position(self.queue.find_position(job.id))}, 202)

    def _watch_queue(self, request: Request) -> Response:
        since = request.query.get("since", "")
        is_version = since.isdecimal() and len(since) < _MAX_VERSION_DIGITS
        version, jobs = self.queue.watch(int(since) if is_version else 0, _WATCH_SECONDS)
        return _json_response(
            {"version": version, "jobs": [_encode_position(position) for position in jobs]}
        )

    def _job_result(self, name: str) -> Response:
        position = self.queue.find_position(name)
        answer = position.job.result
        return _json_response(
            {
                **_encode_position(position),
                "answer": {"file": True} if isinstance(answer, downloads.SavedFile) else answer,
            }
        )


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
    return Response(text.encode(), _MEDIA_TYPES[Path(name).suffix])


def _parse_body(request: Request) -> Mapping[str, Json]:
    return require_json_object(
        parse_json(request.body.decode("utf-8", "replace"), where="the request")
    )


def _json_response(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content, ensure_ascii=True).encode(), status=status)


def error_response(status: int, reason: str) -> Response:
    """Build a response with an error message."""
    return _json_response({"error": reason}, status)


def _job_file(job: QueuedRequest) -> Response:
    if not isinstance(job.result, downloads.SavedFile):
        raise InputError(
            str(job.result) if job.state == "failed" else "this request has produced no file"
        )
    return _download_response(job.result)


def _download_response(file: downloads.SavedFile) -> Response:
    disposition = f"attachment; filename*=UTF-8''{urllib.parse.quote(file.name, safe='')}"
    return Response(file.content, file.media_type, headers={"Content-Disposition": disposition})
