"""Draw docs/review.png: the review app at work on the demo. Run after `make demo`.

A copy of the demo's audit is reviewed, so that no verdict stays in it.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

AUDIT = Path("demo/audit")
PICTURE = Path(__file__).with_name("review.png")
WIDTH, HEIGHT, COLOURS = 1200, 800, 160
JUDGED, SHOWN = 12, "coffee/0007.jpg"


def main() -> None:
    """Write the picture, with few colours so that it is small."""
    browser_path = shutil.which("chromium") or sys.exit("no chromium on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(AUDIT, Path(folder) / "audit")
        command = [sys.executable, "-m", "visleak", "review", str(copy), "--no-browser"]
        server = subprocess.Popen(
            [*command, "--reviewer", "Ada"], stdout=subprocess.PIPE, text=True
        )
        try:
            link = next(found for line in server.stdout if (found := re.search(r"http\S+", line)))
            shot = screenshot(browser_path, link[0])
        finally:
            server.terminate()
            server.wait()
    small = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {small.width} x {small.height}, {PICTURE.stat().st_size:,} bytes")


def screenshot(browser_path: str, link: str) -> bytes:
    """Judge some pairs and return a picture of the window."""
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=browser_path, args=arguments)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(link)
        for _ in range(JUDGED):
            page.keyboard.press("2")
            page.wait_for_timeout(300)
        while SHOWN not in page.inner_text(".facts"):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(150)
        page.wait_for_timeout(2000)
        shot = page.screenshot()
        browser.close()
    return shot


if __name__ == "__main__":
    main()
