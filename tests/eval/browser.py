"""Minimal client of chromedriver (W3C WebDriver over HTTP) for tests of pages in Chromium."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

MARKUP = '<script>alert("x")</script><img src=x onerror=alert(1)>'
"""Name that must be shown as text."""
WINDOWS = [(375, False), (375, True), (1440, False), (1440, True)]
"""Width, and whether the theme is dark."""

_KEYS = {
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "PageUp": "\ue00e",
    "PageDown": "\ue00f",
    "End": "\ue010",
    "Home": "\ue011",
    "Enter": "\ue007",
    "Tab": "\ue004",
    "Shift": "\ue008",
}
_PATIENCE_S = 30.0


class Browser:
    """Headless Chromium behind chromedriver; a context manager.

    Tests that need it skip when either program is missing.
    """

    def __init__(self) -> None:
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
        driver = shutil.which("chromedriver")
        if chromium is None or driver is None:
            pytest.skip("no Chromium: needs the programs `chromium` and `chromedriver`")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._root = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        try:
            self._wait_for_driver()
            session = self._call(
                "POST", "/session", {"capabilities": {"alwaysMatch": capabilities}}
            )
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._session = f"/session/{session['sessionId']}"

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._call("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait()

    def open(self, path: Path, *, width: int, height: int = 900, is_dark: bool = False) -> None:
        """Open a file in a window of that many CSS pixels."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._command("POST", "/url", {"url": path.resolve().as_uri()})

    def run(self, body: str) -> Any:
        """Run the body of a JavaScript function and return what it returns."""
        return self._command("POST", "/execute/sync", {"script": body, "args": []})

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true.

        Raises:
            TimeoutError: it stays false.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while not self.run(f"return {condition}"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never became true: {condition}")
            time.sleep(0.02)

    def press(self, *names: str, with_shift: bool = False) -> None:
        """Press and release keys, one after another: a character, or a name such as `PageUp`."""
        strokes: list[dict[str, str]] = []
        for name in names:
            value = _KEYS.get(name, name)
            strokes += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        if with_shift:
            shift = _KEYS["Shift"]
            down, up = {"type": "keyDown", "value": shift}, {"type": "keyUp", "value": shift}
            strokes = [down, *strokes, up]
        actions = [{"type": "key", "id": "keyboard", "actions": strokes}]
        self._command("POST", "/actions", {"actions": actions})

    def problems(self) -> list[str]:
        """Errors and warnings that the console got since the last call."""
        entries = self._command("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def overflow(self) -> int:
        """CSS pixels by which the page is wider than its window."""
        width: int = self.run(
            "const e = document.documentElement;"
            "return Math.max(e.scrollWidth, document.body.scrollWidth) - e.clientWidth"
        )
        return width

    def screenshot(self, path: Path, *, is_whole: bool = False) -> None:
        """Write the window, or the whole page, as PNG."""
        shot = self._devtools("Page.captureScreenshot", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _devtools(self, command: str, **parameters: Any) -> Any:
        return self._command("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _command(self, method: str, path: str, body: dict[str, Any]) -> Any:
        return self._call(method, self._session + path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self._root + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    def _wait_for_driver(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._call("GET", "/status")
                return
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def position(browser: Browser) -> int:
    """Return the position of the slider of a page."""
    return int(browser.run("return document.getElementById('slider').value"))


def check_window(browser: Browser, page: Path, *, width: int, is_dark: bool) -> None:
    """Check that a page fits its window, follows the theme, and shows `MARKUP` as text."""
    browser.open(page, width=width, is_dark=is_dark)
    assert browser.problems() == []
    assert browser.overflow() == 0
    assert browser.run("return document.documentElement.dataset.theme") == (
        "dark" if is_dark else "light"
    )
    assert browser.run("return document.images.length") == 0
    assert MARKUP in browser.run("return document.body.textContent")
