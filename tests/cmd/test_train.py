#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""comet train from outside: what it leaves behind, how it goes on, how it fails.

usage: test_train.py COMET [TEST...]
"""
import json
import os
import re
import resource
import signal
import time
import unittest

import case
import images

SMALL = ("train", "--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2",
         "--quiet")


class Train(case.Case):
    def train(self, *arguments):
        return self.comet(*SMALL, *arguments)

    def log(self, name, event=None):
        lines = [json.loads(line) for line in self.read(name).decode().splitlines()]
        return [line for line in lines if event in (None, line["event"])]

    def wait_for(self, child, log, event, count):
        """Until the log has so many of the event; fails if the child ends before."""
        text = '"event": "%s"' % event
        for _ in range(6000):
            if os.path.exists(self.path(log)) and self.read(log).decode().count(text) >= count:
                return
            self.assertIsNone(child.poll(), child.stderr.read() if child.poll() is not None else "")
            time.sleep(0.01)
        self.fail("nothing happened")

    def weights(self, *arguments):
        """Of a run that is not interrupted."""
        self.train(*arguments, "--checkpoint", "none", "--save-weights", "whole.safetensors")
        return self.read("whole.safetensors")

    def make_images(self, folder, classes):
        for split in ("train", "val"):
            for name in classes:
                os.makedirs(self.path("%s/%s/%s" % (folder, split, name)))
                for i in range(8):
                    with open(self.path("%s/%s/%s/%d.png" % (folder, split, name, i)), "wb") as file:
                        file.write(images.png(20, 20, (i * 20, 60 * ord(name[0]) % 251, 99)))


class GoingOn(Train):
    def interrupted(self, number, log_event, count, *options):
        arguments = (*SMALL, *options, "--checkpoint", "c", "--json-log", "log", "--save-weights", "w.safetensors")
        child = self.start(*arguments)
        self.wait_for(child, "log", log_event, count)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
        return child.returncode, out.decode(), err.decode(), arguments

    def test_killed_in_the_middle_of_an_epoch(self):
        epochs = "6" if case.SLOW else "15"  # time to be killed in
        for options in (("--epochs", epochs, "--checkpoint-every", "3", "--codec", "eb"),
                        ("--epochs", epochs, "--checkpoint-every", "7", "--codec", "none", "--optimiser", "adamw",
                         "--accumulate", "3", "--eval-every", "0")):
            expected = self.weights(*options[:2], *options[4:])
            code, _, _, arguments = self.interrupted(signal.SIGKILL, "checkpoint", 2, *options)
            self.assertEqual(code, -signal.SIGKILL)
            self.assertFalse(os.path.exists(self.path("w.safetensors")))
            self.comet(*arguments, "--resume")
            self.assertEqual(self.read("w.safetensors"), expected)
            starts = self.log("log", "start")
            self.assertEqual((len(starts), starts[0]["step"]), (2, 0))
            self.assertGreater(starts[1]["step"], 0)
            for name in ("w.safetensors", "log", "c/last.safetensors", "c/previous.safetensors"):
                os.remove(self.path(name))

    def test_ctrl_c(self):
        epochs = 4 if case.SLOW else 12
        options = ("--epochs", str(epochs), "--codec", "eb", "--eval-every", "0")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            if os.path.exists(self.path("log")):
                os.remove(self.path("log"))
            code, out, err, arguments = self.interrupted(number, "step", 13, *options)
            self.assertEqual(code, 128 + number, err)
            self.assertIn("--resume", out)
            end = self.log("log", "end")[0]
            self.assertEqual(end["state"], "stopped")
            self.assertLess(end["step"], 10 * epochs)
            self.assertEqual(self.log("log", "checkpoint")[-1]["step"], end["step"])
        self.comet(*arguments, "--resume")
        self.assertEqual(self.log("log", "start")[1]["step"], end["step"])
        self.assertEqual(self.read("w.safetensors"), self.weights(*options))

    def test_a_terminal_that_goes_away(self):
        """Said twice, as shells do, it is saved once and for all; under nohup it is not heard."""
        arguments = (*SMALL, "--epochs", "3000", "--checkpoint", "c", "--json-log", "log", "--eval-every", "0")
        child = self.start(*arguments)
        self.addCleanup(child.kill)
        self.wait_for(child, "log", "step", 3)
        child.send_signal(signal.SIGHUP)
        child.send_signal(signal.SIGHUP)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 129)
        end = self.log("log", "end")[0]
        self.assertEqual((end["state"], self.log("log", "checkpoint")[-1]["step"]), ("stopped", end["step"]))
        child = self.start(*arguments, "--resume", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.addCleanup(child.kill)
        self.wait_for(child, "log", "step", end["step"] + 3)
        child.send_signal(signal.SIGHUP)
        self.wait_for(child, "log", "step", len(self.log_of_a_writer("log")) + 20)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 143)

    def log_of_a_writer(self, name):
        """Steps so far; the last line may not be whole."""
        return [line for line in self.read(name).decode().splitlines() if '"event": "step"' in line]

    def test_begins_anew_without_taking_away(self):
        """Whatever is put aside stays, and the line names it."""
        before = []
        for number, name in enumerate(("", "earlier.safetensors", "earlier-2.safetensors", "earlier-3.safetensors")):
            done = self.run_comet(*SMALL, "--steps", "3", "--seed", str(number), "--checkpoint", "c")
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr.decode(), "'c/%s'\n\\Z" % name if name else r"\A\Z")
            before.append(self.read("c/last.safetensors"))
        self.assertEqual(self.read("c/earlier.safetensors"), before[0])
        self.assertEqual(self.read("c/earlier-2.safetensors"), before[1])
        self.assertEqual(self.read("c/earlier-3.safetensors"), before[2])
        self.assertEqual(len(set(before)), 4)

    def test_nothing_to_resume_from(self):
        folder = "comet-resnet8-generated"
        text = self.refused(1, *SMALL, "--steps", "3", "--resume", says="--resume=auto")
        self.assertIn("'%s'" % folder, text)
        self.assertEqual(os.listdir(self.folder), [])
        done = self.run_comet(*SMALL, "--steps", "3", "--resume=auto")
        self.assertEqual(done.returncode, 0)
        self.assertIn("there is no checkpoint in '%s': beginning anew" % folder, done.stderr.decode())
        self.train("--steps", "5", "--resume=auto", "--json-log", "log")
        self.train("--steps", "6", "--resume", "--json-log", "log")
        self.assertEqual([line["step"] for line in self.log("log", "step")], [4, 5, 6])
        self.refused(2, *SMALL, "--resume=yes", says="--resume=auto")
        self.refused(2, *SMALL, "--resume", "auto", says="auto")

    def test_two_in_one_folder(self):
        """The second is refused at once; the first does not notice, its log included."""
        options = (*SMALL, "--epochs", "3000", "--checkpoint", "c", "--json-log", "log", "--eval-every", "0")
        child = self.start(*options)
        self.addCleanup(child.kill)
        self.wait_for(child, "log", "step", 3)
        for more in ((), ("--resume=auto",)):
            text = self.refused(1, *options, *more, says="another training is writing its checkpoints to 'c'")
            self.assertIn("(process %d on " % child.pid, text)
            self.assertIn("--checkpoint", text)
        text = self.refused(1, *SMALL, "--steps", "3", "--checkpoint", "d", "--json-log", "log",
                            says="another training")
        self.assertFalse(os.path.exists(self.path("d")))
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130)
        steps = self.log("log", "step")
        self.assertEqual([s["step"] for s in steps], list(range(1, len(steps) + 1)))
        self.assertEqual(len(self.log("log", "start")), 1)
        self.assertFalse(os.path.exists(self.path("c/lock")))
        self.assertFalse(os.path.exists(self.path("c/earlier.safetensors")))

    def test_each_data_set_has_its_folder(self):
        options = ("train", "--model", "resnet8", "--image", "16", "--batch", "8", "--quiet", "--data")
        self.make_images("a/my pets", "xyz")
        self.make_images("b/my pets", "xyz")
        self.make_images("c/my pets", "uvw")
        self.comet(*options, "folder:a/my pets/", "--steps", "2")
        self.assertEqual(sorted(os.listdir(self.folder)), ["a", "b", "c", "comet-resnet8-my_pets"])
        done = self.run_comet(*options, "folder:./a/../a/my pets", "--steps", "3", "--resume")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        done = self.run_comet(*options, "folder:b/my pets", "--steps", "4", "--resume")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\Acomet: the checkpoint is of 'folder:/[^']*/a/my pets', this is "
                                               r"'folder:/[^']*/b/my pets'; names and labels are the same[^\n]*\n\Z")
        text = self.refused(1, *options, "folder:c/my pets", "--steps", "5", "--resume", says="other names or labels")
        self.assertIn("b/my pets'", text)

    def test_other_options_are_refused(self):
        self.train("--steps", "3", "--checkpoint", "c")
        last = self.read("c/last.safetensors")
        for options in (("--codec", "none"), ("--seed", "5"), ("--lr", "0.3"), ("--batch", "8"), ("--image", "20"),
                        ("--optimiser", "adamw")):
            self.refused(1, *SMALL, "--steps", "6", "--checkpoint", "c", "--resume", *options,
                         says="%s was " % options[0])
        text = self.refused(1, *SMALL, "--steps", "6", "--checkpoint", "c", "--resume", "--lr", "0.3", "--no-augment",
                            says="--lr was 0.0125, now 0.3; --no-augment was not given, now given")
        self.assertNotIn("momentum", text)
        self.assertEqual(self.read("c/last.safetensors"), last)

    def test_damaged_checkpoint(self):
        self.train("--steps", "6", "--checkpoint", "c", "--checkpoint-every", "3")
        data = bytearray(self.read("c/last.safetensors"))
        data[-100] ^= 1
        with open(self.path("c/last.safetensors"), "wb") as file:
            file.write(data)
        done = self.run_comet(*SMALL, "--steps", "6", "--checkpoint", "c", "--resume", "--json-log", "log",
                              "--save-weights", "w.safetensors")
        self.assertEqual(done.returncode, 0)
        self.assertIn("previous.safetensors", done.stderr.decode())
        self.assertEqual(self.log("log", "start")[0]["step"], 3)
        self.assertEqual(self.read("w.safetensors"), self.weights("--steps", "6"))


class Output(Train):
    def test_log_and_summary(self):
        out = self.train("--epochs", "2", "--json-log", "log", "--report", "r.html", "--label-smoothing", "0.1",
                         "--eval-images", "30", "--warmup", "0.5", "--schedule", "cosine", "--nesterov", "--no-augment")
        for word in ("accuracy", "saved", "peak", "speed", "epoch 2, step 20"):
            self.assertIn(word, out)
        events = self.log("log")
        self.assertEqual([events[0]["event"], events[-1]["event"]], ["start", "end"])
        start, end, steps = events[0], events[-1], self.log("log", "step")
        self.assertEqual((start["model"], start["batch"], start["codec"], start["image"], start["steps"]),
                         ("resnet8", 16, "eb", [16, 16, 1], 20))
        for key in ("peak_bytes", "static_bytes", "saved_raw_bytes", "saved_stored_bytes"):
            self.assertGreater(start["plan"][key], 0)
        self.assertEqual([s["step"] for s in steps], list(range(1, 21)))
        self.assertEqual([s["epoch"] for s in steps], [0] * 10 + [1] * 10)
        self.assertLess(steps[0]["learning_rate"], 0.1 * steps[5]["learning_rate"])
        self.assertLess(steps[-1]["learning_rate"], 0.1 * steps[5]["learning_rate"])
        for step in steps:
            self.assertGreater(step["saved_raw_bytes"], 3 * step["saved_stored_bytes"])
            self.assertGreater(step["loss"], 0)
        evaluations = self.log("log", "evaluation")
        self.assertEqual([(e["step"], e["samples"]) for e in evaluations], [(10, 30), (20, 30)])
        self.assertEqual((end["state"], end["step"], end["accuracy"]), ("done", 20, evaluations[-1]["accuracy"]))
        self.assertLessEqual(end["allocated_peak_bytes"], end["planned_peak_bytes"])
        self.assertGreater(end["measured_peak_bytes"], end["static_bytes"])
        page = self.read("r.html").decode()
        self.assertIn("<svg", page)
        self.assertIn("layer1", page)

    @unittest.skipIf(case.SLOW, "what is learnt is the same with sanitizers, and takes a minute")
    def test_learns(self):
        self.train("--data", "generated:1200", "--image", "28", "--epochs", "4", "--batch", "32", "--json-log", "log")
        self.assertGreater(self.log("log", "end")[0]["accuracy"], 40)

    def test_lines_of_progress(self):
        child = self.start(*SMALL[:-1], "--epochs", "3000", "--json-log", "log", "--checkpoint", "none")
        self.addCleanup(child.kill)
        line = child.stderr.readline().decode()
        self.assertRegex(line, r"\Acomet: epoch \d+, step \d+/30000, [\w ]+ left, loss [\d.]+, accuracy [\d.]+ %, "
                         r"\d+ images/s, \d+ % of it waiting for data, "
                         r"saved [\d.]+ \w+ -> [\d.]+ \w+, peak [\d.]+ \w+\n\Z")
        with open("/proc/%d/environ" % child.pid, "rb") as file:
            self.assertIn(b"OMP_WAIT_POLICY=passive", file.read().split(b"\0"))
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertIn("stopping", err.decode())
        self.assertIn("stopped after step", out.decode())
        self.assertEqual(child.returncode, 130)

    def test_weights_of_another_number_of_classes(self):
        """Ten classes to three: the last layer begins anew, and a line says so."""
        self.train("--steps", "2", "--channels", "3", "--save-weights", "w.safetensors")
        self.make_images("set", "abc")
        options = ("train", "--model", "resnet8", "--data", "folder:set", "--image", "16", "--batch", "8", "--steps",
                   "3", "--quiet", "--checkpoint", "none")
        done = self.run_comet(*options, "--weights", "w.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("classes", done.stderr.decode())
        self.refused(1, *options, "--weights", "none.safetensors", says="none.safetensors")
        self.refused(1, *options[:2], "resnet20", *options[3:], "--weights", "w.safetensors", says="layer1.1")
        with open(self.path("set/train/a/0.png"), "wb") as file:
            file.write(b"not an image")
        done = self.run_comet(*options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0.png", done.stderr.decode())


def limit_files(size):
    """For a child: no file may grow beyond `size` bytes, as if the disk were full then."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Failures(Train):
    def test_misuse(self):
        for arguments, says in ((("--model", "resnet9"), "resnet8"), (("--data", "mnist"), "fashion-mnist"),
                                (("--data", "cifar10"), "cifar10:DIR"), (("--codec", "zip"), "eb"),
                                (("--codec", "eb:x"), "eb"), (("--codec", "pool:0"), "pool"),
                                (("--forms", "conv1"), "conv1"), (("--forms", "nothing.*=none"), "nothing"),
                                (("--memory", "lots"), "2GiB"), (("--memory", "-1"), "2GiB"),
                                (("--memory", "0"), "1 byte"), (("--batch", "0"), "--batch"),
                                (("--batch", "161"), "160"), (("--epochs", "0"), "--epochs"), (("--lr", "0"), "--lr"),
                                (("--steps", "3", "--epochs", "1"), "exclude"), (("--optimiser", "lion"), "adamw"),
                                (("--schedule", "spiral"), "one-cycle"), (("--momentum", "2"), "--momentum"),
                                (("--optimiser", "adamw", "--momentum", "0.5"), "--momentum"),
                                (("--seed", "x"), "--seed"), (("--image", "0"), "--image"),
                                (("--channels", "2"), "--channels"), (("--warmup", "5"), "warm-up"),
                                (("--error-rel", "nan"), "--error-rel"), (("--threads", "-1"), "--threads"),
                                (("--checkpoint", "none", "--resume"), "--resume"), (("--frobnicate",), "--frobnicate"),
                                (("picture.png",), "picture.png"), (("--label-smoothing", "2"), "--label-smoothing")):
            self.refused(2, *SMALL, *arguments, says=says)
        self.refused(2, "train", says="--model")
        self.refused(2, "train", "--model", "alexnet", "--data", "generated:160", says="28")
        self.assertEqual(os.listdir(self.folder), [])

    def test_data_that_is_not_there(self):
        self.refused(1, *SMALL, "--data", "folder:none", says="none")
        self.refused(1, *SMALL, "--data", "cifar10:none", says="none")
        self.refused(1, *SMALL, "--data", "fashion-mnist:none", says="none")
        os.mkdir(self.path("cut"))
        for name in [*("data_batch_%d" % i for i in range(1, 6)), "test_batch"]:
            with open(self.path("cut/%s.bin" % name), "wb") as file:
                file.write(bytes(3073 * 7 - 1))
        self.refused(1, *SMALL, "--data", "cifar10:cut", says=".bin")
        os.makedirs(self.path("empty/train"))
        self.refused(1, *SMALL, "--data", "folder:empty", says="empty")

    def test_outputs_that_cannot_be(self):
        with open(self.path("file"), "wb"):
            pass
        for options in (("--checkpoint", "file"), ("--checkpoint", "no/where"), ("--json-log", "no/log")):
            self.refused(1, *SMALL, "--steps", "2", *options, says=options[1])
        self.refused(1, *SMALL, "--steps", "2", "--spill-dir", "no", "--codec", "offload", says="no")
        self.assertEqual(os.listdir(self.folder), ["file"])

    def test_outputs_are_tried_first(self):
        """Nothing is trained, and nothing of an earlier training is changed."""
        outputs = ("--checkpoint", "c", "--save-weights", "w", "--report", "r.html", "--json-log", "log")
        self.train("--steps", "2", *outputs)
        names = ("c/last.safetensors", "w", "r.html", "log")
        before = {name: self.read(name) for name in names}
        files = sorted(os.listdir(self.folder))
        os.mkdir(self.path("folder"))
        for option in ("--save-weights", "--report", "--json-log"):
            for path in ("no/x", "folder", "", "x" * 300):
                text = self.refused(1, *SMALL, "--steps", "2", *outputs, option, path, says=option)
                self.assertIn("'%s'" % path, text)
        self.refused(2, *SMALL, *outputs, "--report", "w", says="same file")
        self.refused(1, *SMALL, "--steps", "2", *outputs, "--weights", "none", says="none")
        self.assertEqual({name: self.read(name) for name in names}, before)
        self.assertEqual(sorted(os.listdir(self.path("c"))), ["best.safetensors", "last.safetensors"])
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([*files, "folder"]))
        self.train("--steps", "2", "--checkpoint", "d", "--save-weights", "d/w", "--report", "d/r.html", "--json-log",
                   "d/log")
        self.assertEqual(sorted(os.listdir(self.path("d"))),
                         ["best.safetensors", "last.safetensors", "log", "r.html", "w"])

    def test_a_report_that_cannot_be_written_at_the_end(self):
        os.mkdir(self.path("reports"))
        for checkpoint, says in (("c", "in its checkpoint: 'c'"), ("none", "the figures above are all")):
            child = self.start(*SMALL, "--epochs", "3000", "--eval-every", "0", "--checkpoint", checkpoint,
                               "--json-log", "log", "--report", "reports/r.html")
            self.addCleanup(child.kill)
            self.wait_for(child, "log", "step", 3)
            os.rename(self.path("reports"), self.path("gone"))
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 1)
            self.assertIn("cannot write the report 'reports/r.html'", err.decode())
            self.assertIn(says, err.decode())
            self.assertIn("stopped after step", out.decode())
            os.rename(self.path("gone"), self.path("reports"))
            os.remove(self.path("log"))

    def test_full_disk_for_weights(self):
        """What is lost is not said to be there."""
        text = self.refused(1, *SMALL, "--steps", "3", "--checkpoint", "none", "--save-weights", "w",
                            preexec_fn=limit_files(50000), says="cannot write")
        self.assertIn("after step 3, and there is no checkpoint", text)
        self.assertNotIn("nothing", text)
        self.assertEqual(os.listdir(self.folder), [])

    def test_budget(self):
        """Too small: the least that would do is named, and does."""
        text = self.refused(1, *SMALL, "--steps", "2", "--memory", "100KiB", says="at least")
        least = "".join(re.search(r"at least ([\d.]+) (\w+)", text).groups())
        summary = self.train("--steps", "25", "--checkpoint", "c", "--memory", least)
        used, allowed = map(float, re.search(r"memory +([\d.]+) MiB of ([\d.]+) MiB allowed", summary).groups())
        self.assertEqual(str(allowed) + "MiB", least)
        if not case.SLOW:  # a sanitizer's own memory is not in any plan
            self.assertLessEqual(used, allowed)
        common = ("--steps", "3", "--checkpoint", "none", "--codec", "none", "--batch", "64", "--json-log")
        self.train(*common, "free")
        free = self.log("free", "end")[0]
        budget = free["planned_peak_bytes"] * 3 // 4
        self.train(*common, "tight", "--memory", str(budget))
        tight = self.log("tight", "end")[0]
        self.assertLess(tight["planned_peak_bytes"], budget)
        self.assertLess(tight["measured_peak_bytes"], free["measured_peak_bytes"])
        self.assertGreater(self.log("tight", "step")[0]["spilled_bytes"], 0)
        self.assertEqual([s["loss"] for s in self.log("tight", "step")], [s["loss"] for s in self.log("free", "step")])

    def test_full_disk_at_a_checkpoint(self):
        options = (*SMALL, "--epochs", "2", "--checkpoint", "c", "--checkpoint-every", "3")
        self.train("--steps", "5", "--checkpoint", "c", "--checkpoint-every", "2")
        before = {name: self.read("c/" + name) for name in os.listdir(self.path("c"))}
        text = self.refused(1, *options, "--resume", preexec_fn=limit_files(300000), says="cannot write")
        self.assertIn("resume from step 5", text)
        self.assertEqual({name: self.read("c/" + name) for name in os.listdir(self.path("c"))}, before)
        self.comet(*options, "--resume", "--save-weights", "w.safetensors")
        self.assertTrue(os.path.exists(self.path("w.safetensors")))

    def test_full_disk_at_a_spill(self):
        self.refused(1, *SMALL, "--steps", "5", "--codec", "offload", "--checkpoint", "none",
                     preexec_fn=limit_files(100000), says="another folder")


if __name__ == "__main__":
    case.main(__doc__)
