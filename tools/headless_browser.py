"""Chromium without a window, for tests and pictures of pages: one process, and one profile for each page opened.

It is told what to do over the Chrome DevTools Protocol (https://chromedevtools.github.io/devtools-protocol/) on
loopback. A page keeps what tests ask for afterwards: every request it made, what its console said, and what its
security policy refused.
"""

import asyncio
import base64
import itertools
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp

ANSWER_SECONDS: Final = 60
Scheme = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")

# Not sandboxed, since that cannot be had as root in a container, and these pages are our own. Nothing here may reach
# for a network by itself.
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class PageError(Exception):
    """What the browser or a script in the page answered instead of a value."""


class Page:
    """One tab in a profile of its own."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._requests: dict[str, str] = {}
        self.console: list[str] = []
        """Errors, warnings, exceptions that nobody caught, refusals of the content security policy."""

    @property
    def requests(self) -> list[str]:
        """URLs that it asked for, in order; without those that its security policy kept it from asking for."""
        return list(self._requests.values())

    async def send(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._waiting[number]
        finally:
            del self._waiting[number]

    async def open(self, path: Path, *, fragment: str = "", scheme: Scheme = "light", script: bool = True) -> None:
        """Load a file, until all of it is there."""
        await self.scheme(scheme)
        await self.send("Emulation.setScriptExecutionDisabled", value=not script)
        await self.go(f"{path.as_uri()}{fragment}")

    async def go(self, url: str) -> None:
        self._loaded.clear()
        answer = await self.send("Page.navigate", url=url)
        if answer.get("loaderId"):  # none where only the fragment is another one
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._loaded.wait()

    async def scheme(self, scheme: Scheme) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", media="", features=features)

    async def printing(self) -> None:
        await self.send("Emulation.setEmulatedMedia", media="print", features=[])

    async def size(self, width: int, height: int) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def value(self, expression: str) -> Any:
        """What an expression is in the page; a promise's value once it has one."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if thrown := answer.get("exceptionDetails"):
            raise PageError(json.dumps(thrown.get("exception", thrown)))
        return answer["result"].get("value")

    async def seen(self, *selectors: str) -> dict[str, int]:
        """How many elements of each kind are displayed, wherever on the page."""
        found = await self.send(
            "Runtime.evaluate",
            expression=f"{json.dumps(selectors)}.map((each) => [...document.querySelectorAll(each)]"
            ".filter((element) => element.getClientRects().length).length)",
            returnByValue=True,
        )
        return dict(zip(selectors, found["result"]["value"], strict=True))

    async def press(self, key: str, *, code: int = 0, shift: bool = False) -> None:
        """One key, as a keyboard sends it, with its Windows virtual key code; a single character types itself."""
        text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
        shown = " " if key == "Space" else key
        event = {"key": shown, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        await self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def tab(self, *, back: bool = False) -> None:
        await self.press("Tab", code=9, shift=back)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """What is seen, as PNG."""
        answer = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        return base64.b64decode(answer["data"])

    async def cpu_seconds(self) -> float:
        """CPU time of the page's process since it began, whatever else the machine does."""
        answer = await self.send("Performance.getMetrics")
        return float(next(each["value"] for each in answer["metrics"] if each["name"] == "ProcessTime"))

    def take(self, message: dict[str, Any]) -> None:
        """One message of the browser about this page."""
        parameters = message.get("params", {})
        match message.get("method"):
            case None:
                self._answered(message)
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self._requests[parameters["requestId"]] = parameters["request"]["url"]
            case "Network.loadingFailed" if parameters.get("blockedReason") == "csp":
                del self._requests[parameters["requestId"]]
            case "Log.entryAdded":
                self.console.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.console.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.console.append(json.dumps(parameters["args"]))

    def _answered(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.get(message["id"])
        if waiting is None or waiting.done():
            return
        if error := message.get("error"):
            waiting.set_exception(PageError(error["message"]))
        else:
            waiting.set_result(message["result"])


@contextmanager
def running(program: str, profile: Path) -> Iterator[str]:
    """A browser, for as long as the block lasts; yields the address at which it is told what to do."""
    arguments = [program, *ARGUMENTS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    said = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if line.startswith("DevTools listening on "):
                break
        else:
            raise PageError(f"{program} ended with {process.wait()} before it could be told anything: {''.join(said)}")
        process.stderr.close()
        yield line.removeprefix("DevTools listening on ").strip()
    finally:
        with suppress(ProcessLookupError):  # and with it those that it started: its session is its own
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@asynccontextmanager
async def page_of(address: str) -> AsyncIterator[Page]:
    """A new page in a new profile of a running browser; both are gone after the block."""
    async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
        browser = Page(socket, "")
        pages = {"": browser}

        async def listen() -> None:
            async for message in socket:
                data = json.loads(message.data)
                if taken := pages.get(data.get("sessionId", "")):
                    taken.take(data)

        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(listen())
            profile = (await browser.send("Target.createBrowserContext"))["browserContextId"]
            target = (await browser.send("Target.createTarget", url="about:blank", browserContextId=profile))[
                "targetId"
            ]
            attached = await browser.send("Target.attachToTarget", targetId=target, flatten=True)
            page = pages[attached["sessionId"]] = Page(socket, attached["sessionId"])
            for part in ("Page", "Runtime", "Network", "Log", "Performance"):
                await page.send(f"{part}.enable")
            try:
                yield page
            finally:
                await browser.send("Target.disposeBrowserContext", browserContextId=profile)
                listener.cancel()
