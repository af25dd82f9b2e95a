# SPDX-License-Identifier: Apache-2.0
"""bench/trainer's scripts for PyTorch run, and print what step_table.py reads: on a CPU, in sizes that say nothing.

usage: test_trainer_bench.py [TEST...]
"""
import with_torch  # noqa: F401 (goes on with a Python that has PyTorch)

import json  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import unittest  # noqa: E402

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "trainer")
SMALL = ("--device", "cpu", "--model", "resnet18", "--image", "32", "--dtype", "fp32")


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="comet_trainer_bench_")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "found.json")

    def run_script(self, name, *arguments):
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, name), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def found(self):
        with open(self.path) as file:
            return json.load(file)

    def test_step(self):
        self.run_script("torch_step.py", *SMALL, "--batch", "2", "--variants", "eager,checkpoint", "--settle", "2",
                        "--steps", "1", "--row", "1", "--ready", "2", "--json", self.path)
        eager, checkpoint = self.found()["results"]
        for key in ("ms", "least_ms", "most_ms", "row_ms", "issue_ms", "images_per_second", "loss", "peak_bytes",
                    "first_peak_bytes", "static_bytes", "saved_raw_bytes"):
            self.assertGreater(eager[key], 0, key)
        self.assertEqual(len(eager["first_steps_ms"]), 2)
        self.assertEqual(checkpoint["variant"], "checkpoint")
        table = self.run_script("step_table.py", self.path)
        self.assertIn("PyTorch checkpoint", table)

    def test_largest_batch(self):
        self.run_script("torch_caps.py", *SMALL, "--caps", "3", "--variants", "eager", "--plans", "2,3", "--multiple",
                        "1", "--steps", "1", "--timed", "1", "--json", self.path)
        row, = self.found()["runs"]
        self.assertEqual((row["batch"], row["too_large"]), (3, 4))
        self.assertGreater(row["images_per_second"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
