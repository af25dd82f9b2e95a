#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Options of comet train that change what is trained and how long, files of options, tables, and hints.

usage: test_train_options.py COMET [TEST...]
"""
import csv
import html
import json
import os
import re
import struct
import zlib

import case
import images

SMALL = ("train", "--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2",
         "--quiet")


def tensors(data):
    """{name: checksum} of a weight file."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    sums = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            sums[name] = zlib.crc32(data[8 + length + first:8 + length + end])
    return sums


class Options(case.Case):
    def train(self, *arguments):
        return self.comet(*SMALL, *arguments)

    def log(self, name, event):
        return [line for line in map(json.loads, self.read(name).decode().splitlines()) if line["event"] == event]


class Freezing(Options):
    def changed(self, *arguments):
        """Names of tensors that training has changed."""
        self.train("--steps", "4", "--checkpoint", "none", "--weights", "first", "--save-weights", "w", *arguments)
        before, after = tensors(self.read("first")), tensors(self.read("w"))
        self.assertEqual(set(before), set(after))
        return {name for name in before if before[name] != after[name]}

    def test_weights_stay(self):
        self.train("--steps", "1", "--checkpoint", "none", "--save-weights", "first")
        everything = self.changed()
        for optimiser in (("--momentum", "0.9"), ("--optimizer", "adamw"), ("--momentum", "0"),
                          ("--nesterov", "--weight-decay", "0.1")):
            left = self.changed("--freeze", "conv1,layer1.*,fc.bias", *optimiser)
            frozen = {name for name in everything if re.match(r"conv1|layer1|fc.bias", name) and "running" not in name
                      and "batches" not in name}
            self.assertEqual(left, everything - frozen)
            self.assertGreater(len(frozen), 5)
        left = {name for name in self.changed("--freeze", "*,!fc") if "running" not in name and "batches" not in name}
        self.assertEqual(left, {"fc.weight", "fc.bias"})

    def test_a_sweep_leaves_them_out(self):
        """There is no gradient to put an error into."""
        found = json.loads(self.comet("sweep", *SMALL[1:], "--steps", "1", "--sigma", "0.1", "--state", "none",
                                      "--freeze", "*,!fc,!layer3.*", "--json"))
        self.assertEqual({row["layer"] for row in found["layers"]},
                         {"fc", "layer3.0.conv1", "layer3.0.conv2"})
        self.refused(2, *SMALL, "--steps", "1", "--checkpoint", "none", "--freeze", "conv1", "--inject-error",
                     "conv1:0.1", says="no layer with trained weights is called 'conv1'")

    def test_goes_on_with_the_same(self):
        self.train("--steps", "2", "--checkpoint", "c", "--freeze", "conv1")
        self.refused(1, *SMALL, "--steps", "4", "--checkpoint", "c", "--resume",
                     says="--freeze was conv1, now not given")
        self.train("--steps", "4", "--checkpoint", "c", "--freeze", "conv1", "--resume")
        for optimiser in ("sgd", "adamw"):
            options = ("--freeze", "conv1,bn1,layer2.*", "--optimiser", optimiser, "--schedule", "constant")
            self.train(*options, "--steps", "4", "--checkpoint", "none", "--save-weights", "whole")
            self.train(*options, "--steps", "2", "--checkpoint", optimiser)
            self.train(*options, "--steps", "4", "--checkpoint", optimiser, "--resume", "--save-weights", "halves")
            self.assertEqual(tensors(self.read("whole")), tensors(self.read("halves")))
        self.refused(2, *SMALL, "--freeze", "conv9", says="'conv9'")
        self.refused(2, *SMALL, "--freeze", "*", says="nothing to train")
        self.refused(2, *SMALL, "--freeze", "conv1,,fc", says="no list")


