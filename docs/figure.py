"""Draw docs/report.png: parts of the demo's report as a browser shows them. Run after `make demo`.

The strongest leaks, and some pairs of the gallery, one below the other.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

REPORT = Path("demo/audit/report.html")
PICTURE = Path(__file__).with_name("report.png")
WIDTH, GALLERY = 1280, 560
COLOURS = 256


def main() -> None:
    """Write the picture, with few colours so that it is small."""
    browser_path = shutil.which("chromium") or sys.exit("no chromium on the PATH")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(REPORT.resolve().as_uri())
        page.select_option("[name=kind]", "near")
        page.select_option("[name=sort]", "query")
        # pictures outside the window are not drawn: make the window as high as the page
        height = int(page.evaluate("document.documentElement.scrollHeight"))
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.wait_for_timeout(1000)
        numbers = page.locator("#numbers").bounding_box() or sys.exit("no numbers")
        gallery = page.locator("#controls").bounding_box() or sys.exit("no gallery")
        whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        browser.close()
    top, start = int(numbers["y"]), int(gallery["y"]) - 6
    both = Image.new("RGB", (WIDTH, top + GALLERY))
    both.paste(whole.crop((0, 0, WIDTH, top)), (0, 0))
    both.paste(whole.crop((0, start, WIDTH, start + GALLERY)), (0, top))
    small = both.quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {small.width} x {small.height}, {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
