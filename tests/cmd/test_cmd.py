#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comet command from outside: what it writes, what it says, and how it fails.

usage: test_cmd.py COMET [TEST...]
"""
import json
import math
import os
import random
import struct
import subprocess
import zipfile

import case
import files

CODECS = ("eb", "zvc", "mask", "pool", "group", "dct", "raw")
COMMANDS = (["compress"], ["decompress"], ["inspect"], ["bench"], ["bench", "codec"], ["demo"], ["demo", "codec"],
            ["train"], ["plan"], ["compare"])


class Case(case.Case):
    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return name

    def refused(self, code, *arguments, says=""):
        """And there is no file more or less."""
        before = sorted(os.listdir(self.folder))
        super().refused(code, *arguments, says=says)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def round_trip(self, name, *options, result="back.npy"):
        self.comet("compress", *options, name, "-o", "x.comet")
        self.comet("decompress", "x.comet", "-o", result)
        return self.read(result)

    def check_bound(self, before, after, bound):
        self.assertEqual(len(before), len(after))
        for x, y in zip(before, after):
            self.assertLessEqual(abs(x - y), bound)
            if x == 0:
                self.assertEqual(y, 0)


class RoundTrip(Case):
    shape = (2, 5, 12, 13)
    count = 2 * 5 * 12 * 13

    def test_error_bound_holds_for_every_dtype_and_layout(self):
        for dtype in ("f32", "f16", "u8"):
            scale = 30 if dtype == "u8" else 1
            numbers = [int(scale * v) if dtype == "u8" else v for v in files.activations(self.count)]
            data = files.pack(dtype, numbers)
            values = files.unpack(dtype, data)
            self.write("in.npy", files.npy(files.NPY_TYPE[dtype], self.shape, data))
            for layout in ("nchw", "nhwc", "flat"):
                for error in (0.0, 0.01, 0.1, 0.3, 2.0):
                    back = self.round_trip("in.npy", "--error-rel", str(error), "--layout", layout)
                    type_name, shape, out = files.read_npy(back)
                    self.assertEqual((type_name, shape), (files.NPY_TYPE[dtype], self.shape))
                    bound = error * files.rms_of_nonzeros(values)
                    self.check_bound(values, files.unpack(dtype, out), bound)

    def test_absolute_bound_and_default(self):
        data = files.pack("f32", files.activations(self.count, sparse=False))
        values = files.unpack("f32", data)
        self.write("in.npy", files.npy("<f4", self.shape, data))
        for options, bound in ((("--error-abs", "0.037"), 0.037), ((), 0.1 * files.rms_of_nonzeros(values))):
            out = files.read_npy(self.round_trip("in.npy", *options))[2]
            self.check_bound(values, files.unpack("f32", out), bound)
            self.assertLess(len(self.read("x.comet")), len(data) / 2)

    def test_bf16_from_raw_and_from_words(self):
        data = files.pack("bf16", files.activations(self.count))
        values = files.unpack("bf16", data)
        bound = 0.1 * files.rms_of_nonzeros(values)
        shape_text = ",".join(map(str, self.shape))
        self.write("in.bin", data)
        back = self.round_trip("in.bin", "--dtype", "bf16", "--shape", shape_text, result="back.bin")
        self.check_bound(values, files.unpack("bf16", back), bound)
        for type_name in ("<u2", "<V2", "|V2"):
            self.write("in.npy", files.npy(type_name, self.shape, data))
            type_back, shape, out = files.read_npy(self.round_trip("in.npy", "--dtype", "bf16"))
            self.assertEqual((type_back, shape, out), ("<u2", self.shape, back))
            self.refused(1, "compress", "in.npy", "-o", "y.comet", says="--dtype bf16")

    def test_every_codec_keeps_type_and_shape(self):
        for dtype in ("f32", "f16", "u8"):
            numbers = [int(30 * v) if dtype == "u8" else v for v in files.activations(self.count)]
            data = files.pack(dtype, numbers)
            self.write("in.npy", files.npy(files.NPY_TYPE[dtype], self.shape, data))
            for codec in CODECS:
                type_name, shape, out = files.read_npy(self.round_trip("in.npy", "--codec", codec))
                self.assertEqual((type_name, shape, len(out)), (files.NPY_TYPE[dtype], self.shape, len(data)), codec)
                if codec in ("raw", "zvc"):
                    self.assertEqual(out, data)
                if codec == "mask":
                    wanted = [float(v > 0) for v in files.unpack(dtype, data)]
                    self.assertEqual(files.unpack(dtype, out), wanted)

    def test_lossless_keeps_every_bit(self):
        patterns = [0, 0x80000000, 1, 0x80000001, 0x7f800000, 0xff800000, 0x7fc12345, 0x7f800001, 0xffffffff,
                    0x7f7fffff]
        patterns += [random.Random(5).getrandbits(32) for _ in range(5000)]
        data = struct.pack("<%dI" % len(patterns), *patterns)
        self.write("in.npy", files.npy("<f4", (len(patterns),), data))
        for options in (("--error-abs", "0"), ("--codec", "zvc"), ("--codec", "raw")):
            self.assertEqual(files.read_npy(self.round_trip("in.npy", *options))[2], data)

    def test_not_finite_values_survive(self):
        values = files.activations(4000)
        values[17], values[1999], values[3000] = math.inf, -math.inf, math.nan
        data = files.pack("f32", values)
        self.write("in.npy", files.npy("<f4", (4000,), data))
        out = files.read_npy(self.round_trip("in.npy"))[2]
        for i in (17, 1999, 3000):
            self.assertEqual(out[4 * i:4 * i + 4], data[4 * i:4 * i + 4])

    def test_keep_mask(self):
        data = files.pack("f32", [v if i % 3 else 1e-4 * v for i, v in enumerate(files.activations(self.count))])
        values = files.unpack("f32", data)
        self.write("in.npy", files.npy("<f4", self.shape, data))
        out = files.unpack("f32", files.read_npy(self.round_trip("in.npy", "--keep-mask", "--error-rel", "0.3"))[2])
        self.check_bound(values, out, 0.3 * files.rms_of_nonzeros(values))
        self.assertEqual([v > 0 for v in values], [v > 0 for v in out])

    def test_stochastic_depends_on_the_seed_alone(self):
        data = files.pack("f32", files.activations(self.count))
        values = files.unpack("f32", data)
        self.write("in.npy", files.npy("<f4", self.shape, data))
        streams = []
        for seed, threads in (("7", "1"), ("7", "2"), ("0x8", "1")):
            back = self.round_trip("in.npy", "--stochastic", "--seed", seed, "--threads", threads, "--error-rel", "0.3")
            streams.append(self.read("x.comet"))
            self.check_bound(values, files.unpack("f32", files.read_npy(back)[2]), 0.3 * files.rms_of_nonzeros(values))
        self.assertEqual(streams[0], streams[1])
        self.assertNotEqual(streams[0], streams[2])

    def test_fortran_order(self):
        shape, values = (3, 4, 5), [float(i) for i in range(60)]
        at = lambda i, j, k: values[(i * 4 + j) * 5 + k]
        turned = [at(i, j, k) for k in range(5) for j in range(4) for i in range(3)]
        self.write("in.npy", files.npy("<f4", shape, files.pack("f32", turned), fortran=True))
        out = files.read_npy(self.round_trip("in.npy", "--error-abs", "0"))
        self.assertEqual(out, ("<f4", shape, files.pack("f32", values)))

    def test_odd_shapes_and_versions(self):
        for shape in ((), (0,), (1,), (3, 0, 2), (1, 1, 1, 1), (7,), (2, 3, 1, 2, 1, 2, 1, 2)):
            data = files.pack("f32", files.activations(math.prod(shape)))
            for version in (1, 2, 3):
                self.write("in.npy", files.npy("<f4", shape, data, version=version))
                out = files.read_npy(self.round_trip("in.npy", "--error-abs", "0"))
                self.assertEqual(out, ("<f4", shape, data))

    def test_parameters_reach_the_codec(self):
        self.write("in.npy", files.npy("<f4", (2, 4, 32, 32), files.pack("f32", files.activations(8192))))
        self.comet("compress", "--codec", "pool", "--pool-block", "4", "in.npy", "-o", "pool.comet")
        self.comet("compress", "--codec", "group", "--group-bits", "2", "in.npy", "-o", "group.comet")
        self.assertLess(len(self.read("pool.comet")), 32768 / 16 + 1024)
        self.assertLess(len(self.read("group.comet")), 32768 / 12)
        for name, parameter in (("pool", 4), ("group", 2)):
            info = json.loads(self.comet("inspect", "--json", name + ".comet"))["streams"][0]
            self.assertEqual((info["codec"], info["parameter"]), (name, parameter))


class Archives(Case):
    def members(self):
        return {name + ".npy": files.npy("<f4", shape, files.pack("f32", files.activations(math.prod(shape), seed)))
                for seed, (name, shape) in enumerate((("a", (4, 8, 10, 10)), ("b/c", (100,)), ("empty", (0,))))}

    def test_npz_round_trip(self):
        members = self.members()
        for options in ({}, {"method": zipfile.ZIP_DEFLATED}, {"zip64": True}, {"descriptors": True},
                        {"method": zipfile.ZIP_DEFLATED, "descriptors": True, "zip64": True}):
            self.write("in.npz", files.npz(members, **options))
            self.comet("compress", "--error-abs", "0", "in.npz", "-o", "streams.zip")
            streams = files.read_zip(self.path("streams.zip"))
            self.assertEqual(sorted(streams), ["a.comet", "b/c.comet", "empty.comet"])
            self.assertTrue(all(stream[:4] == b"CMET" for stream in streams.values()))
            self.comet("decompress", "streams.zip", "-o", "back.npz")
            back = files.read_zip(self.path("back.npz"))
            self.assertEqual({name: files.read_npy(data) for name, data in back.items()},
                             {name: files.read_npy(data) for name, data in members.items()})

    def test_same_input_same_archive(self):
        self.write("in.npz", files.npz(self.members()))
        for name in ("one.zip", "two.zip"):
            self.comet("compress", "in.npz", "-o", name)
        self.assertEqual(self.read("one.zip"), self.read("two.zip"))

    def test_more_members_than_16_bits_count(self):
        piece = files.npy("|u1", (1,), b"\x07")
        self.write("in.npz", files.npz({"%d.npy" % i: piece for i in range(66000)}))
        self.comet("compress", "--codec", "raw", "--threads", "1", "in.npz", "-o", "streams.zip")
        with zipfile.ZipFile(self.path("streams.zip")) as archive:
            self.assertEqual(len(archive.infolist()), 66000)
        self.comet("decompress", "--threads", "1", "streams.zip", "-o", "back.npz")
        with zipfile.ZipFile(self.path("back.npz")) as archive:
            self.assertEqual(len(archive.infolist()), 66000)
            self.assertEqual(files.read_npy(archive.read("65999.npy")), ("|u1", (1,), b"\x07"))

    def test_empty_archive(self):
        self.write("in.npz", files.npz({}))
        self.comet("compress", "in.npz", "-o", "streams.zip")
        self.comet("decompress", "streams.zip", "-o", "back.npz")
        self.assertEqual(files.read_zip(self.path("back.npz")), {})

    def test_ending_must_fit(self):
        self.write("in.npz", files.npz(self.members()))
        self.comet("compress", "in.npz", "-o", "streams.zip")
        self.refused(2, "decompress", "streams.zip", "-o", "back.npy", says=".npz")
        self.write("in.npy", self.members()["a.npy"])
        self.comet("compress", "in.npy", "-o", "x.comet")
        self.refused(2, "decompress", "x.comet", "-o", "back.npz", says=".npy")

    def test_broken_archives(self):
        good = files.npz(self.members())
        deflated = files.npz(self.members(), zipfile.ZIP_DEFLATED)
        flipped = bytearray(good)
        flipped[good.index(b"\x93NUMPY") + 200] ^= 1
        encrypted = bytearray(good)
        directory = good.index(b"PK\x01\x02")
        encrypted[directory + 8] |= 1
        method = bytearray(good)
        method[directory + 10] = 14
        huge = bytearray(deflated)
        struct.pack_into("<I", huge, deflated.index(b"PK\x01\x02") + 24, 0xfffffff0)
        for data in (good[:-1], good[:100], good[1:], b"PK\x03\x04" + bytes(40), bytes(flipped), bytes(encrypted),
                     bytes(method), bytes(huge), b""):
            self.write("bad.npz", data)
            self.refused(1, "compress", "bad.npz", "-o", "y.zip")
            self.refused(1, "inspect", "bad.npz")
        self.write("bad.npz", files.npz({"readme.txt": b"hello"}))
        self.refused(1, "compress", "bad.npz", "-o", "y.zip", says="readme.txt")


class Failures(Case):
    def setUp(self):
        super().setUp()
        self.write("in.npy", files.npy("<f4", (2, 3, 16, 16), files.pack("f32", files.activations(1536))))
        self.comet("compress", "in.npy", "-o", "x.comet")

    def test_misuse(self):
        for arguments in ([], ["frobnicate"], ["--frobnicate"], ["compress"], ["compress", "in.npy"], ["bench"],
                          ["compress", "-o", "y"], ["compress", "in.npy", "in.npy", "-o", "y"], ["bench", "disk"],
                          ["compress", "in.npy", "-o"], ["decompress", "x.comet"], ["inspect"], ["demo", "in.npy"],
                          ["demo", "codec", "in.npy"],
                          ["inspect", "x.comet", "--yaml"], ["inspect", "--json=yes", "x.comet"],
                          ["bench", "codec", "in.npy"], ["bench", "codec", "--data"]):
            self.refused(2, *arguments, says="--help")
        for options in (["--codec", "gzip"], ["--error-rel", "x"], ["--error-rel", "-1"], ["--error-rel", "nan"],
                        ["--error-abs", "inf"], ["--error-abs", "1", "--error-rel", "1"], ["--pool-block", "2"],
                        ["--keep-mask", "--stochastic"], ["--seed", "1"], ["--stochastic", "--seed", "-1"],
                        ["--codec", "group", "--group-bits", "3"], ["--codec", "pool", "--pool-block", "65"],
                        ["--codec", "zvc", "--error-rel", "0.1"], ["--codec", "mask", "--keep-mask"],
                        ["--layout", "nwhc"], ["--dtype", "f64"], ["--shape", "3,4"], ["--threads", "-1"],
                        ["--dtype", "f32", "--shape", "3,,4"], ["--dtype", "f32", "--shape", "1,1,1,1,1,1,1,1,1"],
                        ["--threads", "many"], ["--error-rel"]):
            self.refused(2, "compress", "in.npy", "-o", "y.comet", *options, says="--help")
        for options in (["--codec", "eb,gzip"], ["--codec", "eb:3"], ["--codec", "group:5"], ["--codec", "pool:x"],
                        ["--codec", ""], ["--codec", "eb,"], ["--error-rel", "0.1,x"], ["--peers", "lz4"],
                        ["--mode", ""], ["--mode", "mask"], ["--mode", "keep,"], ["--mode", "grid", "--keep-mask"],
                        ["--mode", "keep,grid", "--codec", ",".join(["eb"] * 17)],
                        ["--isa", "sse"], ["--runs", "0"], ["--layout", "n"], ["--dtype", "f8"], ["--device", "gpu"],
                        ["--device", "cudax"], ["--device", "cuda:"], ["--device", "cuda:x"], ["--device", "cuda:-1"],
                        ["--device", "cpu", "--sizes", "1"], ["--sizes", "1"], ["--tensors", ","],
                        ["--device", "cuda", "--sizes", "1,"], ["--device", "cuda", "--sizes", "x"],
                        ["--device", "cuda", "--sizes", "-1"], ["--device", "cuda", "--sizes", "1e9"],
                        ["--device", "cuda", "--runs", "0"], ["--device", "cuda", "--peers", "zfp"],
                        ["--device", "cuda", "--isa", "avx2"]):
            self.refused(2, "bench", "codec", "--quick", *options, says="--help")

    def test_missing_and_unwritable(self):
        self.refused(1, "compress", "nothing.npy", "-o", "y.comet", says="nothing.npy")
        self.refused(1, "decompress", "nothing.comet", "-o", "y.npy", says="nothing.comet")
        self.refused(1, "inspect", "nothing.comet", says="nothing.comet")
        self.refused(1, "bench", "codec", "--data", "nothing.npy", says="nothing.npy")
        self.refused(1, "bench", "codec", "--quick", "--tensors", "nothing", says="nothing")
        self.refused(1, "compress", "in.npy", "-o", "no/such/folder/y.comet", says="no/such/folder")
        self.refused(1, "compress", ".", "-o", "y.comet")
        self.refused(1, "compress", "in.npy", "-o", ".")
        self.refused(1, "compress", "in.npy", "-o", "/dev/null", says="regular")

    def test_never_writes_over_the_input(self):
        os.link(self.path("in.npy"), self.path("same.npy"))
        os.symlink("in.npy", self.path("link.npy"))
        before = self.read("in.npy")
        for name in ("in.npy", "./in.npy", "same.npy", "link.npy"):
            self.refused(1, "compress", "in.npy", "-o", name, says="input")
        self.assertEqual(self.read("in.npy"), before)

    def test_replaces_an_older_output_and_writes_through_links(self):
        self.write("old.comet", b"old")
        os.symlink("old.comet", self.path("link.comet"))
        self.comet("compress", "in.npy", "-o", "link.comet")
        self.assertTrue(os.path.islink(self.path("link.comet")))
        self.assertEqual(self.read("old.comet"), self.read("x.comet"))

    def test_a_failure_leaves_the_old_output_alone(self):
        self.write("y.npy", b"precious")
        self.write("bad.comet", self.read("x.comet")[:-3])
        self.refused(1, "decompress", "bad.comet", "-o", "y.npy")
        self.assertEqual(self.read("y.npy"), b"precious")

    def test_cut_streams(self):
        stream = self.read("x.comet")
        for length in (0, 1, 4, 64, 127, 128, 140, len(stream) // 2, len(stream) - 1):
            self.write("bad.comet", stream[:length])
            self.refused(1, "decompress", "bad.comet", "-o", "y.npy")
            self.refused(1, "inspect", "bad.comet")
        self.write("bad.comet", stream + b"x")
        self.refused(1, "decompress", "bad.comet", "-o", "y.npy")

    def test_checksum_finds_every_flip(self):
        self.comet("compress", "--checksum", "in.npy", "-o", "good.comet")
        stream = self.read("good.comet")
        for at in list(range(0, 128, 5)) + list(range(128, len(stream), max(1, len(stream) // 40))):
            damaged = bytearray(stream)
            damaged[at] ^= 0x10
            self.write("bad.comet", bytes(damaged))
            self.refused(1, "decompress", "bad.comet", "-o", "y.npy")

    def test_wrong_npy_files(self):
        values = bytes(16)
        headers = ("{'descr': '<f4', 'fortran_order': False, 'shape': (4), }", "{'descr': '<f4', 'shape': (4,), }",
                   "{}", "",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (1048576, 1048576, 1048576), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
                   "{'descr': '<f4', 'fortran_order': 0, 'shape': (4,), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': 1, }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), } x",
                   "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)",
                   "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }",
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 4), }")
        for header in headers:
            self.write("bad.npy", files.npy_with_header(header, values))
            self.refused(1, "compress", "bad.npy", "-o", "y.comet")
        for type_name in ("<f8", ">f4", "<i4", "|b1", "|O", "<c8", "?" * 40):
            self.write("bad.npy", files.npy(type_name, (2,), values))
            self.refused(1, "compress", "bad.npy", "-o", "y.comet")
        good = files.npy("<f4", (4,), values)
        for data in (good[:5], good[:9], good[:11], good[:60], good[:-1], b"\x93NUMPY\x04\0" + good[8:], b"hello",
                     b"\0" * 64):
            self.write("bad.npy", data)
            self.refused(1, "compress", "bad.npy", "-o", "y.comet")
        self.refused(1, "compress", "x.comet", "-o", "y.comet", says="already")
        self.refused(1, "compress", "in.npy", "--dtype", "f16", "-o", "y.comet", says="f16")
        self.refused(1, "compress", "in.npy", "--dtype", "f32", "--shape", "7", "-o", "y.comet", says="bytes")

    def test_names_with_control_characters(self):
        self.write("in.npz", files.npz({"a\x1b[31m\n\"\\\u00e9.npy": self.read("in.npy")}))
        text = self.comet("inspect", "in.npz")
        self.assertNotIn("\x1b", text)
        tensors = json.loads(self.comet("inspect", "--json", "in.npz"))["tensors"]
        self.assertEqual(tensors[0]["name"], "a\x1b[31m\n\"\\\u00e9.npy")

    def test_full_standard_output(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([case.COMET, "inspect", self.path("x.comet")], stdout=full, stderr=subprocess.PIPE,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith(b"comet: "))


class Hostile(Case):
    """Damaged files: an answer or an error, in reasonable time, never a crash."""

    def mutants(self, data, count, seed):
        dice = random.Random(seed)
        for _ in range(count):
            mutant = bytearray(data)
            for _ in range(dice.choice((1, 1, 2, 8))):
                at = dice.randrange(len(mutant)) if dice.random() < 0.5 else dice.randrange(min(160, len(mutant)))
                mutant[at] = dice.choice((0, 1, 0x7f, 0x80, 0xff, dice.randrange(256)))
            if dice.random() < 0.2:
                del mutant[dice.randrange(len(mutant)):]
            yield bytes(mutant)

    def check(self, name, data, *arguments):
        self.write(name, data)
        done = self.run_comet(*arguments)
        self.assertIn(done.returncode, (0, 1, 2), (arguments, done.stderr[-2000:]))
        self.assertIn(done.stderr.count(b"\n"), (0, 1), done.stderr[-2000:])

    def test_damaged_inputs(self):
        tensor = files.npy("<f4", (1, 2, 20, 20), files.pack("f32", files.activations(800)))
        for seed, data in enumerate((tensor, files.npz({"a.npy": tensor}, zipfile.ZIP_DEFLATED),
                                     files.npz({"a.npy": tensor}))):
            for mutant in self.mutants(data, 40, seed):
                self.check("in.dat", mutant, "compress", "--threads", "1", "in.dat", "-o", "y.out")

    def test_damaged_zip_directories(self):
        tensor = files.npy("<f4", (4,), bytes(16))
        data = files.npz({"a.npy": tensor, "b.npy": tensor}, zip64=True)
        tail = len(data) - data.index(b"PK\x01\x02")
        for mutant in self.mutants(data[::-1], 60, 9):  # the directory is at the end: it comes first, reversed
            self.check("in.npz", mutant[::-1], "compress", "--threads", "1", "in.npz", "-o", "y.out")
        self.assertGreater(tail, 100)

    def test_damaged_streams(self):
        self.write("in.npy", files.npy("<f4", (2, 3, 20, 20), files.pack("f32", files.activations(2400))))
        for seed, codec in enumerate(CODECS):
            self.comet("compress", "--codec", codec, "in.npy", "-o", "x.comet")
            for mutant in self.mutants(self.read("x.comet"), 20, seed):
                self.check("bad.comet", mutant, "decompress", "--threads", "1", "bad.comet", "-o", "y.npy")


class BenchCase(Case):
    """Helpers for what comet bench prints."""
    fields = {"name": str, "shape": list, "layout": str, "dtype": str, "codec": str, "keep_mask": bool,
              "bytes_raw": int,
              "bytes_stored": int, "ratio": (int, float), "compress_gbps": (int, float),
              "decompress_gbps": (int, float), "memcpy_gbps": (int, float)}

    def bench(self, *options):
        done = self.run_comet("bench", "codec", "--quick", "--json", "--quiet", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout, parse_constant=self.fail)

    def write_data(self):
        tensors = {"relu.npy": files.npy("<f4", (2, 6, 18, 18), files.pack("f32", files.activations(3888))),
                   "conv.npy": files.npy("<f4", (1, 4, 9, 5), files.pack("f32", files.activations(180, sparse=False)))}
        self.write("in.npz", files.npz(tensors, zipfile.ZIP_DEFLATED))

    def check_result(self, result):
        for field, kind in self.fields.items():
            self.assertIsInstance(result[field], kind, field)
        for field in ("error_rel", "max_error_over_bound", "violations"):
            self.assertIn(field, result)
        self.assertAlmostEqual(result["ratio"], result["bytes_raw"] / result["bytes_stored"], places=3)
        if result["codec"] == "eb":
            if result["error_rel"]:
                self.assertLessEqual(result["max_error_over_bound"], 1)
            self.assertIn(result["mode"], ("nearest", "keep", "grid"))
            self.assertEqual((result["violations"], result["mask_broken"] or 0), (0, 0))
            self.assertEqual(result["zeros_broken"], None if result["mode"] == "grid" else 0)
        elif result["codec"] in ("raw", "zvc"):
            self.assertEqual((result["violations"], result["zeros_broken"]), (0, 0))
        else:
            self.assertEqual((result["max_error_over_bound"], result["violations"]), (None, None))
            self.assertIsInstance(result["rms_error"], (int, float))


class Reports(BenchCase):
    def test_bench_over_files(self):
        self.write_data()
        report = self.bench("--data", "in.npz", "--codec", "eb,zvc,mask,pool:2,group:4,raw", "--layout", "nchw,nhwc",
                            "--dtype", "f32,bf16,f16", "--error-rel", "0.1,0.3", "--threads", "2")
        self.assertEqual(len(report["tensors"]) + report["left_out"], 2 * 2 * 3 * (2 + 5))
        for result in report["tensors"]:
            self.check_result(result)
        shapes = {tuple(r["shape"]) for r in report["tensors"] if r["layout"] == "nhwc"}
        self.assertEqual(shapes, {(2, 18, 18, 6), (1, 9, 5, 4)})
        self.assertEqual({r["name"] for r in report["tensors"]}, {"in/relu", "in/conv"})
        for group in report["summary"]:
            ratios = [r["ratio"] for r in report["tensors"]
                      if all(r[k] == group[k] for k in ("codec", "layout", "dtype", "error_rel"))]
            self.assertEqual(len(ratios), group["tensors"])
            self.assertAlmostEqual(group["ratio"], math.prod(ratios) ** (1 / len(ratios)), places=3)

    def test_bench_keep_mask_and_isas(self):
        self.write_data()
        for isa in ("auto", "reference"):
            report = self.bench("--data", "in.npz", "--keep-mask", "--isa", isa, "--error-rel", "0.3")
            self.assertEqual([(r["mask_broken"], r["violations"]) for r in report["tensors"]], [(0, 0)] * 2)
            self.assertEqual({r["mode"] for r in report["tensors"]}, {"keep"})

    def test_bench_modes(self):
        self.write_data()
        options = ("--data", "in.npz", "--dtype", "f32,bf16,f16", "--layout", "nchw,nhwc,flat", "--error-rel", "0,0.3")
        report = self.bench("--mode", "nearest,keep,grid", *options)
        self.assertEqual(len(report["tensors"]), 3 * 2 * 3 * 3 * 2)
        for result in report["tensors"]:
            self.check_result(result)
            if result["mode"] == "grid" and result["error_rel"]:
                self.assertEqual(result["bound"], result["error_rel"])  # the rms of what is stored is 1
                self.assertGreater(result["max_error_over_bound"], 0.9)
        report = self.bench("--mode", "training", *options)
        self.assertEqual({(r["name"], r["mode"]) for r in report["tensors"]},
                         {("in/relu", "keep"), ("in/conv", "grid")})

    def test_bench_training_mode_goes_by_zeros_and_signs(self):
        def sparse(zeros, least):
            return files.npy("<f4", (1, 4, 5, 5), files.pack("f32", [0.0] * zeros + [least] + [1.5] * (99 - zeros)))
        self.write("in.npz", files.npz({"few.npy": sparse(4, 1.0), "enough.npy": sparse(5, 1.0),
                                        "negative.npy": sparse(50, -1.0)}, zipfile.ZIP_STORED))
        report = self.bench("--data", "in.npz", "--mode", "training", "--error-rel", "0.1")
        self.assertEqual({r["name"]: r["mode"] for r in report["tensors"]},
                         {"in/few": "grid", "in/enough": "keep", "in/negative": "grid"})

    def test_bench_of_some_tensors(self):
        self.write_data()
        report = self.bench("--data", "in.npz", "--tensors", "lu,nothing", "--error-rel", "0.3")
        self.assertEqual([r["name"] for r in report["tensors"]], ["in/relu"])
        self.assertEqual(report["device"], "cpu")

    def test_bench_of_built_in_data(self):
        report = self.bench("--codec", "eb", "--threads", "1")
        self.assertGreaterEqual(len(report["tensors"]), 12)
        for result in report["tensors"]:
            self.check_result(result)
        self.assertGreater(min(group["ratio"] for group in report["summary"]), 6)

    def test_bench_peers(self):
        self.write_data()
        for peer in ("zfp", "zstd"):
            done = self.run_comet("bench", "codec", "--quick", "--json", "--quiet", "--peers", peer, "--data", "in.npz")
            if done.returncode == 1 and b"was not there" in done.stderr:
                continue
            results = [r for r in json.loads(done.stdout)["tensors"] if r["codec"] == peer]
            self.assertTrue(results)
            self.assertEqual(sum(r["violations"] for r in results), 0)

    def test_tables(self):
        self.write_data()
        text = self.comet("bench", "codec", "--quick", "--data", "in.npz", "--codec", "eb,group:4")
        self.assertIn("in/relu", text)
        self.assertIn("Summary", text)
        text = self.comet("demo", "codec", "--quick", "--quiet")
        self.assertIn("no value is off by more than", text)
        self.assertIn("every zero is still zero", text)

    def test_inspect(self):
        self.write_data()
        self.comet("compress", "--checksum", "--keep-mask", "in.npz", "-o", "x.zip")
        text = self.comet("inspect", "x.zip")
        self.assertIn("relu.comet", text)
        self.assertIn("checksum", text)
        streams = json.loads(self.comet("inspect", "--json", "x.zip"))["streams"]
        self.assertEqual([s["name"] for s in streams], ["relu.comet", "conv.comet"])
        first = streams[0]
        self.assertEqual((first["codec"], first["dtype"], first["layout"], first["shape"]),
                         ("eb", "f32", "nchw", [2, 6, 18, 18]))
        self.assertTrue(first["checksum"] and first["keep_mask"] and not first["stochastic"])
        self.assertGreater(first["tiles"], 0)
        tensors = json.loads(self.comet("inspect", "--json", "in.npz"))["tensors"]
        zeros = sum(v == 0 for v in files.activations(3888))
        self.assertEqual((tensors[0]["count"], tensors[0]["zeros"]), (3888, zeros))
        self.assertIn("conv.npy", self.comet("inspect", "in.npz"))
        self.write("raw.bin", files.pack("u8", [0, 1, 2, 3, 4, 5]))
        self.assertIn("2x3", self.comet("inspect", "--dtype", "u8", "--shape", "2,3", "raw.bin"))

    def test_help_and_version(self):
        for command in COMMANDS:
            text = self.comet(*command, "--help")
            self.assertIn("Usage: comet " + command[0], text)
            self.assertIn("Examples:", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 120)
        self.assertIn("Commands:", self.comet("--help"))
        self.assertRegex(self.comet("--version"), r"\Acomet \d+\.\d+\.\d+")

    def test_sizes_are_printed_unless_quiet(self):
        self.write("in.npy", files.npy("<f4", (64, 64), files.pack("f32", files.activations(4096))))
        self.assertIn("ratio", self.comet("compress", "in.npy", "-o", "x.comet"))
        self.assertEqual(self.comet("compress", "--quiet", "in.npy", "-o", "x.comet"), "")


if __name__ == "__main__":
    case.main(__doc__)
