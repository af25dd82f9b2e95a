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
        "measured_peak_bytes", "static_bytes", "ms_per_step", "images_per_s", "at_ceiling",
        "joint_error", "loss_step", "loss"}


class Runs(case.Case):
    def compare(self, *arguments):
        return json.loads(self.comet(*SMALL, "--json", *arguments))

    def wait_for_child(self, pid, other_than=0):
        for _ in range(3000):
            with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
                children = [int(text) for text in file.read().split() if int(text) != other_than]
            if children:
                return children[0]
            time.sleep(0.01)
        return self.fail("no run was started")


class Compare(Runs):
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
        report = self.compare("--variants", "none,eb", "--steps", "2", "--memory", "14MiB", "--batch", "100")
        none, eb = report["variants"]
        self.assertLess(none["batch"], eb["batch"])
        self.assertLessEqual(eb["batch"], 100)
        for run in (none, eb):
            self.assertLessEqual(run["planned_peak_bytes"], 14 << 20)

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
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child = self.start(*SMALL, "--json", "--epochs", "5000", "--variants", "none,eb")
            self.addCleanup(child.kill)
            self.wait_for_child(child.pid)
            time.sleep(0.5)
            child.send_signal(number)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 128 + number)
            self.assertRegex(err.decode(), r"comet: stopped: 0 of 2 runs are finished\n\Z")
            self.assertEqual([f["message"] for f in json.loads(out)["failures"]], ["stopped"])
            self.assertEqual(os.listdir(self.folder), [])

    def test_misuse(self):
        for arguments in (("--variants", "none,zip"), ("--variants", ""), ("--seeds", "0"), ("--codec", "eb"),
                          ("--model", "resnet9"), ("--resume=x",), ("--state", "none", "--resume"), ("x",)):
            self.refused(2, *SMALL, *arguments, says="--help")

    def test_memory_too_small(self):
        done = self.run_comet(*SMALL, "--json", "--memory", "100KiB", "--variants", "none")
        self.assertEqual((done.returncode, json.loads(done.stdout)["variants"]), (1, []))
        self.assertRegex(done.stderr.decode(), r"\Acomet: none, seed 1: [^\n]*MiB[^\n]*\n\Z")


