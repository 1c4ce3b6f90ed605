"""One browser for all tests here, and the page of their `run` in it."""

import pytest

from paragan.report.page import Page
from tests.browser.driver import CHROMEDRIVER, CHROMIUM, Browser, Driver


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    driver = Driver(CHROMEDRIVER)
    try:
        browser = Browser(driver, CHROMIUM, tmp_path_factory.mktemp("profile"))
        yield browser
        browser.close()
    finally:
        driver.close()


@pytest.fixture
def page(browser, run):
    """The page of a run, opened from a file: it requests nothing else, and the console stays empty."""
    yield from opened(browser, Page(run).save())


def opened(browser, file):
    browser.requests(), browser.complaints()
    browser.open(file.as_uri())
    yield browser
    assert browser.requests() == [file.as_uri()]
    assert browser.complaints() == []
    assert not browser.alert_is_open()
