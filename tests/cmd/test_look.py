#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""comet look from outside: layers of trained networks side by side.  usage: test_look.py COMET [TEST...]"""
import base64
import json
import re

import case
import images

SMALL = ("train", "--model", "resnet8", "--image", "16", "--threads", "2", "--quiet", "--no-augment")
LAYERS = ["conv1", "layer1.0.conv1", "layer1.0.conv2", "layer2.0.conv1", "layer2.0.conv2", "layer3.0.conv1",
          "layer3.0.conv2", "fc"]


class Look(case.Case):
    def train(self, name, *arguments, data="generated:300", steps="8"):
        self.comet(*SMALL, "--data", data, "--batch", "20", "--steps", steps, "--checkpoint", name, *arguments)

    def look(self, *arguments):
        return json.loads(self.comet("look", *arguments, "--json", "--quiet", "--threads", "2"))

    def test_json(self):
        """The same network is the same; another training is something else; accuracies are those of an evaluation."""
        self.train("a", "--codec", "none")
        self.train("b", "--codec", "pool:2")
        self.train("c", "--codec", "none", "--seed", "7")
        found = self.look("--from", "a", "--from", "b", "c", "--from", "a/last.safetensors", "--batch", "20")
        self.assertEqual((found["model"], found["data"], found["image"], found["images"], found["batch"]),
                         ("resnet8", "generated:300", [16, 16, 1], 60, 20))
        self.assertEqual([n["name"] for n in found["networks"]],
                         ["none, seed 1 (a)", "pool:2", "none, seed 7", "none, seed 1 (last)"])
        for network, path in zip(found["networks"], ("a", "b", "c")):
            done = json.loads(self.comet("evaluate", "--from", path, "--json", "--quiet"))
            self.assertAlmostEqual(network["accuracy"], done["accuracy"], places=9)
            self.assertEqual(network["weights"], path + "/best.safetensors")
        self.assertEqual(found["networks"][0]["as_the_first"], 100)
        self.assertEqual([layer["name"] for layer in found["layers"]], LAYERS)
        self.assertEqual([layer["shape"] for layer in found["layers"]][-2:], [[4, 4, 64], [1, 1, 10]])
        for layer in found["layers"]:
            itself, pool, other, last = layer["cka"]
            self.assertAlmostEqual(itself, 1, places=12)
            self.assertAlmostEqual(last, 1, places=12)
            self.assertTrue(0.1 < pool < 1 - 1e-9 and 0 < other < 1 - 1e-9, layer)
        mean = [sum(layer["cka"][k] for layer in found["layers"]) for k in range(3)]
        self.assertTrue(mean[0] > mean[1] > mean[2], mean)

    def test_batches(self):
        """The estimate does not depend on the batch, but for chance; nor do the networks' answers. Again: the same."""
        self.train("a", "--codec", "none", steps="20")
        self.train("b", "--codec", "none", "--seed", "2", steps="20")
        all_at_once, again = (self.look("--from", "a", "b", "--batch", "60") for _ in range(2))
        self.assertEqual(all_at_once, again)
        for batch in ("10", "25", "7"):
            parts = self.look("--from", "a", "b", "--batch", batch)
            self.assertEqual(parts["networks"], all_at_once["networks"])
            for one, other in zip(parts["layers"], all_at_once["layers"]):
                self.assertAlmostEqual(one["cka"][1], other["cka"][1], delta=0.15)
        self.assertEqual(self.look("--from", "a", "b", "--images", "30")["images"], 30)
        self.assertEqual(self.look("--from", "a", "b", "--images", "30")["batch"], 30)

    def test_table_and_report(self):
        """Pictures that can be read, within the page, which is small; a report's tables; both say which is which."""
        self.train("a", "--codec", "none")
        self.train("b", "--codec", "eb")
        self.train("c", "--control", "acgc")
        out = self.comet("look", "--from", "a", "b", "c", "--quiet", "--report", "r.html")
        self.assertRegex(out, r"(?m)^none +[\d.]+ % +100\.00 %  a/best")
        self.assertRegex(out, r"(?m)^layer +output +eb +acgc$")
        self.assertRegex(out, r"(?m)^layer1\.0\.conv2 +16x16x16 +[01]\.\d{4} +[01]\.\d{4}$")
        self.assertIn("Report: r.html", out)
        page = self.read("r.html").decode()
        for text in ("<svg", "CKA", "Filters of the first layer, conv1", "What layers make of image 3", "taken for",
                     "same number: ", "acgc", "prefers-color-scheme:dark"):
            self.assertIn(text, page)
        self.assertLess(len(page), 2 << 20)
        self.assertNotRegex(page, r"(?i)https?:|<link|<script|@import|url\(|\bhref=")
        sources = re.findall(r'\bsrc="data:image/png;base64,([^"]*)"', page)
        self.assertEqual(len(sources), page.count("<img"))
        sizes = [images.read_png(base64.b64decode(source))[:2] for source in sources]
        depths = 4  # conv1, ..., layer3.0.conv2, of four channels each
        self.assertEqual(len(sizes), 3 + 3 * (3 + 3 * depths * 4))
        self.assertEqual(sizes[:3], [(8 * 4 - 1, 2 * 4 - 1)] * 3)
        self.assertEqual(set(sizes[3:]), {(16, 16), (8, 8), (4, 4)})

    def test_names(self):
        self.train("a", "--codec", "none", "--save-weights", "mine.safetensors")
        self.train("b", "--codec", "eb:0.2", "--forms", "bn1=none")
        self.train("c", "--codec", "eb", "--error-rel", "0.1")

        def names(*arguments):
            return [n["name"] for n in self.look(*arguments)["networks"]]
        self.assertEqual(names("--from", "mine.safetensors", "--from", "b", "c"),
                         ["mine", "eb:0.2, bn1=none", "eb:0.1"])
        self.assertEqual(names("--from", "a", "b", "--names", "as it was,mine"), ["as it was", "mine"])
        self.assertEqual(names("--from", "b/last.safetensors", "b/best.safetensors"),
                         ["eb:0.2, bn1=none, seed 1 (last)", "eb:0.2, bn1=none, seed 1 (best)"])

    def test_colours_and_folders(self):
        """Images in colour; classes of which each has few; files that cannot be used are left out."""
        images.make_folder(self.path("pets"), ("cat", "cow", "dog"))
        for name, codec in (("a", "none"), ("b", "eb")):
            self.comet(*SMALL, "--data", "folder:pets", "--batch", "8", "--epochs", "3", "--codec", codec,
                       "--checkpoint", name)
        found = self.look("--from", "a", "b", "--report", "r.html")
        self.assertEqual((found["images"], found["batch"], found["image"]), (24, 24, [16, 16, 3]))
        page = self.read("r.html").decode()
        shown = re.findall(r"What layers make of image \d: (\w+)", page)
        self.assertEqual(sorted(shown), ["cat", "cow", "dog"])
        with open(self.path("pets/val/cat/0.png"), "wb") as file:
            file.write(b"not an image")
        done = self.run_comet("look", "--from", "a", "b", "--json", "--quiet")
        self.assertEqual((done.returncode, json.loads(done.stdout)["images"]), (0, 23))
        self.assertIn("0.png", done.stderr.decode())

    def test_progress(self):
        self.train("a")
        done = self.run_comet("look", "--from", "a", "a")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\A(comet: [^\n]*\n)*\Z")

    def test_refused(self):
        self.train("a")
        self.train("other", "--model", "resnet20")
        self.train("large", "--image", "20")
        self.train("few", "--batch", "4", data="generated:15", steps="2")
        for arguments, says in (((), "2 to 6"), (("--from", "a"), "2 to 6"), (("--from", *"aaaaaaa"), "2 to 6"),
                                (("--from", "a", "a", "--images", "3"), "--images"),
                                (("--from", "a", "a", "--batch", "3"), "--batch"),
                                (("--from", "a", "a", "--batch", "513"), "--batch"),
                                (("--from", "a", "a", "--names", "x"), "1 names for 2"),
                                (("--from", "a", "a", "--model", "resnet20"), "resnet8"),
                                (("--from", "a", "a", "--threads", "x"), "--threads"),
                                (("--from", "a", "a", "--", "more"), "'more'")):
            self.refused(2, "look", *arguments, says=says)
        for arguments, says in ((("--from", "a", "none"), "'none'"), (("--from", "a", "other"), "resnet20"),
                                (("--from", "a", "large"), "20x20x1"), (("--from", "a", "."), "no checkpoint"),
                                (("--from", "few", "few"), "at least 4"),
                                (("--from", "a", "a", "--report", "no/r.html"), "no/r.html")):
            self.refused(1, "look", *arguments, "--quiet", says=says)

    def test_help(self):
        self.assertIn("look", self.comet("--help"))
        for text in ("--from PATH", "--report FILE.html", "CKA", "Examples:"):
            self.assertIn(text, self.comet("look", "--help"))


if __name__ == "__main__":
    case.main(__doc__)