class GoingOn(Runs):
    STEPS = "20" if case.SLOW else "60"
    OPTIONS = (*SMALL, "--json", "--steps", STEPS, "--variants", "none,eb,zvc", "--seeds", "2")
    STATE = "comet-compare-resnet8-generated.runs"

    def interrupt(self, number, *options, runs=1):
        """A comparison that ends by the signal when so many runs are finished and the next is under way."""
        child = self.start(*self.OPTIONS, *options)
        self.addCleanup(child.kill)
        run = 0
        for _ in range(runs + 1):
            run = self.wait_for_child(child.pid, other_than=run)
        child.send_signal(number)
        out, err = child.communicate(timeout=120)
        return child.returncode, out.decode(), err.decode()

    def figures(self, text):
        """Without what was measured."""
        report = json.loads(text)
        for run in report["variants"]:
            for key in ("measured_peak_bytes", "ms_per_step", "images_per_s"):
                del run[key]
        return report

    def test_goes_on(self):
        """Stopped twice, killed once: the same figures as without, and what was finished is not run again."""
        expected = self.figures(self.comet(*self.OPTIONS))
        self.assertEqual(os.listdir(self.folder), [])
        code, out, err = self.interrupt(signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertRegex(err, r"comet: stopped: [12] of 6 runs are finished; [^\n]* --resume [^\n]*\n\Z")
        self.assertEqual(self.figures(out)["variants"][0], expected["variants"][0])
        self.assertEqual(os.listdir(self.folder), [self.STATE])
        code, _, err = self.interrupt(signal.SIGKILL, "--resume")
        self.assertEqual(code, -signal.SIGKILL)
        self.assertRegex(err, r"\Acomet: going on: [12] of 6 runs are finished\n")
        code, _, err = self.interrupt(signal.SIGTERM, "--resume=auto")
        self.assertEqual(code, 143)
        self.assertRegex(err, r"\Acomet: going on: [23] of 6 runs are finished\n")
        with open(self.path(self.STATE), "ab") as file:
            file.write(b"what a killed program left of a run")
        done = self.run_comet(*self.OPTIONS, "--resume", "--report", "r.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.decode(), r"\Acomet: going on: [345] of 6 runs are finished\n\Z")
        self.assertEqual(self.figures(done.stdout), expected)
        self.assertEqual(os.listdir(self.folder), ["r.html"])

    def test_refusals(self):
        self.refused(1, *self.OPTIONS, "--resume", says="'%s'" % self.STATE)
        self.assertEqual(os.listdir(self.folder), [])
        self.interrupt(signal.SIGINT)
        before = self.read(self.STATE)
        text = self.refused(1, *self.OPTIONS, "--resume", "--lr", "0.3", "--steps", "70", "--no-augment",
                            says="--lr was not given, now 0.3")
        self.assertIn("--steps was %s, now 70; " % self.STEPS, text)
        self.assertIn("--no-augment was not given, now given", text)
        self.assertNotIn("--model", text)
        self.assertIn("data was ", self.refused(1, *self.OPTIONS, "--resume", "--data", "generated:170"))
        self.refused(1, "sweep", *self.OPTIONS[1:-4], "--layers", "fc", "--state", self.STATE, "--resume",
                     says="--layers was not given, now fc")
        with open(self.path("other"), "wb") as file:
            file.write(b"somebody else's")
        self.refused(1, *self.OPTIONS, "--state", "other", says="not a file of finished runs")
        self.assertEqual((self.read("other"), self.read(self.STATE)), (b"somebody else's", before))

    def test_begins_anew_without_taking_away(self):
        self.interrupt(signal.SIGINT, "--state", "s")
        before = self.read("s")
        _, _, err = self.interrupt(signal.SIGINT, "--state", "s")
        self.assertIn("'s.earlier'", err)
        second = self.read("s")
        done = self.run_comet(*self.OPTIONS, "--state", "s")
        self.assertIn("'s.earlier-2'", done.stderr.decode())
        self.assertEqual((done.returncode, self.read("s.earlier"), self.read("s.earlier-2")), (0, before, second))
        self.assertEqual(sorted(os.listdir(self.folder)), ["s.earlier", "s.earlier-2"])
        self.comet(*self.OPTIONS, "--state", "s.earlier", "--resume")

    def test_one_at_a_time(self):
        child = self.start(*SMALL, "--json", "--epochs", "5000", "--variants", "none,eb")
        self.addCleanup(child.kill)
        run = self.wait_for_child(child.pid)
        text = self.refused(1, *SMALL, "--steps", "2", says="another comparison keeps its runs in '%s'" % self.STATE)
        self.assertIn("--state OTHER", text)
        self.wait_until(lambda: not any(self.is_state(run, name) for name in os.listdir("/proc/%d/fd" % run)),
                        "a run without its parent's lock")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)

    def is_state(self, pid, name):
        try:
            return os.readlink("/proc/%d/fd/%s" % (pid, name)).endswith(".runs")
        except OSError:
            return False

    def test_reports_stay(self):
        """What is not complete takes no place of a report; where there is none it is better than nothing."""
        with open(self.path("r.html"), "wb") as file:
            file.write(b"an earlier one")
        _, _, err = self.interrupt(signal.SIGINT, "--report", "r.html")
        self.assertIn("'r.html' stays as it was", err)
        done = self.run_comet(*SMALL, "--json", "--steps", "3", "--variants", "none,offload", "--spill-dir", "none",
                              "--report", "r.html", "--state", "t")
        self.assertEqual(done.returncode, 1)
        self.assertIn("'r.html' stays as it was", done.stderr.decode())
        self.assertEqual(self.read("r.html"), b"an earlier one")
        done = self.run_comet(*SMALL, "--json", "--steps", "3", "--variants", "none,offload", "--spill-dir",
                              self.folder,
                              "--report", "r.html", "--state", "t", "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("<svg", self.read("r.html").decode())
        self.interrupt(signal.SIGINT, "--report", "new.html", "--state", "u")
        self.assertIn("<svg", self.read("new.html").decode())

    def test_reports_are_tried_first(self):
        for command in (SMALL, ("assess", *SMALL[1:]), ("sweep", *SMALL[1:]), ("demo", "--quick", "--quiet")):
            self.refused(1, *command, "--report", "no/r.html", says="--report: cannot write 'no/r.html'")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_report_that_cannot_be_written_at_the_end(self):
        """The runs are kept: the report is all that is made again."""
        os.mkdir(self.path("reports"))
        child = self.start(*self.OPTIONS, "--report", "reports/r.html")
        self.addCleanup(child.kill)
        self.wait_for_child(child.pid)
        os.rename(self.path("reports"), self.path("gone"))
        out, err = child.communicate(timeout=120)
        self.assertEqual(child.returncode, 1)
        self.assertEqual(len(json.loads(out)["variants"]), 6)
        self.assertIn("in '%s': --resume" % self.STATE, err.decode())
        done = self.run_comet(*self.OPTIONS, "--report", "gone/r.html", "--resume")
        self.assertEqual((done.returncode, done.stderr), (0, b"comet: going on: 6 of 6 runs are finished\n"))
        self.assertEqual(json.loads(done.stdout), json.loads(out))
        self.assertEqual(os.listdir(self.folder), ["gone"])


class Demo(case.Case):
    def test_stopped(self):
        child = self.start("demo", "--quiet")
        self.addCleanup(child.kill)
        self.wait_for_handler(child, signal.SIGINT)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        self.assertEqual((child.returncode, out, os.listdir(self.folder)), (130, b"", []))

    def test_quick(self):
        out = self.comet("demo", "--quick", "--quiet")
        self.assertRegex(out, r"\nnone +128 ")
        self.assertRegex(out, r"\neb +128 ")
        self.assertIn("demo-report.html", out)
        self.assertIn("<svg", self.read("demo-report.html").decode())


if __name__ == "__main__":
    case.main(__doc__)
