# SPDX-License-Identifier: Apache-2.0
"""Weights from PyTorch to Comet and back, by the scripts of examples/torch: what a network predicts stays the same.

usage: test_weight_scripts.py COMET
Skipped (77), with the reason, where there is no PyTorch: scripts/torch_venv.sh.
"""
import contextlib
import csv
import io
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import with_torch  # noqa: F401  (before torch: another Python may have it)

import torch
import torchvision

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "examples", "torch")
sys.path += [SCRIPTS, os.path.join(HERE, "..", "cmd")]

import images  # noqa: E402
import weight_file  # noqa: E402
import weights_from_torch  # noqa: E402
import weights_to_torch  # noqa: E402

COMET = None
NAMES = ["ant", "big bee", "cow"]


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="comet_weights_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def script(self, module, *arguments):
        """Its main, in this process: PyTorch takes seconds to import. None, or why it ended."""
        words = [os.path.join(self.folder, w) if "." in w else w for w in arguments]
        with mock.patch.object(sys, "argv", [module.__name__, *words]), \
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                module.main()
            except SystemExit as end:
                return str(end.code) + errors.getvalue()
        return None

    def network(self):
        """A ResNet-18 whose batch norms have seen something."""
        torch.manual_seed(3)
        model = torchvision.models.resnet18(num_classes=3)
        with torch.no_grad():
            for _ in range(3):
                model(torch.randn(8, 3, 64, 64))
        return model.eval()

    def test_there_and_back(self):
        model = self.network()
        torch.save({"state_dict": {"module." + k: v for k, v in model.state_dict().items()}, "epoch": 3},
                   self.path("a.pth"))
        with open(self.path("names.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(NAMES) + "\n")
        self.assertIsNone(self.script(weights_from_torch, "a.pth", "a.safetensors", "--model", "resnet18", "--image",
                                      "64", "--labels", "names.txt"))
        self.assertIsNone(self.script(weights_to_torch, "a.safetensors", "b.pth"))
        again = torch.load(self.path("b.pth"), weights_only=True)
        self.assertEqual(set(again), set(model.state_dict()))
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(again[name], value), name)
        self.predicts_alike(model)

    def predicts_alike(self, model):
        """Pictures of one colour are the same whatever is done to their size."""
        images.make_folder(self.path("set"), NAMES, count=2)
        done = subprocess.run([COMET, "predict", "--from", "a.safetensors", "--top", "3", "--csv", "set/val"],
                              cwd=self.folder, check=True, capture_output=True, text=True)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertEqual(len(rows), 3 * 6)
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        for number, name in enumerate(NAMES):
            for i in range(2):
                colour = [20 + 3 * i] * 3
                colour[number] = 220 - 3 * i
                pixel = (torch.tensor(colour) / 255 - mean) / deviation
                with torch.no_grad():
                    expected = model(pixel.reshape(1, 3, 1, 1).expand(1, 3, 64, 64)).softmax(1)[0]
                of = {r["class"]: float(r["probability"]) for r in rows
                      if r["image"] == "set/val/%s/%d.png" % (name, i)}
                for k, label in enumerate(NAMES):
                    self.assertAlmostEqual(of[label], float(expected[k]), places=4)

    def test_of_comet(self):
        """What Comet writes is loaded, checkpoints too; ONNX where there is the package for it."""
        images.make_folder(self.path("set"), NAMES)
        subprocess.run([COMET, "train", "--model", "resnet18", "--data", "folder:set", "--image", "64", "--batch", "8",
                        "--steps", "2", "--checkpoint", "c", "--quiet"], cwd=self.folder, check=True,
                       capture_output=True)
        for source in ("c/best.safetensors", "c/last.safetensors"):
            self.assertIsNone(self.script(weights_to_torch, source, "x.pth"))
            model = torchvision.models.resnet18(num_classes=3)
            model.load_state_dict(torch.load(self.path("x.pth"), weights_only=True))
            self.assertEqual(weight_file.parse_images(weight_file.read(self.path(source))[1]["comet.images"])[3], NAMES)
        try:
            import onnx
        except ImportError:
            print("without the package onnx no ONNX model is made", file=sys.stderr)
            return
        self.assertIsNone(self.script(weights_to_torch, "c/best.safetensors", "x.onnx"))
        onnx.checker.check_model(self.path("x.onnx"))

    def test_refused(self):
        torch.save([1, 2], self.path("list.pth"))
        self.assertIn("no state_dict", self.script(weights_from_torch, "list.pth", "x.safetensors"))
        self.assertIn("either a file", self.script(weights_from_torch, "x.safetensors"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    COMET = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
