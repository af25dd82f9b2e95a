#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""comet evaluate and comet predict from outside: the same figures as in training, names of classes, files and folders.

usage: test_predict.py COMET [TEST...]
"""
import csv
import io
import json
import os
import shutil
import struct

import case
import images

SMALL = ("train", "--model", "resnet8", "--image", "16", "--threads", "2", "--quiet", "--no-augment")


def without_metadata(data):
    """A weight file as others write them."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    del header["__metadata__"]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length:]


class Predict(case.Case):
    def train(self, data, *arguments):
        self.comet(*SMALL, "--data", data, *arguments)

    def answer(self, *arguments):
        return json.loads(self.comet(*arguments, "--json", "--quiet", "--threads", "2"))

    def rows(self, *arguments):
        return list(csv.reader(io.StringIO(self.comet(*arguments, "--csv", "--quiet", "--threads", "2"))))

    def make_pets(self):
        images.make_folder(self.path("pets"), ("big dog", "cat", "cow"))
        self.train("folder:pets", "--batch", "8", "--epochs", "6", "--checkpoint", "c", "--save-weights",
                   "w.safetensors", "--json-log", "log")


class Evaluate(Predict):
    def test_as_in_training(self):
        """Loss and accuracy are those of the run's last evaluation; all sums are right."""
        self.train("generated:300", "--batch", "20", "--epochs", "2", "--checkpoint", "c", "--json-log", "log",
                   "--save-weights", "w.safetensors")
        end = [json.loads(line) for line in self.read("log").decode().splitlines()][-1]
        for source in ("c/last.safetensors", "w.safetensors"):
            found = self.answer("evaluate", "--from", source)
            self.assertEqual((found["model"], found["image"], found["data"]), ("resnet8", [16, 16, 1],
                                                                               "generated:300"))
            self.assertEqual((found["images"], found["accuracy"], found["top5"]), (60, end["accuracy"], end["top5"]))
            self.assertAlmostEqual(found["loss"], end["loss"], places=5)
            self.assertEqual([c["name"] for c in found["classes"]][:3], ["disc", "ring", "square"])
            for number, row in enumerate(found["confusion"]):
                self.assertEqual(sum(row), found["classes"][number]["images"])
            right = sum(row[i] for i, row in enumerate(found["confusion"]))
            self.assertAlmostEqual(found["accuracy"], 100 * right / 60)
        rows = self.rows("evaluate", "--from", "c/last.safetensors")
        self.assertEqual(rows[0], ["image", "class", "taken_for", "probability", "probability_of_class"])
        self.assertEqual((len(rows), sum(row[1] == row[2] for row in rows[1:])), (61, right))
        self.assertEqual(self.answer("evaluate", "--from", "c", "--images", "30")["images"], 30)
        text = self.comet("evaluate", "--from", "c", "--quiet")
        for word in ("weights", "best.safetensors", "accuracy", "most often taken for", "Confusion", "checkerboard"):
            self.assertIn(word, text)

    def test_folders(self):
        """Classes by their names, files by theirs."""
        self.make_pets()
        found = self.answer("evaluate", "--from", "c")
        self.assertEqual([c["name"] for c in found["classes"]], ["big dog", "cat", "cow"])
        rows = self.rows("evaluate", "--from", "c")
        self.assertIn("big dog/0.png", [row[0] for row in rows])
        images.make_folder(self.path("few"), ("big dog", "cat", "cow"))
        for split in ("train", "val"):
            shutil.rmtree(self.path("few/%s/big dog" % split))
        some = self.answer("evaluate", "--from", "c", "--data", "folder:few")
        self.assertEqual([c["images"] for c in some["classes"]], [0, 8, 8])
        self.assertEqual(some["confusion"][1:], found["confusion"][1:])
        images.make_folder(self.path("other"), ("cat", "goose"))
        self.refused(1, "evaluate", "--from", "c", "--data", "folder:other", says="'goose'")

    def test_refused(self):
        self.train("generated:100", "--batch", "20", "--steps", "2", "--checkpoint", "c", "--save-weights", "w")
        with open(self.path("plain"), "wb") as file:
            file.write(without_metadata(self.read("w")))
        self.refused(2, "evaluate", "--from", "plain", says="--model")
        self.refused(2, "evaluate", "--from", "plain", "--model", "resnet8", says="--data")
        self.refused(2, "evaluate", "--from", "w", "--model", "resnet20", says="resnet8")
        self.refused(2, "evaluate", says="--from")
        self.refused(2, "evaluate", "--from", "c", "--json", "--csv", says="exclude")
        self.refused(1, "evaluate", "--from", ".", says="no checkpoint")
        self.refused(1, "evaluate", "--from", "none", says="'none'")
        found = self.answer("evaluate", "--from", "plain", "--model", "resnet8", "--data", "generated:100", "--image",
                            "16")
        self.assertEqual((found["images"], found["image"]), (20, [16, 16, 1]))
        self.assertEqual(found["classes"][0]["name"], "class 0")


class Images(Predict):
    def test_names(self):
        """A folder of checkpoints and a picture are enough."""
        self.make_pets()
        self.assertRegex(self.comet("predict", "--from", "c", "pets/val/cat/0.png"),
                         r"\Apets/val/cat/0.png: (big dog|cat|cow), [\d.]+ %\n\Z")
        self.assertEqual(self.comet("predict", "--from", "c", "--top", "9", "pets/val/cat/0.png").count(" %  "), 3)
        found = self.answer("predict", "--from", "c", "--top", "3", "pets/val/cow", "pets/val/cat/1.png")
        self.assertEqual([os.path.basename(i["image"]) for i in found["images"]],
                         ["%d.png" % i for i in range(8)] + ["1.png"])
        taken = {row[0]: row[2] for row in self.rows("evaluate", "--from", "c")}
        for image in found["images"]:
            chances = [c["probability"] for c in image["classes"]]
            self.assertAlmostEqual(sum(chances), 1, places=6)
            self.assertEqual(chances, sorted(chances, reverse=True))
            self.assertEqual(image["classes"][0]["name"], taken["/".join(image["image"].split("/")[2:])])
        rows = self.rows("predict", "--from", "w.safetensors", "--top", "2", "pets/val")
        self.assertEqual((rows[0], len(rows)), (["image", "rank", "class", "probability"], 1 + 2 * 24))

    def test_files_that_cannot_be_used(self):
        """The others are shown."""
        self.make_pets()
        with open(self.path("pets/val/broken.jpg"), "wb") as file:
            file.write(b"not an image")
        done = self.run_comet("predict", "--from", "c", "pets/val", "--quiet")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (1, 24))
        self.assertIn("broken.jpg", done.stderr.decode())
        self.assertIn("1 of 25 files", done.stderr.decode())
        os.mkfifo(self.path("pipe.jpg"))
        self.refused(1, "predict", "--from", "c", "pipe.jpg", says="not a regular file")
        self.refused(1, "predict", "--from", "c", "none.jpg", says="none.jpg")
        self.refused(1, "predict", "--from", "pipe.jpg", "pets/val/cat/0.png", says="not a regular file")
        self.refused(2, "predict", "--from", "c", says="no image")
        os.mkdir(self.path("empty"))
        self.refused(1, "predict", "--from", "c", "empty", says="no JPEG")


if __name__ == "__main__":
    case.main(__doc__)
