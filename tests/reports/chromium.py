"""A headless Chromium without any package: the DevTools protocol over a pair of pipes.

`Browser.open(page)` loads a file or an address, `evaluate` runs JavaScript in it (promises are
awaited), `click`, `press`, `drag`, `type` and `upload` send real input, `screenshot` takes a
picture; `messages` holds what the console said. Tests that need it are skipped where there is none.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

EXECUTABLE = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
_SECONDS = 60
_KEYS = {
    "Enter": 13,
    "Tab": 9,
    " ": 32,
    "ArrowRight": 39,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    "PageUp": 33,
    "PageDown": 34,
}


class Browser:
    """Context manager: one browser with one page."""

    def __init__(
        self, width: int = 1280, height: int = 900, *, dark: bool = False, flags: Sequence[str] = ()
    ):
        self._size, self._dark, self._number, self._buffer = (width, height), dark, 0, b""
        self._flags = flags
        self.messages: list[str] = []

    def __enter__(self) -> Browser:
        self._folder = tempfile.mkdtemp()
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={self._folder}",
            "--hide-scrollbars",
            "--autoplay-policy=no-user-gesture-required",
            "--mute-audio",
            "--no-first-run",
            "--disable-dev-shm-usage",
            f"--window-size={self._size[0]},{self._size[1]}",
            *self._flags,
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # Chromium reads commands from file descriptor 3 and answers on 4.
        line = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, EXECUTABLE, *arguments],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.resize(*self._size)
        if self._dark:
            self._prefer("dark")
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):
            os.close(self._to)
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._from)
        shutil.rmtree(self._folder, ignore_errors=True)

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    @contextlib.contextmanager
    def seen(
        self, width: int = 1280, height: int = 900, *, dark: bool = False
    ) -> Iterator[Browser]:
        """On a screen of another size or colour scheme; opened pages see it from the beginning."""
        self.messages.clear()
        self.resize(width, height)
        self._prefer("dark" if dark else "light")
        try:
            yield self
        finally:
            self.resize(*self._size)
            self._prefer("dark" if self._dark else "light")

    def _prefer(self, scheme: str) -> None:
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def open(self, page: Path | str) -> None:
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self.send("Page.navigate", url=url)
        protocol = url.partition("//")[0]
        self.until(
            f"document.readyState === 'complete' && location.protocol === {json.dumps(protocol)}"
        )

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium went away")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        found = json.loads(line)
        self._note(found)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(one.get("value", one)) for one in params["args"]))
        elif event.get("method") == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif event.get("method") == "Page.javascriptDialogOpening":
            self.messages.append(f"dialog: {params['message']}")

    def evaluate(self, script: str) -> Any:
        found = self.send(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def until(self, condition: str, seconds: float = 20) -> None:
        """Wait until an expression holds."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never became true: {condition}")
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Click with the mouse on the middle of an element."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; "
            "})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key in what has the focus: "Enter", "Tab", "ArrowRight", " " and others of
        `_KEYS`."""
        text = {"text": {"Enter": "\r"}.get(key, key)} if key in ("Enter", " ") else {}
        event = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": _KEYS[key],
        }
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, modifiers=8 if shift else 0, **event, **text
            )

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.send("Input.insertText", text=text)

    def drag(self, selector: str, right: float) -> None:
        """Take the middle of an element with the mouse and put it so many pixels further right."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; "
            "})()"
        )
        for kind, x in (
            ("mousePressed", 0.0),
            ("mouseMoved", right / 2),
            ("mouseMoved", right),
            ("mouseReleased", right),
        ):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0] + x,
                y=place[1],
                button="left",
                buttons=1,
                clickCount=1,
            )

    def upload(self, selector: str, path: Path) -> None:
        """Choose a file in an input of files."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(
        self, path: Path, *, whole: bool = False, top: int = 0, height: int | None = None
    ) -> None:
        width = self.evaluate("innerWidth")
        clip = {}
        if height or whole:
            tall = height or self.evaluate("document.documentElement.scrollHeight")
            clip = {
                "clip": {"x": 0, "y": top, "width": width, "height": tall, "scale": 1},
                "captureBeyondViewport": True,
            }
        Path(path).write_bytes(
            base64.b64decode(self.send("Page.captureScreenshot", format="png", **clip)["data"])
        )
