"""A headless Chromium, driven over a pipe.

The DevTools protocol also comes over a pair of pipes (--remote-debugging-pipe), where messages end in a zero byte. So no
library, no port and no driver of a matching version is needed: Python's own modules do.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]


def find():
    """The path of a Chromium, or None. $CHROMIUM goes before all others."""
    wanted = os.environ.get("CHROMIUM")
    for name in [wanted] if wanted else NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """One browser with one page. Use it in a `with`."""

    def __init__(self, path, profile):
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def wire():
            # The browser reads from 3 and writes to 4. Copies first: 3 and 4 may be ends of these very pipes.
            a, b = os.dup(to_browser), os.dup(from_browser)
            a, b = (os.dup(a), os.dup(b)) if {a, b} & {3, 4} else (a, b)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [path, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
             "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.events = []
        self.number = 0
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The process alone, which ends its own children.
        os.close(self.out)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.into)

    def call(self, method, **parameters):
        """Asks for something and returns the answer; events that come in between are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self.message(deadline)
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def message(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, deadline - time.monotonic()))[0]:
                raise RuntimeError("the browser does not answer")
            read = os.read(self.into, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
            self.buffer += read
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def open(self, path, width=1280, height=900, dark=False):
        """Loads a file and returns what went wrong meanwhile, as texts."""
        self.look(width, height, dark)
        self.events.clear()
        self.call("Page.navigate", url=f"file://{path}")
        deadline = time.monotonic() + 60
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message(deadline))
        # Two frames: what the page draws when it is laid out has been drawn.
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        return self.faults(f"file://{path}")

    def faults(self, url):
        """Exceptions, messages of the console, refusals of the policy, and everything that was fetched beside `url`."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif method == "Runtime.consoleAPICalled":
                found.append(f"console.{params['type']}: {[a.get('value') for a in params['args']]}")
            elif method == "Log.entryAdded":
                found.append(f"{params['entry']['level']}: {params['entry']['text']}")
            elif method == "Network.requestWillBeSent" and params["request"]["url"] != url:
                found.append(f"fetched {params['request']['url'][:120]}")
        return found

    def look(self, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def js(self, expression):
        """The value of an expression in the page; waits for it if it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def click(self, selector):
        """A real click of the mouse in the middle of an element."""
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x, y):
        """The pointer to a place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, from_x, to_x, y):
        """The pointer with its button held from one place to another."""
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=from_x, y=y, button="left", clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=(from_x + to_x) / 2, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=y, button="left", clickCount=1)

    def press(self, key, code, text=None):
        """A key, as a keyboard sends it to what has the focus."""
        names = {"key": key, "code": key if len(key) > 1 else None, "windowsVirtualKeyCode": code, "text": text}
        names = {name: value for name, value in names.items() if value is not None}
        self.call("Input.dispatchKeyEvent", type="keyDown", **names)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{n: v for n, v in names.items() if n != "text"})

    def screenshot(self, path):
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path):
        """What a printer would get."""
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        path.write_bytes(base64.b64decode(printed["data"]))
