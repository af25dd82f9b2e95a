#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/gallery.md and its pictures, from real runs: what each command prints, and what its report looks like.

usage: gallery.py COMET [NAME...]

Trains on Fashion-MNIST (Debian's dataset-fashion-mnist), about fifteen minutes on two cores, and takes pictures with
Chromium (Debian's chromium). With names of sections only these are made anew; the others stay as they are.
tests/cmd/test_documents.py runs the same command lines on less data and compares what they print.
"""
import gzip
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "report"))
import browser  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "gallery.md")
PICTURES = os.path.join(ROOT, "docs", "images", "gallery")
FASHION = "/usr/share/datasets/fashion-mnist/"
MOST_BYTES = 150 * 1024

INTRODUCTION = """# Gallery: what each command prints, and its report

This page shows you what you get, before you run anything: the output of each command, and a picture of its report.

- All of it comes from real runs of `bench/gallery.py`, on Fashion-MNIST, on {cpu}.
- **Times and speeds say little here**: other jobs may have run beside them. Accuracy is that of short runs, and
  differences of less than a point are chance. Figures to rely on are in [figures.md](figures.md).
- A line of `...` stands for lines that are left out.
- Reports are HTML files that need nothing else, light or dark as your browser is set. Pictures show their first part.
"""


class Section:
    def __init__(self, name, title, text, command, report=None, width=1000, height=1150, head=0, tail=0):
        self.name, self.title, self.text, self.command = name, title, text, command
        self.report, self.width, self.height = report, width, height  # the report's file, and the picture's size
        self.head, self.tail = head, tail  # lines of the output to show; 0: all


SECTIONS = [
    Section("demo", "comet demo",
            "A small network, trained three times each way: with activations as they are, and compressed.",
            "comet demo", report="demo-report.html", height=980),
    Section("plan", "comet plan", "What training would take, before anything is trained.",
            "comet plan --model resnet50 --batch 64 --memory 2GiB --report plan.html", report="plan.html", height=1000,
            head=8, tail=16),
    Section("train", "comet train", "One training, with its checkpoints and a report.",
            "comet train --model resnet8 --epochs 2 --report train.html", report="train.html"),
    Section("evaluate", "comet evaluate", "How well the network from above does, class by class.",
            "comet evaluate --from comet-resnet8-fashion-mnist"),
    Section("predict", "comet predict", "What it sees in three pictures of the test set, written as PNG files.",
            "comet predict --from comet-resnet8-fashion-mnist --top 2 photos/"),
    Section("compare", "comet compare", "Four ways to hold activations, two seeds each.",
            "comet compare --model resnet8 --steps 200 --variants none,eb,pool:2,group:4 --seeds 2 --report r.html",
            report="r.html", width=1120, height=1200),
    Section("assess", "comet assess",
            "Do errors in activations do to gradients what the theory says? Predicted over measured: 1 is right.",
            "comet assess --model resnet8 --steps 100 --report assess.html", report="assess.html", head=24, tail=0),
    Section("sweep", "comet sweep", "How much error each layer tolerates. From two seeds on there are intervals.",
            "comet sweep --model resnet8 --steps 200 --layers 'conv1,layer2.*,fc' --sigma 0.3,1,3 --report sweep.html",
            report="sweep.html", height=820),
    Section("inspect", "comet compress, inspect and decompress", "Tensors in files.",
            "comet compress --error-rel 0.1 activations.npz -o activations.comet\n"
            "comet inspect activations.comet\n"
            "comet decompress activations.comet -o restored.npz"),
    Section("bench", "comet bench codec", "The codecs beside a copy of the same tensor.",
            "comet bench codec --codec eb,zvc", head=7, tail=5),
]


def png(rows):
    """A grey picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b""))


def make_inputs(folder):
    os.mkdir(os.path.join(folder, "photos"))
    with gzip.open(FASHION + "t10k-images-idx3-ubyte.gz") as file:
        pixels = file.read()[16:]
    for number in range(3):
        image = pixels[number * 784:(number + 1) * 784]
        with open(os.path.join(folder, "photos", "%d.png" % number), "wb") as file:
            file.write(png([image[28 * y:28 * y + 28] for y in range(28)]))
    sys.path.insert(0, os.path.join(ROOT, "tests", "cmd"))
    import files
    shape = (4, 32, 28, 28)
    values = files.activations(shape[0] * shape[1] * shape[2] * shape[3])
    with open(os.path.join(folder, "activations.npz"), "wb") as file:
        file.write(files.npz({"relu1.npy": files.npy("<f4", shape, files.pack("f32", values))}))


def shorten(section, output):
    lines = output.rstrip("\n").splitlines()
    if not section.head or len(lines) <= section.head + section.tail:
        return lines
    return lines[:section.head] + ["..."] + (lines[-section.tail:] if section.tail else [])


def run(comet, folder, section):
    """The block: each command line and what it prints."""
    environment = dict(os.environ, PATH=os.path.dirname(comet) + os.pathsep + os.environ["PATH"])
    block = []
    for command in section.command.split("\n"):
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit("%s: %s" % (command, done.stderr))
        block += ["$ " + command, *shorten(section, done.stdout)]
    return "\n".join(line.rstrip() for line in block)


def take_picture(chromium, folder, section):
    page = chromium.open(os.path.join(folder, section.report), section.width)
    data = page.screenshot((0, 0, section.width, section.height))
    page.close()
    if len(data) > MOST_BYTES:
        sys.exit("%s: a picture of %d bytes; show less of it" % (section.name, len(data)))
    os.makedirs(PICTURES, exist_ok=True)
    with open(os.path.join(PICTURES, section.name + ".png"), "wb") as file:
        file.write(data)


def kept_blocks():
    """Section -> block, of the page that is there."""
    if not os.path.exists(PAGE):
        return {}
    with open(PAGE, encoding="utf-8") as file:
        found = re.findall(r"^## (.*?)\n.*?^```\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    return {s.name: block.rstrip("\n") for s in SECTIONS for title, block in found if title == s.title}


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = re.search(r"model name\s*: (.*)", file.read())
    return "%d cores of %s" % (os.cpu_count(), re.sub(r"\s+", " ", name[1]) if name else "a CPU")


def main():
    if len(sys.argv) < 2 or not browser.find() or not os.path.exists(FASHION):
        sys.exit(__doc__)
    comet, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:] or [s.name for s in SECTIONS]
    blocks = kept_blocks()
    with tempfile.TemporaryDirectory(prefix="comet_gallery_") as folder, browser.Browser() as chromium:
        make_inputs(folder)
        needs_training = {"evaluate", "predict"}.intersection(wanted) and "train" not in wanted
        for section in SECTIONS:
            if section.name in wanted or section.name == "train" and needs_training:
                block = run(comet, folder, section)
                if section.name in wanted:
                    blocks[section.name] = block
                    if section.report:
                        take_picture(chromium, folder, section)
                    print(section.name, flush=True)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(INTRODUCTION.format(cpu=cpu()))
        for section in SECTIONS:
            file.write("\n## %s\n\n%s\n\n```\n%s\n```\n" % (section.title, section.text, blocks[section.name]))
            if section.report:
                file.write("\n![Report of comet %s](images/gallery/%s.png)\n" % (section.name, section.name))


if __name__ == "__main__":
    main()
