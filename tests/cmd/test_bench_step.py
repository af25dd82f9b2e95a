# SPDX-License-Identifier: Apache-2.0
"""comet bench step and comet bench loader, on a CPU; the scripts of bench/trainer that need no PyTorch.

usage: test_bench_step.py COMET
"""
import json
import os
import subprocess
import sys

import case

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SMALL = ("--model", "resnet8", "--image", "32", "--batch", "8", "--steps", "2", "--row", "2", "--quiet")


class Step(case.Case):
    def measure(self, *arguments):
        return json.loads(self.comet("bench", "step", *SMALL, "--json", *arguments))

    def test_what_a_step_takes(self):
        found = self.measure("--settle", "3", "--variants", "none,eb")
        self.assertEqual((found["model"], found["batch"], found["image"]), ("resnet8", 8, 32))
        none, eb = found["results"]
        self.assertEqual([row["variant"] for row in found["results"]], ["none", "eb"])
        for row in (none, eb):
            self.assertEqual(row["dtype"], "fp32")
            self.assertEqual(row["updates_before"], 3)
            self.assertEqual(len(row["first_steps_ms"]), 3)
            self.assertTrue(all(ms > 0 for ms in row["first_steps_ms"]), row)
            self.assertGreater(row["start_ms"], 0)
            self.assertLessEqual(row["least_ms"], row["ms"])
            self.assertLessEqual(row["ms"], row["most_ms"])
            self.assertGreater(row["row_ms"], 0)
        self.assertLess(eb["saved_stored_bytes"], none["saved_stored_bytes"] / 4)

    def test_no_updates_before(self):
        row, = self.measure("--settle", "0", "--variants", "none")["results"]
        self.assertEqual(row["first_steps_ms"], [])
        self.assertEqual(row["updates_before"], 0)

    def test_at_most_eight_first_steps(self):
        row, = self.measure("--settle", "10", "--variants", "none")["results"]
        self.assertEqual(len(row["first_steps_ms"]), 8)

    def test_a_variant_that_fails_leaves_the_others(self):
        done = self.run_comet("bench", "step", *SMALL, "--settle", "1", "--variants", "offload,none", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        first, second = json.loads(done.stdout)["results"]
        self.assertIn("directory", first["failed"])
        self.assertIn("ms", second)


class Loader(case.Case):
    def test_images_a_second(self):
        found = json.loads(self.comet("bench", "loader", "--image", "24", "--batch", "16", "--threads", "1,2",
                                      "--batches", "3", "--warm-up", "1", "--json", "--quiet"))
        self.assertEqual((found["height"], found["width"], found["batch"]), (24, 24, 16))
        self.assertEqual([row["threads"] for row in found["results"]], [1, 2])
        for row in found["results"]:
            self.assertAlmostEqual(row["images_per_second"] * row["ms_per_batch"], 16000, delta=1)
            self.assertGreater(row["first_batch_ms"], 0)

    def test_a_table(self):
        text = self.comet("bench", "loader", "--batch", "16", "--batches", "2", "--quiet")
        self.assertIn("images/s", text)

    def test_what_cannot_be(self):
        self.refused(2, "bench", "loader", "--threads", "many", says="--threads")
        self.refused(2, "bench", "loader", "--channels", "2", says="grey")
        self.refused(2, "bench", "loader", "operand", says="operand")
        self.refused(1, "bench", "loader", "--data", "folder:" + self.path("none"), says="no folder")


def row(variant, dtype, ms, peak, **more):
    return {"variant": variant, "dtype": dtype, "ms": ms, "row_ms": ms, "peak_bytes": peak << 20,
            "first_peak_bytes": peak << 20, "static_bytes": 100 << 20, "saved_raw_bytes": 800 << 20,
            "saved_stored_bytes": 800 << 20, "first_steps_ms": [9 * ms, ms], "images_per_second": 1e3, **more}


class Table(case.Case):
    def write(self, name, **found):
        with open(self.path(name), "w") as file:
            json.dump({"device": "cuda", "model": "resnet50", "batch": 128, "image": 224, **found}, file)
        return self.path(name)

    def table(self, *paths):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "trainer", "step_table.py"), *paths],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def test_both_tools_in_one_table(self):
        ours = self.write("ours.json", comet="0.1", results=[
            row("none", "tf32", 40.0, 1100), row("eb", "tf32", 44.0, 300, saved_stored_bytes=40 << 20),
            {"variant": "pool:2", "dtype": "tf32", "failed": "no room | at all"}])
        theirs = self.write("theirs.json", torch="2.11", results=[
            row("eager", "tf32", 50.0, 2100, saved_stored_bytes=None, allocated_peak_bytes=1900 << 20)])
        text = self.table(ours, theirs)
        eager, none, eb, pool = [line for line in text.splitlines() if line.startswith("| resnet50")]
        self.assertIn("PyTorch eager", eager)
        self.assertIn("| 1.00 |", eager)
        self.assertIn("| 2,000 |", eager)  # MiB at the peak, beside static bytes
        self.assertIn("| 0.80 |", none)
        self.assertIn("| 0.88 |", eb)
        self.assertIn("| 10.0 |", eb)  # times less than eager
        self.assertIn("800 -> 40", eb)
        self.assertIn("no room / at all", pool)

    def test_files_that_are_missing_or_cut_are_said(self):
        with open(self.path("cut.json"), "w") as file:
            file.write('{"model": ')
        ours = self.write("ours.json", comet="0.1", results=[row("none", "bf16", 30.0, 700)])
        text = self.table(ours, self.path("cut.json"), self.path("none.json"))
        self.assertIn("cut.json", text)
        self.assertIn("none.json", text)
        self.assertIn("| 600 |", text)

    def test_forms_are_named(self):
        text = self.table(self.write("forms.json", comet="0.1", forms="layer1.*=pool:2",
                                     results=[row("eb", "bf16", 30.0, 700)]))
        self.assertIn("eb, `layer1.*=pool:2`", text)


