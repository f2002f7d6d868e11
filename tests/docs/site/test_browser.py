"""Every page in a real browser: no errors in its console, no failed request, nothing too wide.

It needs Chromium with its driver, and Selenium: `pip install -e '.[browser]'`. CI has neither;
there, the tests of links are what holds.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("no Chromium with chromedriver on this machine", allow_module_level=True)
webdriver = pytest.importorskip("selenium.webdriver", reason="pip install -e '.[browser]'")

from selenium.webdriver.chrome.service import Service  # noqa: E402

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
).split()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.get("about:blank")
    for kind in ("browser", "performance"):  # what its own first page asked for
        driver.get_log(kind)
    yield driver
    driver.quit()


def resize(browser: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def faults(browser: Any, address: str) -> list[str]:
    """What went wrong since the last look: messages of the console, requests that failed."""
    found = [f"console: {entry['message']}" for entry in browser.get_log("browser")]
    for entry in browser.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        values = event["params"]
        if event["method"] == "Network.requestWillBeSent":
            url = values["request"]["url"]
            if not url.startswith((address, "data:", "blob:")):
                found.append(f"asks elsewhere: {url}")
        elif event["method"] == "Network.responseReceived":
            if values["response"]["status"] >= 400:
                found.append(f"{values['response']['status']}: {values['response']['url']}")
        elif event["method"] == "Network.loadingFailed" and not values.get("canceled"):
            found.append(f"failed: {values['errorText']}")
    return found


def pages_of(site: Path) -> list[str]:
    return sorted(
        file.relative_to(site).as_posix().removesuffix("index.html")
        for file in site.rglob("index.html")
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page(browser: Any, site: Path, address: str, width: int) -> None:
    resize(browser, width)
    found = {}
    for page in pages_of(site):
        browser.get(address + page)
        problems = faults(browser, address)
        wide, room = browser.execute_script(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        if wide > room:
            problems.append(f"{wide} px wide in a window of {room}")
        if problems:
            found[page] = problems
    assert found == {}


def test_faults_are_seen(browser: Any, site: Path, address: str) -> None:
    (site / "faulty.html").write_text(
        "<!doctype html><script>console.error('wrong')</script><img src='missing.png'>"
        "<div style='width: 3000px'>wide</div>",
        encoding="utf-8",
    )
    resize(browser, 390)
    faults(browser, address)
    browser.get(address + "faulty.html")
    text = "\n".join(faults(browser, address))
    (site / "faulty.html").unlink()
    assert "wrong" in text
    assert "404" in text
    assert browser.execute_script("return document.documentElement.scrollWidth") > 390


def test_landing_page_fits_one_screen(browser: Any, address: str) -> None:
    """Why and how to start are there without scrolling, at 1280 by 800."""
    resize(browser, 1280)
    browser.get(address)
    bottom = browser.execute_script(
        "return Math.max(...[...document.querySelectorAll('.start, .md-button')]"
        ".map(one => one.getBoundingClientRect().bottom))"
    )
    assert 0 < bottom <= 800


def test_search_finds_an_op(browser: Any, address: str) -> None:
    resize(browser, 1280)
    browser.get(address)
    field = browser.find_element("css selector", "[data-md-component=search-query]")
    field.send_keys("scatter_add")
    ending = time.monotonic() + 60
    count = 0
    while not count and time.monotonic() < ending:
        time.sleep(0.2)
        count = browser.execute_script(
            "return document.querySelectorAll('.md-search-result__item').length"
        )
    assert count > 0
    assert faults(browser, address) == []
