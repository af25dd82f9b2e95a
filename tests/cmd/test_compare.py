#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""comet compare and comet demo from outside.  usage: test_compare.py COMET [TEST...]"""
import json
import math
import os
import re
import signal
import time

import case

SMALL = ("compare", "--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2",
         "--quiet")
KEYS = {"name", "seed", "batch", "accuracy", "saved_raw_bytes", "saved_stored_bytes", "planned_peak_bytes",
        "measured_peak_bytes", "static_bytes", "ms_per_step", "images_per_s", "loss_step", "loss"}


class Compare(case.Case):
    def compare(self, *arguments):
        return json.loads(self.comet(*SMALL, "--json", *arguments))

    def test_json(self):
        report = self.compare("--variants", "none,eb,pool:2", "--seeds", "2", "--epochs", "2")
        runs = report["variants"]
        self.assertEqual([(r["name"], r["seed"]) for r in runs],
                         [("none", 1), ("none", 2), ("eb", 1), ("eb", 2), ("pool:2", 1), ("pool:2", 2)])
        for run in runs:
            self.assertEqual(set(run), KEYS)
            self.assertEqual(run["batch"], 16)
            self.assertEqual(run["loss_step"], list(range(1, 21)))
            self.assertLess(sum(run["loss"][-5:]), sum(run["loss"][:5]))
            self.assertTrue(0 <= run["accuracy"] <= 100)
            self.assertGreater(run["measured_peak_bytes"], run["static_bytes"])
            self.assertAlmostEqual(run["images_per_s"], 16e3 / run["ms_per_step"], delta=0.01 * run["images_per_s"])
        none, eb = runs[0], runs[2]
        self.assertLessEqual(none["saved_stored_bytes"], none["saved_raw_bytes"])
        self.assertGreater(none["saved_stored_bytes"], 0.9 * none["saved_raw_bytes"])  # images are held as bytes
        self.assertGreater(none["saved_stored_bytes"], 8 * eb["saved_stored_bytes"])
        self.assertGreater(none["planned_peak_bytes"], eb["planned_peak_bytes"])
        self.assertEqual(report["failures"], [])
        for difference in report["differences"]:
            pairs = [[r["accuracy"] for r in runs if r["name"] == name] for name in ("none", difference["name"])]
            gaps = [b - a for a, b in zip(*pairs)]
            mean = sum(gaps) / 2
            deviation = math.sqrt(sum((g - mean) ** 2 for g in gaps))
            self.assertAlmostEqual(difference["accuracy_difference"], mean, places=6)
            self.assertAlmostEqual(difference["half_width_95"], 12.7062 * deviation / math.sqrt(2), places=2)

    def test_same_seed_same_run(self):
        """A variant of its own is what 'comet train' does: accuracy does not depend on what runs beside it."""
        runs = self.compare("--variants", "eb,eb", "--steps", "12")["variants"]
        self.assertEqual(runs[0]["accuracy"], runs[1]["accuracy"])
        self.comet("train", *SMALL[1:], "--steps", "12", "--json-log", "log", "--checkpoint", "none")
        end = json.loads(self.read("log").decode().splitlines()[-1])
        self.assertEqual(end["accuracy"], runs[0]["accuracy"])

    def test_table_and_report(self):
        out = self.comet(*SMALL, "--steps", "8", "--variants", "none,eb", "--seeds", "2", "--report", "r.html")
        lines = out.splitlines()
        self.assertTrue(any(re.match(r"none +16 +[\d.]+ \+- [\d.]+ % ", line) for line in lines), out)
        self.assertTrue(any(re.match(r"eb +16 ", line) for line in lines), out)
        self.assertRegex(out, r"eb: [+-][\d.]+ points of accuracy against none, 95 % interval .* \(2 pairs\)")
        page = self.read("r.html").decode()
        for text in ("<svg", "Loss", "Accuracy", "Memory over a step", "layer1", "seed 2"):
            self.assertIn(text, page)
        self.assertNotIn("http://", page.replace("http://www.w3.org", ""))

    def test_memory_means_largest_batch(self):
        report = self.compare("--variants", "none,eb", "--steps", "2", "--memory", "8MiB", "--batch", "100")
        none, eb = report["variants"]
        self.assertLess(none["batch"], eb["batch"])
        self.assertLessEqual(eb["batch"], 100)
        for run in (none, eb):
            self.assertLessEqual(run["planned_peak_bytes"], 8 << 20)

    def test_a_failure_is_reported_and_the_others_go_on(self):
        done = self.run_comet(*SMALL, "--json", "--steps", "3", "--variants", "none,offload,eb", "--spill-dir", "no")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertEqual([r["name"] for r in report["variants"]], [])
        self.assertEqual(len(report["failures"]), 3)
        done = self.run_comet(*SMALL, "--json", "--steps", "3", "--variants", "none,offload,eb", "--spill-dir", "none")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertEqual([r["name"] for r in report["variants"]], ["none", "eb"])
        self.assertEqual([f["name"] for f in report["failures"]], ["offload"])
        self.assertRegex(done.stderr.decode(), r"\Acomet: offload, seed 1: [^\n]+\n\Z")
        self.assertEqual([d["name"] for d in report["differences"]], ["eb"])

    def test_a_run_that_is_killed(self):
        child = self.start(*SMALL, "--json", "--epochs", "5000", "--variants", "none,eb")
        self.addCleanup(child.kill)
        run = self.wait_for_child(child.pid)
        os.kill(run, signal.SIGKILL)
        second = self.wait_for_child(child.pid, other_than=run)
        os.kill(second, signal.SIGSEGV)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 1)
        self.assertIn("signal 9", err.decode())
        self.assertEqual(len(json.loads(out)["failures"]), 2)

    def test_ctrl_c(self):
        """The run in progress is stopped, those behind it are not begun; what is there is shown."""
        for number in (signal.SIGINT, signal.SIGTERM):
            child = self.start(*SMALL, "--json", "--epochs", "5000", "--variants", "none,eb")
            self.addCleanup(child.kill)
            self.wait_for_child(child.pid)
            time.sleep(0.5)
            child.send_signal(number)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 1)
            self.assertIn("stopped after 1 of 2 runs", err.decode())
            self.assertEqual([f["message"] for f in json.loads(out)["failures"]], ["stopped"])

    def wait_for_child(self, pid, other_than=0):
        for _ in range(3000):
            with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
                children = [int(text) for text in file.read().split() if int(text) != other_than]
            if children:
                return children[0]
            time.sleep(0.01)
        return self.fail("no run was started")

    def test_misuse(self):
        for arguments in (("--variants", "none,zip"), ("--variants", ""), ("--seeds", "0"), ("--codec", "eb"),
                          ("--model", "resnet9"), ("--resume",), ("x",)):
            self.refused(2, *SMALL, *arguments, says="--help")

    def test_memory_too_small(self):
        done = self.run_comet(*SMALL, "--json", "--memory", "100KiB", "--variants", "none")
        self.assertEqual((done.returncode, json.loads(done.stdout)["variants"]), (1, []))
        self.assertRegex(done.stderr.decode(), r"\Acomet: none, seed 1: [^\n]*MiB[^\n]*\n\Z")


class Demo(case.Case):
    def test_quick(self):
        out = self.comet("demo", "--quick", "--quiet")
        self.assertRegex(out, r"\nnone +128 ")
        self.assertRegex(out, r"\neb +128 ")
        self.assertIn("demo-report.html", out)
        self.assertIn("<svg", self.read("demo-report.html").decode())


if __name__ == "__main__":
    case.main(__doc__)