class Figures(case.Case):
    """Tables of made-up results, and figures.sh, which makes all of them."""

    def write(self, name, found):
        with open(self.path(os.path.join("out", name)), "w") as file:
            json.dump(found, file)

    def setUp(self):
        super().setUp()
        for folder in ("out", "photographs/train/a"):
            os.makedirs(self.path(folder))

    def figures(self, *parts, code=0):
        done = subprocess.run(["bash", os.path.join(ROOT, "bench", "trainer", "figures.sh"), self.path("out"),
                               self.path("photographs"), self.path("none"), *parts], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False,
                              env={**os.environ, "BUILD": os.path.dirname(case.COMET), "PYTHON": sys.executable})
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr.decode()

    def test_tables(self):
        cap = {"dtype": "bf16", "model": "resnet50", "cap": "4GiB", "image": 224}
        self.write("batches-torch.json", {"runs": [{**cap, "tool": "torch", "variant": "eager", "batch": 80,
                                                    "images_per_second": 4000.0, "reserved_peak_bytes": 4000 << 20}]})
        self.write("batches-comet.json", {"runs": [
            {**cap, "tool": "comet", "variant": "eb", "batch": 240, "images_per_second": 5000.0,
             "peak_bytes": 3900 << 20, "offloaded_bytes": 7 << 20},
            {**cap, "tool": "comet", "variant": "none", "batch": 96, "failed": "no room"}]})
        self.write("cifar-torch-1.json", {"runs": [{"variant": "plain", "seed": seed, "accuracy": 92.0 + seed,
                                                    "saved": 100 << 20} for seed in (1, 2)]})
        bytes_of = {"saved_raw_bytes": 90 << 20, "saved_stored_bytes": 5 << 20}
        self.write("cifar-comet-1.json", {"variants": [
            {"name": name, "seed": seed, "accuracy": accuracy + seed, **bytes_of}
            for name, accuracy in (("none", 92.5), ("eb", 92.25)) for seed in (1, 2)],
            "failures": [{"name": "eb", "seed": 3, "message": "diverged"}]})
        self.figures("tables")
        text = self.read("out/tables.md").decode()
        self.assertIn("| resnet50 | bf16 | 4GiB | eb | 240 | 3.00 | 5,000 | 1.25 | 3,900 | 7 |", text)
        self.assertIn("no room", text)
        self.assertIn("| eb | 93.25 94.25 | 93.75 | -0.25 (-0.25 to -0.25) | +0.25 (+0.25 to +0.25) | 90.0 | 5.0 |",
                      text)
        self.assertIn("seed 3: diverged", text)
        self.assertIn("</svg>", self.read("out/batches.svg").decode())

    def test_no_such_part(self):
        self.assertIn("no part", self.figures("nothing", code=2))

    def test_a_part_is_not_run_again(self):
        self.write("loader.json", {})
        open(self.path("out/loader.done"), "w").close()
        self.figures("loader")
        self.assertEqual(self.read("out/loader.json"), b"{}")

    def test_a_part_that_fails_does_not_stop_the_others(self):
        text = self.figures("loader", "tables", code=1)  # there is no image
        self.assertIn("loader: exit", text)
        self.assertIn("tables took", text)

    def test_norms_of_both_are_joined(self):
        sys.path[:0] = [os.path.join(ROOT, "bench", "trainer")]
        sys.dont_write_bytecode = True
        import norms
        kinds = ("copy", "statistics", "forward", "forward_stream", "add", "add_streams", "backward",
                 "backward_stream", "add_backward")
        self.write("norms.json", {"tensors": [{"dtype": "f32", "layout": "nhwc", "shape": [128, side, side, channels],
                                               **{kind + "_ms": 0.5 for kind in kinds}}
                                              for channels, side in norms.SHAPES]})
        self.write("probe.json", [{"type": "fp32", "shape": f"1x1-64-{channels}@{side}", "pattern": "bn+relu",
                                   "us": 2000.0} for channels, side in norms.SHAPES])
        done = subprocess.run([sys.executable, norms.__file__, "--from", self.path("out/norms.json"), "--probe",
                               self.path("out/probe.json")], stdout=subprocess.PIPE, check=True)
        self.assertIn("| fp32 | norm, ReLU: forward | 106.00 | 53.00 | 53.00 | 0.50 | 0.50 | 26.50 |",
                      done.stdout.decode())
        self.assertEqual(norms.shape_of_probe("7x7s2-3-64@224"), (64, 112))


if __name__ == "__main__":
    case.main(__doc__)
