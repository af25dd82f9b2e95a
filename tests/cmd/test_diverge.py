#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that diverge: how they end, and that no file they leave holds a value that is not finite.

usage: test_diverge.py COMET [TEST...]
"""
import array
import json
import math
import os
import re
import struct
import zlib

import case

SMALL = ("--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "8", "--threads", "1", "--quiet",
         "--eval-images", "16", "--eval-every", "0", "--schedule", "constant")
FORMS = ("none", "eb", "eb:0.3", "pool:2", "group:4", "dct", "zvc", "offload", "recompute", "eb+offload")
CONTROLLERS = ("comet", "comet:paper", "acgc", "budget", "fixed:0.3")


class Tensors:
    """A .safetensors file, to look at and to change."""

    def __init__(self, data):
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        self.texts = header.pop("__metadata__", {})
        self.entries = header
        self.data = bytearray(data[8 + length:])

    def bytes_of(self, name):
        begin, end = self.entries[name]["data_offsets"]
        return self.data[begin:end]

    def not_finite(self):
        return [name for name, entry in self.entries.items()
                if entry["dtype"] == "F32" and not all(map(math.isfinite, array.array("f", self.bytes_of(name))))]

    def spoil(self, name, value):
        struct.pack_into("<f", self.data, self.entries[name]["data_offsets"][0], value)

    def checksum(self):
        """As docs/checkpoints.md has it."""
        parts = [(key, value.encode()) for key, value in self.texts.items() if key != "comet.checksum"]
        parts += [(name, bytes(self.bytes_of(name))) for name in self.entries]
        return "%08x" % (sum(zlib.crc32(name.encode() + b"\0" + data) for name, data in parts) % (1 << 32))

    def whole(self):
        if "comet.checksum" in self.texts:
            self.texts["comet.checksum"] = self.checksum()
        header = json.dumps({"__metadata__": self.texts, **self.entries}).encode()
        header += b" " * (-len(header) % 8)
        return struct.pack("<Q", len(header)) + header + bytes(self.data)


class Diverge(case.Case):
    def tensors(self, name):
        return Tensors(self.read(name))

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def end(self, log):
        return json.loads(self.read(log).decode().splitlines()[-1])

    def check_diverges(self, *arguments):
        for name in ("c/last.safetensors", "c/previous.safetensors", "log"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        done = self.run_comet("train", *SMALL, "--steps", "40", "--checkpoint", "c", "--checkpoint-every", "2",
                              "--save-weights", "w.safetensors", "--json-log", "log", "--spill-dir", ".", *arguments)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(done.returncode, 1, (arguments, lines))
        said = re.fullmatch(r"comet: (training has diverged since step (\d+): .*; "
                            r"go on from step (\d+) in 'c', or begin anew, "
                            r"with a smaller learning rate)", lines[-1])
        self.assertTrue(said, (arguments, lines))
        since, saved = int(said[2]), int(said[3])
        for name in ("last", "previous"):
            if name == "previous" and saved <= 2:
                continue
            file = self.tensors("c/%s.safetensors" % name)
            self.assertEqual(file.texts["comet.checksum"], file.checksum())
            self.assertEqual(file.not_finite(), [], (arguments, name))
            if name == "last":
                self.assertEqual(int(file.texts["comet.step"]), saved)
        self.assertEqual(sorted(os.listdir(self.path("c")))[0], "last.safetensors")
        self.assertFalse(os.path.exists(self.path("w.safetensors")))
        end = self.end("log")
        self.assertEqual((end["event"], end["state"], end["message"]), ("end", "failed", said[1]))
        return since, saved

    def test_forms(self):
        for i, form in enumerate(FORMS):
            for accumulate in ("1", "2") if form in ("none", "eb", "eb:0.3") else ("12"[i % 2],):
                since, saved = self.check_diverges("--codec", form, "--lr", "1e3", "--accumulate", accumulate)
                # the last that was due; where a controller skips, the first due behind that holds the last update
                newest = (since - 1) // 2 * 2
                self.assertEqual(saved, since // 2 * 2 if form in ("eb", "eb+offload") else newest, form)

    def test_controllers(self):
        for i, control in enumerate(CONTROLLERS):
            since, saved = self.check_diverges("--control", control, "--lr", "1e3", "--accumulate", "12"[i % 2])
            self.assertEqual(saved, since // 2 * 2, control)

    def test_at_once(self):
        """With what the first updates make of weights; AdamW's state; without momentum there is none."""
        for options in (("--codec", "none", "--momentum", "0.99"), ("--codec", "eb:0.3", "--optimiser", "adamw"),
                        ("--codec", "pool:2", "--momentum", "0"), ("--weight-decay", "100")):
            self.check_diverges("--lr", "1e6", *options)

    def test_compare(self):
        """Those that diverge are failed runs; another goes on."""
        done = self.run_comet("compare", *SMALL, "--json", "--lr", "1e6", "--steps", "8", "--variants",
                              "none,eb:0.3,comet:most-skips=99")
        self.assertEqual(done.returncode, 1, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual([run["name"] for run in out["variants"]], ["comet:most-skips=99"])
        self.assertEqual([failure["name"] for failure in out["failures"]], ["none", "eb:0.3"])
        for failure in out["failures"]:
            self.assertRegex(failure["message"], r"diverged since step \d+: .* begin anew with a smaller learning rate")
            self.assertIn(failure["message"], done.stderr.decode())
        done = self.run_comet("compare", *SMALL, "--lr", "1e6", "--steps", "8", "--state", "none", "--variants",
                              "none,comet:most-skips=99")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout.decode(), r"(?m)^none +failed *$")
        self.assertRegex(done.stderr.decode(),
                         r"\Acomet: none, seed \d+: training has diverged since step \d+: [^\n]+\n")

    def test_weights_are_refused(self):
        self.comet("train", *SMALL, "--steps", "1", "--checkpoint", "none", "--save-weights", "w.safetensors")
        for name, value in (("layer2.0.conv1.weight", math.nan), ("bn1.running_var", math.inf),
                            ("fc.bias", -math.inf)):
            file = self.tensors("w.safetensors")
            file.spoil(name, value)
            self.write("bad.safetensors", file.whole())
            text = self.refused(1, "train", *SMALL, "--steps", "1", "--checkpoint", "none", "--weights",
                                "bad.safetensors", says="'%s' in 'bad.safetensors'" % name)
            self.assertIn("not finite", text)

    def test_checkpoints_are_passed_over(self):
        """One that is whole, but holds such a value, as earlier versions wrote them."""
        options = ("train", *SMALL, "--checkpoint", "c", "--checkpoint-every", "2", "--save-weights", "w.safetensors")
        self.comet(*options, "--steps", "8")
        expected = self.read("w.safetensors")
        for name in ("layer1.0.bn1.running_var", "fc.weight", "comet.optimiser.momentum"):
            self.comet(*options, "--steps", "4")
            last = self.tensors("c/last.safetensors")
            self.assertEqual(last.checksum(), last.texts["comet.checksum"])
            last.spoil(name, math.inf)
            self.write("c/last.safetensors", last.whole())
            done = self.run_comet(*options, "--steps", "4", "--resume")
            said = done.stderr.decode()
            self.assertEqual(done.returncode, 0, said)
            self.assertIn("not finite; went on from 'c/previous.safetensors'", said)
            for file, step in (("last", "4"), ("previous", "2")):  # the good one was not replaced by the bad one
                self.assertEqual(self.tensors("c/%s.safetensors" % file).not_finite(), [])
                self.assertEqual(self.tensors("c/%s.safetensors" % file).texts["comet.step"], step)
            self.comet(*options, "--steps", "8", "--resume")
            self.assertEqual(self.read("w.safetensors"), expected)
        self.comet(*options, "--steps", "4")
        for file in ("last", "previous"):
            bad = self.tensors("c/%s.safetensors" % file)
            bad.spoil("fc.weight", math.nan)
            self.write("c/%s.safetensors" % file, bad.whole())
        self.refused(1, *options, "--steps", "8", "--resume", says="'fc.weight' in 'c/last.safetensors'")

    def test_put_aside(self):
        """A run that begins anew keeps the newest checkpoint that is good, not one that is not finite."""
        options = ("train", *SMALL, "--steps", "4", "--checkpoint", "c", "--checkpoint-every", "2")
        self.comet(*options)
        good = self.read("c/previous.safetensors")
        last = self.tensors("c/last.safetensors")
        last.spoil("comet.optimiser.momentum", math.nan)
        self.write("c/last.safetensors", last.whole())
        said = self.run_comet(*options).stderr.decode()
        self.assertRegex(said, r"damaged, is now 'c/earlier-2\.safetensors'")
        self.assertEqual(self.read("c/earlier.safetensors"), good)


if __name__ == "__main__":
    case.main(__doc__)
