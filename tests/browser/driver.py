"""A headless Chromium through chromedriver, spoken to with the standard library (W3C WebDriver)."""

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
KEYS = {"left": "\ue012", "right": "\ue014", "home": "\ue011", "end": "\ue010", "escape": "\ue00c", "space": " "}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_WAIT_S = 30.0
_ATTEMPTS = 5
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
NEEDED = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and CHROMEDRIVER),
        reason="no chromium and chromedriver here (apt-get install chromium chromium-driver)",
    ),
]


class Driver:
    """A chromedriver on a port of its own choice; ends with `close`."""

    def __init__(self, program: str) -> None:
        for _ in range(_ATTEMPTS):
            self._process = subprocess.Popen(
                [program, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if port := self._port():
                break
        else:
            raise RuntimeError("chromedriver did not start")
        self.address = f"http://127.0.0.1:{port}"
        threading.Thread(target=self._drain, daemon=True).start()  # a full pipe would stop it

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(_WAIT_S)
        self._process.stdout.close()

    def _port(self) -> str:
        for line in self._process.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                return found.group(1)
        self.close()  # it has ended: another may have taken one of its two ports, of IPv4 and IPv6, in between
        return ""

    def _drain(self) -> None:
        try:
            for _ in self._process.stdout:
                pass
        except ValueError:  # closed
            pass


class Browser:
    """One session with a profile of its own. Its logs list requests to the network and messages on the console."""

    def __init__(self, driver: Driver, binary: str, profile: Path) -> None:
        options = {
            "binary": binary,
            "args": [*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,1400"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
        self._session = f"{driver.address}/session"
        made = self._send("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._session += f"/{made['sessionId']}"

    def close(self) -> None:
        self._send("DELETE", "")

    def open(self, address: str) -> None:
        """Go there and wait until all of it is read; a busy machine's driver answers before that."""
        self.run("window.left = true")  # the same address may be the page of before
        self._send("POST", "/url", {"url": address})
        self.wait(lambda: self.run("return document.readyState === 'complete' && !window.left"))

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a function body in the page."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, query: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", query)

    def keys(self, query: str, *names: str) -> None:
        """Press keys on an element, as a person would."""
        found = self._send("POST", "/element", {"using": "css selector", "value": query})[_ELEMENT]
        self._send("POST", f"/element/{found}/value", {"text": "".join(KEYS[name] for name in names)})

    def click(self, query: str) -> None:
        found = self._send("POST", "/element", {"using": "css selector", "value": query})[_ELEMENT]
        self._send("POST", f"/element/{found}/click", {})

    def choose(self, query: str, file: Path) -> None:
        """Choose a file in an input of files, as its dialog does."""
        element = self._send("POST", "/element", {"using": "css selector", "value": query})[_ELEMENT]
        self._send("POST", f"/element/{element}/value", {"text": str(file)})

    def command(self, name: str, **parameters: Any) -> Any:
        """One command of the DevTools protocol."""
        return self._send("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def set_scheme(self, scheme: str) -> None:
        """Prefer the colour scheme `light` or `dark`."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    @contextmanager
    def screen(self, width: int) -> Iterator[None]:
        """A screen of this width; below 500 px, that of a telephone."""
        size = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        try:
            yield
        finally:
            self.command("Emulation.clearDeviceMetricsOverride")

    def alert_is_open(self) -> bool:
        try:
            self._send("GET", "/alert/text")
        except urllib.error.HTTPError:
            return False
        return True

    def requests(self) -> list[str]:
        """Addresses asked for since the last call, without embedded data and the browser's own first page."""
        entries = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        sent = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
        return [address for address in sent if not address.startswith(("data:", "chrome"))]

    def complaints(self) -> list[str]:
        """What the console said since the last call."""
        return [entry["message"] for entry in self._log("browser")]

    def wait(self, condition: Callable[[], Any]) -> Any:
        """Until it is true; raises after half a minute."""
        end = time.monotonic() + _WAIT_S
        while not (value := condition()):
            if time.monotonic() > end:
                raise TimeoutError("the page did not come to what was expected")
            time.sleep(0.1)
        return value

    def _log(self, kind: str) -> list[dict]:
        return self._send("POST", "/se/log", {"type": kind})

    def _send(self, method: str, path: str, body: dict | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self._session + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=_WAIT_S * 2) as answer:
            return json.loads(answer.read())["value"]
