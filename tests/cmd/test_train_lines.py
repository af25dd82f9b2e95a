#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What comet train says while it trains: the first lines, and progress on a terminal.

usage: test_train_lines.py COMET [TEST...]
"""
import json
import os
import pty
import re
import shutil
import subprocess
import unittest

import case
import images

SMALL = ("train", "--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2")


class Lines(case.Case):
    def on_terminal(self, *arguments):
        """Standard error of the command, which has a terminal of 80 columns there."""
        ours, its = pty.openpty()
        self.addCleanup(os.close, ours)
        child = subprocess.Popen([case.COMET, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=its)
        os.close(its)
        text = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # Linux: the other side is closed
                break
            if not piece:
                break
            text += piece
        self.assertEqual(child.wait(timeout=60), 0, text)
        return text.decode()

    def test_first_lines(self):
        done = self.run_comet(*SMALL, "--steps", "2", "--eval-images", "10", "--checkpoint", "c")
        text = done.stdout.decode()
        self.assertRegex(text, r"\Adata +generated:160: 10 classes, 160 images to train with, 32 to evaluate with "
                               r"\(10 of them\)\n"
                               r"model +resnet8, images of 16x16 \(grey\), batch 16\n"
                               r"training +2 steps, sgd, learning rate 0.0125 \(one-cycle\), eb under comet\n"
                               r"memory +peak [\d.]+ MiB planned, saved [\d.]+ MiB -> [\d.]+ KiB a step\n"
                               r"keeps +checkpoints in 'c'\n\n")
        again = self.comet(*SMALL, "--steps", "3", "--eval-images", "10", "--checkpoint", "c", "--resume")
        self.assertIn("goes on after step 2 of 3", again)
        self.assertNotIn("planned, saved", self.comet(*SMALL, "--steps", "2", "--checkpoint", "none", "--quiet"))

    def test_terminal_of_80_columns(self):
        """Each line fits, has all figures, and evaluations are seen."""
        text = self.on_terminal(*SMALL, "--data", "generated:1500", "--epochs", "2", "--checkpoint", "none")
        lines = [line for line in re.split(r"\r|\n|\x1b\[K", text) if line]
        self.assertGreater(len(lines), 2)
        for line in lines:
            self.assertLess(len(line), 80)
            self.assertRegex(line, r"\A(\[[#.]+\] )?(\d+/\d+|evaluating \d+) loss [\d.]+ acc [\d.]+% \d+ img/s "
                                   r"([\d.]+[BKMG]>[\d.]+[BKMG]|waits \d+%) peak [\d.]+[BKMG] left \d+:\d\d\Z")
        self.assertTrue([line for line in lines if "evaluating" in line], lines)

    def test_a_slow_loader(self):
        """Large files for a small network: line, summary, log and report say that it waits for them."""
        images.make_folder(self.path("photos"), ("red", "green"), count=8, side=1400)
        arguments = ("train", "--model", "resnet8", "--data", "folder:photos", "--image", "16", "--batch", "16",
                     "--steps", "8", "--threads", "2", "--checkpoint", "none", "--json-log", "log",
                     "--report", "r.html")
        text = self.on_terminal(*arguments)
        lines = [line for line in re.split(r"\r|\n|\x1b\[K", text) if "waits" in line]
        self.assertGreater(len(lines), 2)
        for line in lines:
            self.assertLess(len(line), 80)
        said = re.search(r"waiting +the network (\d+) % of the time for images \(without: (\d+) images/s\), "
                         r"the loader (\d+) % for the network\n", self.comet(*arguments))
        end = [line for line in map(json.loads, self.read("log").decode().splitlines()) if line["event"] == "end"][-1]
        self.assertEqual((int(said[1]), int(said[2])),
                         (round(100 * end["data_wait"]), round(end["network_images_per_s"])))
        self.assertGreater(end["data_wait"], 0.5)
        self.assertLess(end["loader_wait"], 0.5)
        self.assertGreater(end["network_images_per_s"], 1.5 * end["images_per_s"])
        self.assertIsNone(end["gpu"])
        self.assertIn("waited for images", self.read("r.html").decode())

    def test_rules_that_change_nothing(self):
        network = ("plan", "--model", "resnet18", "--forms")
        for rules, idle in (("conv1=none", ["conv1=none"]), ("bn1=none", []), ("layer1.*=eb:0.1,bn1=none", []),
                            ("bn1=eb:0.1,bn1=none", ["bn1=eb:0.1"]), ("*=eb,conv1=none", ["conv1=none"]),
                            ("layer1.*=dct,layer1.*=dct", ["layer1.*=dct", "layer1.*=dct"])):
            done = self.run_comet(*network, rules)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(re.findall(r"--forms: '(.*)' changes nothing", done.stderr.decode()), idle, rules)
        done = self.run_comet("compare", *SMALL[1:], "--steps", "1", "--state", "none", "--variants", "eb,none",
                              "--forms", "conv1=none,bn1=none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("bn1=none", done.stderr.decode())
        done = self.run_comet(*SMALL, "--steps", "1", "--checkpoint", "none", "--forms", "conv1=none")
        self.assertIn("'conv1=none' changes nothing: nothing is saved of", done.stderr.decode())

    def test_pipes_are_refused(self):
        os.mkfifo(self.path("pipe"))
        for arguments in (("inspect", "pipe"), ("compress", "pipe", "-o", "x"), (*SMALL, "--weights", "pipe"),
                          (*SMALL, "--data", "cifar10:pipe"), (*SMALL, "--data", "folder:pipe")):
            self.refused(1, *arguments, says="pipe")

    @unittest.skipIf(case.SLOW, "sanitizers themselves read /proc")
    def test_without_proc(self):
        """What the system does not tell is not measured, and nothing fails."""
        hidden = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
        if not shutil.which("unshare") or subprocess.run([*hidden, "true"], stderr=subprocess.DEVNULL,
                                                         check=False).returncode:
            self.skipTest("no namespaces can be made here")
        done = subprocess.run([*hidden, case.COMET, *SMALL, "--steps", "2", "--checkpoint", "none", "--json-log",
                               "log"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("planned, not measured", done.stdout.decode())
        self.assertIn('"measured_peak_bytes": null', self.read("log").decode())


if __name__ == "__main__":
    case.main(__doc__)
