"""One browser for the tests of a file."""

from __future__ import annotations

import pytest

from tests.browser.driver import CHROMEDRIVER, CHROMIUM, Browser, Driver


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = Driver(CHROMEDRIVER)
    try:
        browser = Browser(driver, CHROMIUM, tmp_path_factory.mktemp("profile"))
        yield browser
        browser.close()
    finally:
        driver.close()
