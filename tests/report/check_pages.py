#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports in a browser: no two texts over each other, none cut off, contrast of at least 4.5 for all of them.

usage: check_pages.py COMET REPORT_PROBE [--screenshots FOLDER] [PAGE.html...]

Opens the reports of comet train, compare, plan, assess and sweep (of tiny trainings) and those of report_probe (made-up
figures) in Chromium, 1200 and 400 pixels wide, by day and by night; or the pages that are named. Before that a page
with one fault of each kind, so that it is known that faults are found. Ends with 1 where there are faults, with 77
where there is no Chromium (make browser-test installs it).
"""
import os
import subprocess
import sys
import tempfile

import browser

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTHS = (1200, 400)
TINY = ["--data", "generated:64", "--image", "16", "--batch", "8", "--threads", "2", "--quiet"]
REPORTS = {
    "train": ["train", "--model", "resnet8", *TINY, "--epochs", "3", "--checkpoint", "none"],
    "compare": ["compare", "--model", "resnet8", *TINY, "--steps", "6", "--seeds", "2", "--state", "none",
                "--variants", "none,eb,eb:0.3,pool:2,group:4"],
    "plan": ["plan", "--model", "resnet50", "--batch", "16", "--memory", "700MiB"],
    "assess": ["assess", "--model", "resnet8", *TINY, "--steps", "2", "--batches", "1"],
    "sweep": ["sweep", "--model", "resnet8", *TINY, "--steps", "2", "--seeds", "2", "--state", "none", "--layers",
              "conv1,layer1.*,fc"],
}
PROBED = ("ordinary", "odd", "long")
BROKEN = """<!DOCTYPE html><html><head><title>one fault of each kind</title><style>
:root{color-scheme:light dark} body{margin:10px;background:#fff;color:#000;width:300px}
.cut{width:60px;overflow:hidden;white-space:nowrap} .pale{color:#999} .up{margin-top:-14px}
@media (prefers-color-scheme:dark){.night{color:#ddd}}
</style></head><body><p>a text</p><p class="up" style="line-height:1;margin-top:-1.8rem">over a text</p>
<div class="cut">too long for its box</div><p class="pale">pale</p><p class="night">pale by night</p>
<svg width="300" height="60" viewBox="0 0 300 60"><rect width="300" height="60" fill="#333"/>
<text x="10" y="30" fill="#000">dark on dark</text><text x="150" y="30" fill="#fff">one</text>
<text x="155" y="32" fill="#fff">another</text></svg>
<p style="width:2000px">wide</p>
<p style="font-size:6px">small</p></body></html>"""
EXPECTED = {False: ["too wide", "overlap: 'a text' and 'over a text'", "overlap: 'one' and 'another'",
                    "cut off: 'too long for its box'", "contrast 2.85: 'pale'", "contrast 1.66: 'dark on dark'",
                    "6.0 pixels small"],
            True: ["contrast 1.36: 'pale by night'"]}


def make(comet, probe, folder):
    """Name -> path of each report."""
    made = {}
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    for name, words in REPORTS.items():
        made[name] = os.path.join(folder, name + ".html")
        done = subprocess.run([comet, *words, "--report", made[name]], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment, timeout=600, check=False)
        if done.returncode:
            sys.exit("comet %s: %s" % (" ".join(words), done.stderr.decode()))
    for kind in PROBED:
        made["probe-" + kind] = os.path.join(folder, kind + ".html")
        subprocess.run([probe, kind, made["probe-" + kind]], check=True, timeout=60)
    return made


def faults_of(chromium, path, width, dark, script):
    page = chromium.open(path, width, dark=dark)
    found = page.evaluate(script)
    page.close()
    if not found["texts"]:
        return ["no text at all"]
    return found["faults"]


def check_itself(chromium, folder, script):
    path = os.path.join(folder, "broken.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BROKEN)
    for dark in (False, True):
        found = faults_of(chromium, path, 400, dark, script)
        for fault in EXPECTED[dark]:
            if not any(one.startswith(fault) for one in found):
                sys.exit("this check is broken: it does not see \"%s\", only %s" % (fault, found))
        if not dark and any("by night" in one for one in found):
            sys.exit("this check is broken: by day it sees %s" % found)


def main():
    words, shots = sys.argv[1:], None
    if "--screenshots" in words:
        at = words.index("--screenshots")
        shots = words[at + 1]
        os.makedirs(shots, exist_ok=True)
        del words[at:at + 2]
    if len(words) < 2:
        sys.exit(__doc__)
    if not browser.find():
        print("skipped: there is no Chromium here; make browser-test installs it (Debian: chromium)")
        sys.exit(77)
    with open(os.path.join(HERE, "check_pages.js"), encoding="utf-8") as file:
        script = file.read()
    failed = count = 0
    with tempfile.TemporaryDirectory(prefix="comet_pages_") as folder, browser.Browser() as chromium:
        check_itself(chromium, folder, script)
        pages = {os.path.basename(path): path for path in words[2:]} or make(
            os.path.abspath(words[0]), os.path.abspath(words[1]), folder)
        for name, path in pages.items():
            for width in WIDTHS:
                for dark in (False, True):
                    count += 1
                    where = "%s, %d pixels, %s" % (name, width, "dark" if dark else "light")
                    for fault in faults_of(chromium, path, width, dark, script):
                        print("%s: %s" % (where, fault))
                        failed += 1
                    if shots:
                        page = chromium.open(path, width, dark=dark)
                        with open(os.path.join(shots, where.replace(", ", "-") + ".png"), "wb") as file:
                            file.write(page.screenshot())
                        page.close()
    print("%d pages, each %s pixels wide, light and dark: %s" %
          (len(pages), " and ".join(map(str, WIDTHS)), "%d faults" % failed if failed else "no fault"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
