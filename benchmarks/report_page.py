"""The report of an audit in a browser: size, response time, and violations found by axe-core.

    python benchmarks/report_page.py AUDIT [--browser /usr/bin/chromium]

The response time is the time from the start of navigation until a filter of the list of pairs,
typed as soon as the page is loaded, has changed the number of pairs shown: the median of RUNS new
pages, with the file on disk. The processor time of the page's thread, which does not depend on
other work on the machine, is reported as well.
"""

import argparse
import statistics
import time
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright
from record import Bar, write

from visleak.auditing import Audit

RUNS = 5
WIDTHS = (1280, 768, 390)
SCHEMES = ("light", "dark")


def seconds(browser: Browser, address: str) -> tuple[float, float, float]:
    """Return the seconds until the page was parsed and its filter responded, and of processor."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    begun = time.perf_counter()
    page.goto(address, wait_until="domcontentloaded")
    parsed = time.perf_counter() - begun
    before = page.text_content("#count")
    page.fill("[name=text]", "12")
    page.wait_for_function(
        "was => document.querySelector('#count').textContent !== was", arg=before
    )
    answered = time.perf_counter() - begun
    metrics = tools.send("Performance.getMetrics")["metrics"]
    used = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
    page.close()
    return parsed, answered, used


def violations(browser: Browser, address: str, width: int, scheme: str) -> list[str]:
    """Return the rules of axe-core that a page breaks, and how often."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(address, wait_until="load")
    found = Axe().run(page).response["violations"]
    page.close()
    return [f"{each['id']} ({len(each['nodes'])})" for each in found]


def main() -> None:
    """Measure the report of an audit, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("audit", type=Path)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    report = Audit(arguments.audit).report()
    address = report.resolve().as_uri()
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=arguments.browser, args=["--no-sandbox", "--disable-gpu"]
        )
        runs = [seconds(browser, address) for _ in range(RUNS)]
        broken = {
            f"{width} px, {scheme}": violations(browser, address, width, scheme)
            for width in WIDTHS
            for scheme in SCHEMES
        }
        version = browser.version
        browser.close()
    parsed, answered, used = (statistics.median(column) for column in zip(*runs, strict=True))
    size = report.stat().st_size
    bars = [
        Bar("report, MB", size / 1e6, 5.0),
        Bar("seconds until a filter has answered", answered, 1.0),
        Bar("rules of axe-core that are broken", sum(map(len, broken.values())), 0),
    ]
    figures = {
        "audit": Audit(arguments.audit).headline,
        "chromium": version,
        "seconds_parsed": parsed,
        "seconds_answered": sorted(answered for _, answered, _ in runs),
        "processor_seconds": used,
        "axe": broken,
    }
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
