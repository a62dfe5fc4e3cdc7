"""Draw docs/terminal.png: the summary of the demo's audit on a terminal. Run after `make demo`.

Without the line of the time, which is that of one machine at one load.
"""

import io
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

COMMAND = ["visleak", "audit", "demo/"]
PICTURE = Path(__file__).with_name("terminal.png")
WIDTH, SCALE, COLOURS = 100, 1.5, 64


def printed() -> str:
    """Return what the command writes to a terminal; the audit that is there is reused."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-m", *COMMAND, "-o", "demo/audit"]
    subprocess.run(command, check=True, env=environment, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    found = bytearray()
    try:
        while part := os.read(ours, 65_536):
            found += part
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    lines = found.decode().replace("\r", "").splitlines()
    return "\n".join(line for line in lines if "images" not in line or " s for " not in line)


def main() -> None:
    """Write the picture, with few colours so that it is small."""
    browser_path = shutil.which("chromium") or sys.exit("no chromium on the PATH")
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "green"), (" ".join(COMMAND), "bold")))
    console.print(Text.from_ansi(printed().replace("demo/audit", "visleak-audit").rstrip()))
    drawing = console.export_svg(title="visleak")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(device_scale_factor=SCALE)
        page.set_content(f"<body style='margin:0;width:960px'>{drawing}</body>")
        shot = page.locator("svg").screenshot(omit_background=True)
        browser.close()
    small = Image.open(io.BytesIO(shot)).quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {small.width} x {small.height}, {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
