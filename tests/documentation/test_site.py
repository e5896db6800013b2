"""The documentation site in Chromium: navigation, search and API reference, narrow and dark too."""

import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import open_browser

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, *_):
        """Ignore the request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site once, serve it on loopback, and return its address."""
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    command = [mkdocs, "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    handler = functools.partial(SilentHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


@pytest.fixture(params=["light", "dark"])
def browser(request, tmp_path):
    """A browser that prefers one of the two colour schemes."""
    with open_browser(tmp_path / "profile") as driver:
        scheme = {"name": "prefers-color-scheme", "value": request.param}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.scheme = request.param
        yield driver


@pytest.mark.long
@pytest.mark.parametrize("width", [1200, 400])
def test_a_reader_finds_ttl_and_value_state(site, browser, width, tmp_path):
    """The search for TTL leads to a page about it, and the API page of ValueState is legible."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wait = WebDriverWait(browser, PATIENCE_S)
    browser.get(site)
    body = browser.find_element(By.TAG_NAME, "body")
    scheme = {"light": "default", "dark": "slate"}[browser.scheme]
    wait.until(lambda _: body.get_attribute("data-md-color-scheme") == scheme)
    check_page(browser, tmp_path / "start.png")

    opener = browser.find_element(By.CSS_SELECTOR, "label.md-header__button[for=__search]")
    if opener.is_displayed():
        opener.click()
    field = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
    wait.until(lambda _: field.is_displayed())
    field.send_keys("TTL")
    results = wait.until(
        lambda driver: [
            link
            for link in driver.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
            if link.is_displayed() and "ttl" in link.text.lower()
        ]
    )
    browser.save_screenshot(str(tmp_path / "search.png"))
    browser.get(results[0].get_attribute("href"))
    assert "TTL" in browser.find_element(By.CSS_SELECTOR, "article").text
    check_page(browser, tmp_path / "result.png")

    browser.get(site.replace("index.html", "reference/api/states.html"))
    heading = browser.find_element(By.ID, "millpond.state.ValueState")
    article = browser.find_element(By.CSS_SELECTOR, "article").text
    assert "ValueState" in heading.text
    assert "update" in article
    assert "clear" in article
    check_page(browser, tmp_path / "api.png")
    assert browser.get_log("browser") == []


def check_page(browser, screenshot):
    """Save a screenshot; assert that the page fits the window and that its text is legible."""
    browser.save_screenshot(str(screenshot))
    overflow = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
    text, ground = (
        browser.execute_script(
            "const style = getComputedStyle(document.body); const canvas ="
            " new OffscreenCanvas(1, 1).getContext('2d'); canvas.fillStyle = style[arguments[0]];"
            " canvas.fillRect(0, 0, 1, 1); return Array.from(canvas.getImageData(0, 0, 1, 1).data)",
            name,
        )
        for name in ("color", "backgroundColor")
    )
    assert abs(sum(text[:3]) - sum(ground[:3])) > 300
