# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven over its debugging pipe with nothing but Python's standard library.

    with browser.Browser() as chromium:
        page = chromium.open("report.html", width=1200, dark=False)
        page.evaluate("document.title")
        png = page.screenshot()
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60  # seconds for one answer


def find():
    """Chromium's path, or None. COMET_CHROMIUM names another one."""
    named = os.environ.get("COMET_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


class Failed(Exception):
    pass


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def evaluate(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failed(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def screenshot(self, clip=None):
        """A PNG of the whole page, or of `clip`: (x, y, width, height)."""
        if clip is None:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        area = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        answer = self.ask("Page.captureScreenshot", format="png", clip=area, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="comet_browser_")
        to_read, self.to_write = os.pipe()
        self.to_read, to_write = os.pipe()
        # No sandbox: root has none, and only pages of our own are opened. The pipe is at 3 and 4.
        command = [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                   "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
                   "--font-render-hinting=none", "--user-data-dir=" + self.folder.name, "about:blank"]
        # By way of two high numbers: 3 or 4 may be one of those that were given.
        shell = 'exec 100<&%d 101>&%d 3<&100 4>&101 100<&- 101>&-; exec "$@"' % (to_read, to_write)
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *command], pass_fds=(to_read, to_write),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=dict(os.environ, HOME=self.folder.name))
        os.close(to_read)
        os.close(to_write)
        self.pending, self.last, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        try:
            self.ask("Browser.close")
            self.process.wait(10)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to_write)
        os.close(self.to_read)
        self.folder.cleanup()

    def message(self, until):
        """The next message, or None at that time."""
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.to_read], [], [], max(0, until - time.monotonic()))
            if not ready:
                return None
            piece = os.read(self.to_read, 1 << 20)
            if not piece:
                raise Failed("the browser has ended")
            self.pending += piece
        text, self.pending = self.pending.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, session=None, **parameters):
        self.last += 1
        request = {"id": self.last, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self.to_write, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self.message(until)
            if answer is None:
                raise Failed("no answer to %s in %d s" % (method, PATIENCE))
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise Failed("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event, session):
        until = time.monotonic() + PATIENCE
        while True:
            for one in self.events:
                if one.get("method") == event and one.get("sessionId") == session:
                    self.events.clear()
                    return
            answer = self.message(until)
            if answer is None:
                raise Failed("no %s in %d s" % (event, PATIENCE))
            self.events.append(answer)

    def open(self, path, width=1200, height=800, dark=False, scale=1):
        """A file in a page so wide, by day or by night."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.ask("Page.enable")
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                 mobile=False)
        page.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        page.ask("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("Page.loadEventFired", session)
        return page
