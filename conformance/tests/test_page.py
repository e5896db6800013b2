"""The HTML page of reports in Chromium."""

import attrs
import pytest
from millpond_conformance.page import write_page
from millpond_conformance.report import Verdict
from millpond_conformance.specification import CHAPTERS, all_clauses
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conformance.tests.reports import report
from tests.browser import open_browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Return a browser without a window."""
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def page(browser, tmp_path):
    """The page of a correct backend and of a failing one, with text that contains tags."""
    path = tmp_path / "index.html"
    program = "state = BackendMachine()\nstate.<update>(key='')"
    bad = report("<mine>", program=program, V2=Verdict.FAIL, R8=Verdict.FAIL, M1=None)
    write_page(path, [report("heap"), bad])
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    return browser


def texts(elements):
    """Return the visible text of some elements."""
    return [element.text for element in elements]


def test_the_matrix_can_be_read(page):
    """Each chapter is a row and each backend a column; the cells contain counts and verdicts.

    A chapter with a clause that has not run is INCOMPLETE.
    """
    rows = page.find_elements(By.CSS_SELECTOR, "#matrix tr")
    assert texts(rows[0].find_elements(By.TAG_NAME, "th")) == ["", "heap", "<mine>"]
    found = {}
    for row in rows[1:]:
        found[row.find_element(By.TAG_NAME, "th").text] = texts(
            row.find_elements(By.TAG_NAME, "td")
        )
    assert list(found) == [*CHAPTERS.values(), "Verdict"]
    count = sum(clause.number[0] == "V" for clause in all_clauses())
    assert found["Values and keys"] == [f"{count}/{count}", f"{count - 1}/{count}"]
    cell = page.find_elements(By.XPATH, "//table[@id='matrix']//tr[th='Timers']/td")[1]
    assert cell.get_attribute("class") == "INCOMPLETE"
    assert "PASS" in found["Verdict"][0]
    assert "FAIL" in found["Verdict"][1]
    assert page.get_log("browser") == []


def test_failures_and_programs_are_text(page):
    """A failure shows its clause's promise and its shrunk program; no text of it becomes a tag."""
    shown = page.find_element(By.TAG_NAME, "body").text
    (promise,) = (clause.promise for clause in all_clauses() if clause.number == "V2")
    assert f"V2 FAIL {promise}" in shown
    assert "state.<update>(key='')" in shown
    assert page.find_elements(By.TAG_NAME, "update") == []


def test_reports_of_one_backend_are_told_apart(browser, tmp_path):
    """Columns of one backend show the difference or a number, and link to the report."""
    path = tmp_path / "index.html"
    wrapped = attrs.evolve(report("mine"), wrapped="both", seed=7)
    write_page(path, [report("mine"), wrapped, report("mine"), report("heap")])
    browser.get(path.as_uri())
    heads = [
        "mine, seed 0, report 1",
        "mine, wrapped both, seed 7",
        "mine, seed 0, report 2",
        "heap",
    ]
    cells = browser.find_elements(By.CSS_SELECTOR, "#matrix th[scope=col]")
    assert texts(cells) == heads
    assert texts(browser.find_elements(By.TAG_NAME, "h2"))[:-1] == heads
    cells[1].find_element(By.TAG_NAME, "a").click()
    targets = WebDriverWait(browser, 30).until(
        lambda driver: driver.find_elements(By.CSS_SELECTOR, ":target")
    )
    assert texts(targets) == [heads[1]]


def test_a_chapter_opens_from_the_matrix(page):
    """A click on a chapter shows its clauses with the verdict of each backend."""
    table = page.find_element(By.CSS_SELECTOR, "#V table")
    assert not table.is_displayed()
    page.find_element(By.CSS_SELECTOR, '#matrix a[href="#V"]').click()
    # The page opens the chapter in an event that follows the click shortly after.
    WebDriverWait(page, 30).until(lambda _: table.is_displayed())
    (row,) = (r for r in table.find_elements(By.TAG_NAME, "tr") if r.text.startswith("V2 "))
    cells = texts(row.find_elements(By.TAG_NAME, "td"))
    assert [cell.split()[0] for cell in cells[1:]] == ["PASS", "FAIL"]


@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_fits_the_window(page, width):
    """No element is wider than the window; verdicts have different colours."""
    page.set_window_size(width, 900)
    wide = page.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    colours = {
        page.find_element(By.CSS_SELECTOR, f"td.{verdict}").value_of_css_property("color")
        for verdict in ("PASS", "FAIL")
    }
    assert len(colours) == 2
