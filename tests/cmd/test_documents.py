#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command line that README.md and docs/ show: it runs as it is written, and prints what is shown below it.

usage: test_documents.py COMET [TEST...]

A command line is a line of a code block that begins with `comet` (or `$ comet`, with its output below it; `mkdir` is
run, too). A page's lines run one after the other in a folder of their own, so that what one leaves behind is there for
the next. What they read is made here:

    DIR, pets, ...    small pictures in train/ and val/; DIR has also the files of CIFAR-10 and Fashion-MNIST
    photo.jpg, *.npz  a picture, tensors
    PREPARED          checkpoints and weights of trainings that the page does not show

Nothing in a line is changed. So that it takes a second and not an hour, options of sizes are put behind it (SIZES; of
an option that is given twice the last counts), and Fashion-MNIST is the one in DIR. `comet demo` is run with --quick.

A line with --device cuda must be refused for the sole reason that there is no GPU, with exit code 1 and one line (comet
bench step: one in its table for each variant); and with a made-up option at its end for that option (2), which shows
that all before it was understood. Where there is a GPU it is run.

Output is compared but for figures: numbers, units of bytes, which class an image is taken for, and spaces do not count;
`...` stands for any lines.
"""
import glob
import gzip
import os
import re
import struct
import subprocess
import unittest

import case
import files
import images

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAINING = "--batch 4 --steps 2 --eval-images 4 --image 32 --threads 2"
SIZES = {  # the subcommand, and what is put behind its lines
    "train": TRAINING, "compare": TRAINING + " --seeds 1", "sweep": TRAINING + " --seeds 1",
    "assess": "--batch 2 --steps 2 --batches 1 --image 32 --threads 2",
    "evaluate": "--images 20 --threads 2", "predict": "--threads 2", "demo": "--quick",
    "bench codec": "--quick", "bench norm": "--quick",
    "bench step": "--batch 2 --image 32 --settle 1 --steps 1 --row 1 --ready 2",
    "bench loader": "--batch 2 --image 32 --batches 2 --warm-up 0",
}
TAKES_DATA = ("train", "compare", "sweep", "assess")  # Fashion-MNIST where none is named
FOLDERS = ("DIR", "pets", "other-pets", "imagenet", "photographs")
SMALL = "comet train --data folder:pets " + TRAINING
PREPARED = {  # what a line may read before a line of its page has made it
    "run1": SMALL + " --model resnet18 --checkpoint run1",
    "resnet18.safetensors": SMALL + " --model resnet18 --checkpoint none --save-weights resnet18.safetensors",
    "resnet50.safetensors": SMALL + " --model resnet50 --checkpoint none --save-weights resnet50.safetensors",
    "comet-resnet18-pets": SMALL + " --model resnet18",
    "comet-resnet50-pets": SMALL + " --model resnet50",
    **{"run-" + name: SMALL + " --model resnet18 --codec %s --checkpoint run-%s" % (codec, name)
       for name, codec in (("none", "none"), ("eb", "eb"), ("pool", "pool:2"))},
    **{name: SMALL.replace("folder:pets", "cifar10:DIR") + " --model resnet18-cifar --checkpoint " + name
       for name in ("a", "b")},
    "comet-resnet8-fashion-mnist": SMALL.replace("folder:pets", "fashion-mnist:DIR") + " --model resnet8",
    "activations.comet": "comet compress --error-rel 0.1 activations.npz -o activations.comet",
}
NO_GPU = re.compile(r"(\Acomet: |tf32  none +failed: )[^\n]*(CUDA|GPU|driver|cudnn|cublas)", re.IGNORECASE)
# A build with sanitizers runs what makes no network of many weights: the command is the same, and others test it so.
TOO_SLOW = re.compile(r"comet (train|compare|sweep|assess|evaluate|predict|demo|bench)\b")


def idx(shape, data):
    return gzip.compress(struct.pack(">HBB%dI" % len(shape), 0, 8, len(shape), *shape) + data)


def make_data(folder):
    """What command lines read."""
    def write(name, data):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    for name in FOLDERS:
        images.make_folder(os.path.join(folder, name), ("cat", "cow", "dog"), count=4)
    record = bytes(range(256)) * 12  # 3 x 32 x 32
    for name in ["data_batch_%d.bin" % i for i in range(1, 6)] + ["test_batch.bin"]:
        write("DIR/cifar-10-batches-bin/" + name, b"".join(bytes([i % 10]) + record for i in range(20)))
    for name, count in (("train", 40), ("t10k", 20)):
        write("DIR/%s-images-idx3-ubyte.gz" % name, idx((count, 28, 28), bytes(i % 251 for i in range(count * 784))))
        write("DIR/%s-labels-idx1-ubyte.gz" % name, idx((count,), bytes(i % 10 for i in range(count))))
    write("photo.jpg", images.png(40, 30, (200, 30, 30)))  # what a file is, its first bytes say
    for i in range(3):
        write("photos/%d.png" % i, images.png(40, 30, (30, 60 * i, 30)))
    tensor = files.npy("<f4", (2, 16, 8, 8), files.pack("f32", files.activations(2 * 16 * 64)))
    for name in ("activations.npz", "acts.npz"):
        write(name, files.npz({"relu1.npy": tensor}))


def blocks(path):
    """(line number, lines) of each code block without a language, or of text or sh."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for found in re.finditer(r"^( *)```(?:text|sh)?\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        number = text.count("\n", 0, found.start()) + 2
        yield number, [line[len(found[1]):] for line in found[2].splitlines()]


def command_lines(path):
    """(line number, command, output shown or None), in the page's order."""
    found = []
    for number, lines in blocks(path):
        i = 0
        while i < len(lines):
            first, line, i = i, lines[i], i + 1
            while line.endswith("\\") and i < len(lines):
                line, i = line[:-1] + lines[i], i + 1
            shown = line.startswith("$ ")
            command = re.sub(r"\s+#\s.*", "", line[2:] if shown else line)
            if not re.match(r"(comet|mkdir) ", command):
                continue
            output = None
            if shown:
                start = i
                while i < len(lines) and not lines[i].startswith("$ "):
                    i += 1
                output = "\n".join(lines[start:i])
            found.append((number + first, command, output))
    return found


def with_sizes(command, shown=False):
    """The command line, and the options of sizes behind its own, before > or |; fewer of them where output is shown."""
    words = command.split()
    kind = next((k for k in (" ".join(words[1:3]), words[1]) if k in SIZES), None)
    if words[0] != "comet" or not kind or "codec" in words[2:] and kind == "demo":
        return command
    more = SIZES[kind]
    if kind in TAKES_DATA and "--data" not in words:
        more += " --data fashion-mnist:DIR"
    if "--epochs" in words or kind == "assess" and "--steps" not in words:
        more = more.replace("--steps 2 ", "")
    if shown:
        more = more.replace(" --seeds 1", "").replace("--batches 1 ", "").replace("--eval-images 4 ", "")
    parts = re.match(r"(.*?)(\s*[|>].*)?\Z", command)
    return parts[1] + " " + more + (parts[2] or "")


# After 60 and after 240 updates; with --quick; without it.
ONLY_SOME_RUNS = ("bounds +[0-9]+ % of them at the ceiling|errors +of gradients|With --quick nothing is repeated|"
                  "Accuracy differs by ")
CLASSES = r"T-shirt/top|trouser|pullover|dress|coat|sandal|shirt|sneaker|bag|ankle boot"


def without_figures(text):
    """What must be equal: the words of each line that is not empty. Which class an image is taken for is a figure."""
    text = re.sub(r"\b(%s)\b" % CLASSES, "class", text)
    text = re.sub(r"fashion-mnist:[^\s:,]+|\bgenerated\b", "fashion-mnist", text)  # if not installed
    text = re.sub(r"(?m)^(%s).*\n?" % ONLY_SOME_RUNS, "", text)
    text = re.sub(r"\b\d+(x\d+)+\b", "#", text)
    text = re.sub(r" +class \(\d+\)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<![\w.])[-+]?\d[\d,.]*(e[-+]?\d+)?", "#", text)
    text = re.sub(r"# (bytes|[KMG]iB)\b", "# B", text)
    text = re.sub(r"(?m)(?<=\s)(-|n/a)(?=\s|$)", "#", text)
    text = re.sub(r"# %", "#", text)
    text = re.sub(r"# \+- #", "#", text)  # of several seeds
    text = text.replace("# seeds", "# seed")
    text = re.sub(r"(, # interval # to # \(# pairs\)| \(one pair: no interval\))", "", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def agrees(shown, printed):
    """Whether the lines shown are those printed, `...` being any number of lines."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(agrees(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and agrees(shown[1:], printed[1:])


class Documents(case.Case):
    counts = {"run": 0, "refused, there being no GPU": 0, "compared with what is shown": 0,
              "left out, with sanitizers": 0}

    @classmethod
    def tearDownClass(cls):
        print("\ncommand lines: " + ", ".join("%d %s" % (n, what) for what, n in cls.counts.items() if n))

    def shell(self, command):
        paths = [os.path.dirname(case.COMET), os.environ.get("PATH", "")]
        environment = dict(os.environ, PATH=os.pathsep.join(paths), HOME=self.folder, TMPDIR=self.folder,
                           OMP_WAIT_POLICY="passive")
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment, timeout=600, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def prepare(self, command):
        for word in re.split(r"[\s:=]+", command):
            name = word.split("/")[0]
            if name in PREPARED and not os.path.exists(self.path(name)) and not re.search(
                    r"(-o|--save-weights|--report) " + re.escape(name), command):
                if "--checkpoint " + name in command and "--resume" not in command and "assess" not in command:
                    continue  # it is going to be made
                line = PREPARED[name]
                if name == "run1" and "--model" in command:  # of the network and data of the line that reads it
                    for option in ("--model", "--data"):
                        said = re.search(option + r" (\S+)", command)
                        line += " " + said[0] if said else ""
                done = self.shell(line)
                self.assertEqual(done.returncode, 0, (line, done.stderr.decode()))

    def check_line(self, place, command, output):
        if "--device cuda" in command:
            done = self.shell(with_sizes(command))
            if done.returncode == 0:
                self.counts["run"] += 1
                return
            self.assertEqual(done.returncode, 1, (place, done.stderr))
            self.assertLessEqual(done.stderr.count(b"\n"), 1, (place, done.stderr))
            self.assertRegex((done.stderr or done.stdout).decode(), NO_GPU, place)
            done = self.shell(with_sizes(command) + " --no-such-option")
            self.assertEqual(done.returncode, 2, place)
            self.assertIn(b"--no-such-option", done.stderr, place)
            self.counts["refused, there being no GPU"] += 1
            return
        if case.SLOW and TOO_SLOW.match(command):
            self.counts["left out, with sanitizers"] += 1
            return
        self.prepare(command)
        done = self.shell(with_sizes(command, output is not None))
        self.assertEqual(done.returncode, 0, (place, command, done.stderr.decode()))
        self.counts["run"] += 1
        if output is not None:
            shown, printed = without_figures(output), without_figures(done.stdout.decode())
            self.assertTrue(agrees(shown, printed), "%s: %s\nshown:\n%s\nprinted:\n%s" %
                            (place, command, "\n".join(shown), "\n".join(printed)))
            self.counts["compared with what is shown"] += 1

    def check_page(self, name):
        lines = command_lines(os.path.join(ROOT, name))
        make_data(self.folder)
        for number, command, output in lines:
            with self.subTest("%s:%d" % (name, number), command=command):
                self.check_line("%s:%d" % (name, number), command, output)
        return len(lines)

    def test_readme(self):
        self.assertGreater(self.check_page("README.md"), 5)

    def test_command(self):
        self.assertGreater(self.check_page("docs/command.md"), 15)

    def test_other_pages(self):
        pages = sorted(os.path.relpath(page, ROOT) for page in glob.glob(os.path.join(ROOT, "docs", "*.md")))
        self.assertIn("docs/plan.md", pages)
        for page in pages:
            if page != "docs/command.md" and command_lines(os.path.join(ROOT, page)):
                self.tearDown()
                self.setUp()
                self.check_page(page)


class Itself(unittest.TestCase):
    def test_what_differs_is_seen(self):
        shown = without_figures("none  128   90.18 %  54.1 MiB -> 53.8 MiB   -\n...\nend 1.5e-7")
        self.assertTrue(agrees(shown, without_figures("none 2  9 %  54.1 KiB -> 7 GiB  28 %\na\nb\nend 3")))
        for other in ("some 2 9 % 5 MiB -> 3 MiB 1\nend 3", "none 2 9 % 5 MiB 3 MiB 1\nend 3",
                      "none 2 9 % 5 MiB -> 3 MiB 1\nend 3\nmore"):
            self.assertFalse(agrees(shown, without_figures(other)), other)

    def test_sizes_come_before_pipes(self):
        self.assertEqual(with_sizes("comet predict --from x photos/ > p.csv"),
                         "comet predict --from x photos/ --threads 2 > p.csv")


if __name__ == "__main__":
    case.main(__doc__)