class Evaluations(Options):
    def test_best_and_patience(self):
        """The file has the weights of the best evaluation; a rate that is too high makes the run end early."""
        summary = self.train("--epochs", "40", "--lr", "2", "--schedule", "constant", "--patience", "2",
                             "--checkpoint", "c", "--json-log", "log")
        found, end = self.log("log", "evaluation"), self.log("log", "end")[0]
        self.assertLess(len(found), 40)
        best = max(found, key=lambda e: e["accuracy"])
        self.assertEqual((end["state"], end["ended_early"], end["best_step"], end["best_accuracy"], end["step"]),
                         ("done", True, best["step"], best["accuracy"], best["step"] + 20))
        self.assertEqual(len(found), best["step"] // 10 + 2)
        self.assertIn("early", summary)
        evaluated = json.loads(self.comet("evaluate", "--from", "c", "--json", "--quiet"))
        self.assertEqual((evaluated["accuracy"], os.path.basename(evaluated["weights"])),
                         (best["accuracy"], "best.safetensors"))
        self.refused(2, *SMALL, "--patience", "2", "--eval-every", "0", says="--eval-every")

    def test_best_over_an_interruption(self):
        """A run that goes on knows the best there was; one that begins anew puts it aside."""
        options = ("--lr", "0.4", "--schedule", "constant", "--checkpoint", "c", "--json-log", "log")
        self.train("--steps", "27", *options)
        self.train("--epochs", "5", *options, "--resume")
        best = max(self.log("log", "evaluation"), key=lambda e: e["accuracy"])
        self.assertEqual(self.log("log", "end")[1]["best_step"], best["step"])
        evaluated = json.loads(self.comet("evaluate", "--from", "c/best.safetensors", "--json", "--quiet"))
        self.assertEqual(evaluated["accuracy"], best["accuracy"])
        before = self.read("c/best.safetensors")
        self.train("--steps", "2", *options)
        self.assertTrue(self.read("c/earlier-best.safetensors") == before)

    def test_split(self):
        images.make_folder(self.path("pets"), ("a", "b"), splits=("train",), count=10)
        images.make_folder(self.path("flat"), ("x",), splits=("a", "b"), count=10)
        for data in ("pets", "flat"):
            done = self.run_comet("train", "--model", "resnet8", "--data", "folder:" + data, "--image", "16",
                                  "--batch", "8", "--steps", "2", "--checkpoint", "none")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("'%s' has no val/ or test/: 4 of its 20 images are kept" % data, done.stderr.decode())
            self.assertIn("16 images to train with, 4 to evaluate with", done.stdout.decode())


class Files(Options):
    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def test_config(self):
        self.write("run.cfg", "# small\nmodel = resnet8\n--data = 'generated:160'\nimage=16\nbatch = 16  # images\n"
                              "steps = 3\nquiet\nnesterov = no\nno-augment = yes\nforms = layer1.*=eb:0.1\n\n"
                              "checkpoint = none\nseed = 1\nseed = 7\n")
        self.comet("train", "--config", "run.cfg", "--save-weights", "a", "--threads", "2")
        self.comet(*SMALL, "--steps", "3", "--no-augment", "--forms", "layer1.*=eb:0.1", "--checkpoint", "none",
                   "--seed", "7", "--save-weights", "b")
        self.assertEqual(tensors(self.read("a")), tensors(self.read("b")))
        self.comet("train", "--config", "run.cfg", "--epochs", "1", "--json-log", "log", "--seed", "9")
        self.assertEqual((self.log("log", "end")[0]["step"], self.log("log", "start")[0]["seed"]), (10, 9))
        for text, says in (("batches = 3", "did you mean batch?"), ("steps =", "needs a value"),
                           ("quiet = perhaps", "yes or no"), ("\n\nzzz = 1", "line 3")):
            self.write("bad.cfg", text)
            self.refused(2, "train", "--config", "bad.cfg", says=says)
        self.refused(1, "train", "--config", "none.cfg", says="none.cfg")

    def test_csv_log(self):
        self.train("--steps", "12", "--checkpoint", "c", "--csv-log", "t.csv", "--json-log", "log")
        self.train("--steps", "14", "--checkpoint", "c", "--csv-log", "t.csv", "--resume")
        with open(self.path("t.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        steps = [row for row in rows if row["loss"]]
        self.assertEqual([int(row["step"]) for row in steps], list(range(1, 15)))
        for row, line in zip(steps, self.log("log", "step")):
            self.assertAlmostEqual(float(row["loss"]), line["loss"], places=6)
            self.assertEqual(int(row["saved_stored_bytes"]), line["saved_stored_bytes"])
        self.assertEqual([int(row["step"]) for row in rows if row["evaluation_accuracy"]], [10, 12, 14])
        self.refused(2, *SMALL, "--csv-log", "log", "--json-log", "log", says="the same file")
        self.refused(1, *SMALL, "--csv-log", "no/t.csv", says="--csv-log")


class Reports(Options):
    def test_what_was_asked_for(self):
        """Where the data lay, what was settled, and what was typed."""
        images.make_folder(self.path("my pets"), ("a", "b"), splits=("train",), count=10)
        self.comet("train", "--model", "resnet8", "--data", "folder:my pets", "--image", "16", "--batch", "8",
                   "--steps", "2", "--checkpoint", "none", "--quiet", "--freeze", "conv1", "--report", "r.html")
        page = html.unescape(self.read("r.html").decode())
        for text in ("folder:%s/my pets" % os.path.realpath(self.folder), "16 to train with, 4 to evaluate with",
                     "2 steps", "sgd, momentum 0.9, weight decay 0.0001", "conv1", "eb under comet",
                     "<pre>comet train --model resnet8 --data 'folder:my pets' --image 16", "--report r.html</pre>"):
            self.assertIn(text, page)

    def test_pictures_of_nothing(self):
        """Two variants are two points, and the table has them."""
        options = ("--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2",
                   "--quiet", "--steps", "30", "--eval-every", "0", "--state", "none", "--report", "r.html",
                   "--variants")
        for variants in ("none,eb", "none,eb,pool:2,group:2"):
            self.comet("compare", *options, variants)
            page = self.read("r.html").decode()
            runs = re.search(r"What was asked for.*", page, re.S).group()
            self.assertNotIn("under comet", runs[:runs.index("</table>")])
            self.assertIn("--variants " + variants, page)
            self.assertEqual("Accuracy at the end against" in page, variants.count(",") > 1)


class Hints(Options):
    def test_hints(self):
        for arguments, says in ((("trian",), "did you mean train?"), (("train", "--epoch", "3"), "mean --epochs?"),
                                (("train", "--optimzer", "sgd"), "mean --optimizer?"),
                                (("train", "--model", "resnet2O"), "mean resnet20?"),
                                (("train", "--model", "resnet8", "--codec", "poool:2"), "mean pool?"),
                                (("train", "--model", "resnet8", "--data", "cifar"), "mean cifar10?"),
                                (("train", "--model", "resnet8", "--data", "."), "mean folder:.?"),
                                (("compare", "--model", "resnet8", "--variants", "none,comt"), "mean comet?"),
                                (("plan", "--model", "vgg61"), "mean vgg16?"), (("plan", "--memmory", "1"),
                                                                                "mean --memory?")):
            self.refused(2, *arguments, says=says)
        for arguments in (("frobnicate",), ("train", "--xyzzy"), ("train", "--model", "gpt")):
            self.assertNotIn("did you mean", self.refused(2, *arguments))


if __name__ == "__main__":
    case.main(__doc__)
