"""The addresses of the app: what is asked of each, and what it answers. No sockets here.

In: a method, a path below the token, a query, a body. Out: a `Response`. The page's files are known
by name when the server starts, so that no path of a request ever becomes a path of a file.
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
from ...explanations.page import view_file
from ...files.json_files import Json, JsonObject, parse_json
from ...inputs.clips.player import encode_flac
from ...interventions.audio_removal import SOUND_FILLS
from ...mixing.maps.measure_registry import measure_facts
from ...reporting.pages.html_page import read_template, share_colors
from ...reporting.plots.sound_panels import sound_picture
from . import clip_changes
from . import downloads as saving
from . import measurements as answers
from . import model_requests as tasks
from . import run_browser as runs
from .request_queue import QueuedRequest, QueueFull, QueuePosition, RequestQueue
from .requests import json_fields, requested_clip
from .session import Session

_STATIC = Path(__file__).parent / "static"
_FILES = frozenset(path.name for path in _STATIC.iterdir())
_KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}
_WATCH_SECONDS = 20.0
_MAX_VERSION_DIGITS = 18  # of a version of the queue
_PICTURE = (12.0, 2.6)  # inches
_DIRECT: dict[str, Callable[..., saving.SavedFile]] = {
    "textgrid": saving.clip_textgrid,
    "row": saving.manifest_row,
    "sound": saving.clip_flac,
}


@dataclass(frozen=True)
class Response:
    """What is answered: a status of HTTP, the type and the bytes of a body, further headers."""

    content: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What is asked: GET or POST, the path below the token, the query, the body."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""


class App:
    """The app without its server: `answer` takes a `Request` and never raises."""

    def __init__(self, session: Session, turns: RequestQueue):
        self.session, self.turns = session, turns

    def answer(self, request: Request) -> Response:
        """Answer a request; what is wrong with it is an answer too."""
        try:
            return self._answered(request)
        except QueueFull as error:
            return error_response(503, str(error))
        except SpeechmixError as error:
            return error_response(400, str(error))

    def _answered(self, request: Request) -> Response:
        match request.method, *request.path.split("/"):
            case "GET", "":
                return _file("index.html")
            case "GET", "static", name:
                return _file(name)
            case "GET", "api", "session":
                return _json(self._facts())
            case "POST", "api", "recordings":
                return _json(self._recorded(request))
            case "POST", "api", "examples":
                return _json(self._example(request))
            case "GET", "api", "recordings", name, "sound":
                return Response(encode_flac(self.session.recording(name)), "audio/flac")
            case "GET", "api", "recordings", name, "picture":
                return self._picture(name)
            case "GET", "api", "clips" if self.session.run is not None:
                return _json(runs.run_clip_table(self.session.run))
            case "POST", "api", "clips":
                return _json(runs.open_run_clip(self.session, _asked(request).get("name")))
            case "POST", "api", "save":
                return self._save_file(request)
            case "POST", "api", "jobs":
                return self._start_job(request)
            case "GET", "api", "jobs":
                return self._watched(request)
            case "GET", "api", "jobs", name:
                return self._answer_of(name)
            case "GET", "api", "jobs", name, "file":
                return _saved_file(self.turns.standing(name).job)
            case "POST", "api", "jobs", name, "cancel":
                return _json({"cancelled": self.turns.cancel(name)})
        return error_response(404, "there is nothing at this address")

    def _facts(self) -> JsonObject:
        measures = [
            {"name": name, "what": measure_facts(name).description}
            for name in answers.page_measures()
        ]
        return {
            "version": __version__,
            "models": list(self.session.choices),
            "measures": measures,
            "first_measures": list(answers.FIRST_MEASURES),
            "fills": list(SOUND_FILLS),
            "longest": self.session.longest,
            "language": self.session.language,
            "examples": [
                {"name": clip.name, "text": clip.text} for clip in self.session.examples.values()
            ],
            "run": self.session.run.out.name if self.session.run is not None else None,
        }

    def _recorded(self, request: Request) -> JsonObject:
        clip = clip_changes.clip_from_bytes(
            request.body, request.query.get("name", "recording"), longest=self.session.longest
        )
        return {**tasks.clip_facts(clip), "recording": self.session.keep(clip)}

    def _example(self, request: Request) -> JsonObject:
        name = _asked(request).get("name")
        if not isinstance(name, str) or name not in self.session.examples:
            raise InputError(f"there is no example {str(name)[:80]!r}")
        clip = self.session.examples[name]
        return {**tasks.clip_facts(clip), "recording": self.session.keep(clip)}

    def _picture(self, name: str) -> Response:
        clip = self.session.recording(name).replace(words=None, cue=None, target=None)
        with self.session.drawing:
            return Response(sound_picture(clip, width=_PICTURE[0], height=_PICTURE[1]), "image/png")

    def _save_file(self, request: Request) -> Response:
        asked = _asked(request)
        form = asked.get("form")
        if not isinstance(form, str) or form not in _DIRECT:
            raise InputError(
                f"form should be one of {', '.join(_DIRECT)}; found {str(form)[:80]!r}"
            )
        return _download(_DIRECT[form](requested_clip(self.session, asked)))

    def _start_job(self, request: Request) -> Response:
        asked = _asked(request)
        kind = asked.get("kind")
        if not isinstance(kind, str) or kind not in tasks.KINDS:
            raise InputError(
                f"kind should be one of {', '.join(tasks.KINDS)}; found {str(kind)[:80]!r}"
            )
        job = self.turns.take(tasks.KINDS[kind](self.session, asked))
        return _json({"job": _told(self.turns.standing(job.id))}, 202)

    def _watched(self, request: Request) -> Response:
        since = request.query.get("since", "")
        is_version = since.isdecimal() and len(since) < _MAX_VERSION_DIGITS
        version, jobs = self.turns.watch(int(since) if is_version else 0, _WATCH_SECONDS)
        return _json({"version": version, "jobs": [_told(standing) for standing in jobs]})

    def _answer_of(self, name: str) -> Response:
        standing = self.turns.standing(name)
        answer = standing.job.answer
        return _json(
            {
                **_told(standing),
                "answer": {"file": True} if isinstance(answer, saving.SavedFile) else answer,
            }
        )


def _told(standing: QueuePosition) -> JsonObject:
    """How a request stands, without its answer."""
    job = standing.job
    told = {
        "id": job.id,
        "state": job.state,
        "note": job.note,
        "done": job.done,
        "total": job.total,
    }
    return {**told, "before": standing.before, "seconds": round(job.seconds, 3)}


@lru_cache(maxsize=32)
def _static(name: str) -> str | None:
    """Text of one of the page's files, or None for any other name."""
    if name == "colors.js":
        return share_colors()
    if name in ("maps.js", "tables.js", "page.css"):
        return read_template(name)
    if name in ("explanation.js", "explanation.css"):
        return view_file(name)
    if name in _FILES:
        return (_STATIC / name).read_text(encoding="utf-8")
    return None


def _file(name: str) -> Response:
    text = _static(name)
    if text is None:
        return error_response(404, "there is nothing at this address")
    return Response(text.encode(), _KINDS[Path(name).suffix])


def _asked(request: Request) -> Mapping[str, Json]:
    return json_fields(parse_json(request.body.decode("utf-8", "replace"), where="the request"))


def _json(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content, ensure_ascii=True).encode(), status=status)


def error_response(status: int, reason: str) -> Response:
    """An answer that says what is wrong."""
    return _json({"error": reason}, status)


def _saved_file(job: QueuedRequest) -> Response:
    if not isinstance(job.answer, saving.SavedFile):
        raise InputError(str(job.answer) if job.state == "failed" else "this request has no file")
    return _download(job.answer)


def _download(file: saving.SavedFile) -> Response:
    disposition = f"attachment; filename*=UTF-8''{urllib.parse.quote(file.name, safe='')}"
    return Response(file.content, file.kind, headers={"Content-Disposition": disposition})
