#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""comet bench --device cuda: measures where there is a GPU, and says what is missing where there is none. Gpu also runs
on the emulated device.

usage: test_bench_gpu.py COMET [TEST...]
"""
import json
import os

import case
from test_cmd import BenchCase


class NoGpu(BenchCase):
    def test_a_gpu_that_is_not_there(self):
        self.write_data()
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
        arguments = ("bench", "codec", "--device", "cuda", "--data", "in.npz")
        for options, says in (((), ("no CUDA GPU number 0", "without CUDA")), (("--json",), ("nvidia-smi", "nvcc"))):
            done = self.run_comet(*arguments, *options, env=environment)
            text = done.stderr.decode()
            self.assertEqual((done.returncode, done.stdout), (1, b""), text)
            self.assertRegex(text, r"\Acomet: [^\n]+\n\Z")
            self.assertTrue(any(piece in text for piece in says), text)
        self.refused(1, "bench", "codec", "--device", "cuda:255", says="CUDA")


class Gpu(BenchCase):
    number = (int, float)
    more = {"device": str, "size_mib": number, "mib": number, "bytes_resident": int, "ratio_resident": number,
            "stream_as_cpu": bool, "tiles": int, "tiles_exact": int, "tiles_wide": int, "buffers": int,
            "l2_turns": number, "copy_ms": number, "compress_ms": number, "decompress_ms": number,
            "compress_over_copy": number, "decompress_over_copy": number}
    key = ("codec", "layout", "dtype", "error_rel", "size_mib")

    def setUp(self):
        super().setUp()
        self.write_data()

    def bench_gpu(self, *options, what="codec"):
        """What it printed; skips the test where there is no GPU."""
        done = self.run_comet("bench", what, "--device", "cuda", "--data", "in.npz", "--runs", "2", "--quiet",
                              *options)
        text = done.stderr.decode()
        if done.returncode == 1 and any(piece in text for piece in ("no CUDA GPU", "without CUDA", "driver is older")):
            self.skipTest(text.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def report(self, *options):
        return json.loads(self.bench_gpu("--json", *options), parse_constant=self.fail)

    def check_gpu_result(self, result):
        self.check_result(result)
        for field, kind in self.more.items():
            self.assertIsInstance(result[field], kind, field)
        self.assertTrue(result["stream_as_cpu"], result)
        self.assertGreaterEqual(result["bytes_resident"], result["bytes_stored"])
        self.assertGreater(min(result["copy_ms"], result["compress_ms"], result["decompress_ms"]), 0)
        self.assertAlmostEqual(result["compress_over_copy"], result["compress_ms"] / result["copy_ms"], places=3)
        if result["mode"] == "grid":
            self.assertAlmostEqual(result["decompress_bn_over_copy"],
                                   result["decompress_bn_ms"] / result["copy_ms"], places=3)
        else:
            self.assertEqual((result["decompress_bn_ms"], result["decompress_bn_over_copy"]), (None, None))

    def check_group(self, group, results):
        mine = [r for r in results if all(r[k] == group[k] for k in self.key)
                and group["mode"] in (r["mode"], "training")]
        self.assertEqual((len(mine), group["differ_from_cpu"]), (group["tensors"], 0))
        for what in ("compress", "decompress", "decompress_bn"):
            quotient = what + "_over_copy"
            measured = {r["name"]: r[quotient] for r in mine if r[quotient] is not None}
            if not measured:
                self.assertEqual((group[quotient], group["worst_" + what]), (None, None))
                continue
            self.assertAlmostEqual(group[quotient + "_worst"], max(measured.values()), places=6)
            self.assertAlmostEqual(group[quotient + "_worst"], measured[group["worst_" + what]], places=6)
            self.assertLessEqual(group[quotient], group[quotient + "_worst"])
            self.assertGreaterEqual(group[quotient], min(measured.values()))

    def test_bench(self):
        sizes = "0,0.02" if case.SLOW else "0,0.125"
        report = self.report("--codec", "eb,zvc", "--mode", "nearest", "--sizes", sizes, "--stats",
                             "--dtype", "f32,bf16,f16")
        self.assertEqual(report["device"], "cuda")
        for field in ("machine", "gpu", "compute_capability", "driver_cuda", "cuda"):
            self.assertIsInstance(report[field], str, field)
        self.assertIn("driver", report)
        self.assertGreater(report["l2_bytes"], 0)
        self.assertEqual((len(report["tensors"]), report["left_out"]), (2 * 2 * 3 * 2 * (2 + 1), 0))
        for result in report["tensors"]:
            self.check_gpu_result(result)
            self.assertIs(result["stats_as_cpu"], True)
        for group in report["summary"]:
            self.check_group(group, report["tensors"])

    def test_what_training_does_is_the_default(self):
        report = self.report("--sizes", "0,0.03")
        self.assertEqual({(r["name"], r["mode"]) for r in report["tensors"]},
                         {("in/relu", "keep"), ("in/conv", "grid")})
        self.assertEqual({(r["layout"], r["dtype"]) for r in report["tensors"]},
                         {(layout, dtype) for layout in ("nchw", "nhwc") for dtype in ("f32", "bf16")})
        self.assertEqual(len(report["tensors"]), 2 * 2 * 2 * 2 * 2)
        for result in report["tensors"]:
            self.check_gpu_result(result)
            self.assertIsNone(result["stats_as_cpu"])
        for mode, tensors in (("keep", 1), ("grid", 1), ("training", 2)):
            groups = [g for g in report["summary"] if g["mode"] == mode]
            self.assertEqual([g["tensors"] for g in groups], [tensors] * (2 * 2 * 2 * 2))
            for group in groups:
                self.check_group(group, report["tensors"])

    def test_modes(self):
        report = self.report("--mode", "nearest,keep,grid", "--sizes", "0", "--dtype", "f32,f16", "--stats",
                             "--error-rel", "0,0.3")
        self.assertEqual(len(report["tensors"]), 2 * 2 * 2 * 2 * 3)
        self.assertEqual({g["mode"] for g in report["summary"]}, {"nearest", "keep", "grid"})
        for result in report["tensors"]:
            self.check_gpu_result(result)
            self.assertIs(result["stats_as_cpu"], True)
            if result["mode"] == "grid" and result["error_rel"]:
                self.assertEqual(result["bound"], result["error_rel"])  # the rms of what is stored is 1
                self.assertGreater(result["max_error_over_bound"], 0.9)

    def test_bench_of_other_codecs(self):
        report = self.report("--codec", "mask,pool:2,group:4,raw", "--sizes", "0")
        self.assertEqual(len(report["tensors"]) + report["left_out"], 2 * 2 * 2 * 4)
        for result in report["tensors"]:
            self.check_gpu_result(result)
            self.assertIsNone(result["mode"])

    def test_tables(self):
        text = self.bench_gpu("--tensors", "relu", "--sizes", "0", "--error-rel", "0.3")
        self.assertIn("in/relu", text)
        self.assertNotIn("in/conv", text)
        self.assertIn("Summary", text)
        text = self.bench_gpu("--sizes", "0", "--error-rel", "0.3", "--dtype", "bf16")
        for piece in ("eb+mask", "eb+grid", "d+bn/copy", "As in training"):
            self.assertIn(piece, text)
        self.assertRegex(text, r"\n  2 tensors nchw bf16 .*c/copy [0-9.]+ \(worst [0-9.]+: in/(relu|conv)\).*d/copy")

    def test_norm(self):
        text = self.bench_gpu("--sizes", "0", "--error-rel", "0.3", what="norm")
        self.assertIn("in/conv", text)


if __name__ == "__main__":
    case.main(__doc__)
