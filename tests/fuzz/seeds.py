#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the inputs with which the corpora of fuzz_npy and fuzz_npz begin: small, one of each kind.

usage: tests/fuzz/seeds.py FOLDER, for example tests/fuzz/corpus. (tests/fuzz/seeds.c has those of the other targets.)
"""
import os
import struct
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cmd"))
import files  # noqa: E402

SMALL = files.npy("<f4", (2, 3), files.pack("f32", range(6)))


def write(target, name, data):
    folder = os.path.join(sys.argv[1], "fuzz_" + target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def npy_seeds():
    """The first byte: 1 a type is given, 2 and 4 which, 8 a layout, 16 and 32 which, 64 and 128 raw, with a shape."""
    shape = (2, 1, 3, 2)
    for number, dtype in enumerate(("f32", "f16", "bf16", "u8")):
        given = 1 | number << 1 if dtype == "bf16" else 0
        data = files.npy(files.NPY_TYPE[dtype], shape, files.pack(dtype, range(12)))
        write("npy", dtype, bytes([given]) + data)
        write("npy", dtype + "_given", bytes([1 | number << 1 | 8 | 32]) + data)
        write("npy", dtype + "_raw", bytes([1 | number << 1 | 64]) + files.pack(dtype, range(5)))
    write("npy", "void_bf16", bytes([1 | 2 << 1]) + files.npy("|V2", (3,), bytes(6)))
    write("npy", "scalar",
          b"\0" + files.npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", bytes(4)))
    write("npy", "one_dimension", b"\0" + files.npy("<f4", (5,), bytes(20)))
    write("npy", "empty", b"\0" + files.npy("<f4", (3, 0, 2), b""))
    write("npy", "fortran", b"\0" + files.npy("<f4", (2, 3, 2), files.pack("f32", range(12)), fortran=True))
    write("npy", "eight_dimensions", b"\0" + files.npy("|u1", (1, 2, 1, 2, 1, 2, 1, 2), bytes(16)))
    write("npy", "nine_dimensions", b"\0" + files.npy("|u1", (1,) * 9, b"\0"))
    write("npy", "version_2", b"\0" + files.npy("<f4", (2,), bytes(8), version=2))
    write("npy", "version_3", b"\0" + files.npy("<f4", (2,), bytes(8), version=3))
    write("npy", "other_type", b"\0" + files.npy("<f8", (2,), bytes(16)))
    write("npy", "records",
          b"\0" + files.npy_with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", bytes(4)))
    write("npy", "huge_extents", b"\0" + files.npy("<f4", (2 ** 40, 2 ** 40), b""))
    write("npy", "huge_beside_none", b"\0" + files.npy("<f4", (2 ** 50, 2 ** 50, 0), b"", fortran=True))
    write("npy", "cut_header", b"\0" + SMALL[:40])
    write("npy", "cut_values", b"\0" + SMALL[:-3])
    write("npy", "not_aligned",
          b"\0" + files.npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", bytes(4)).replace(
        struct.pack("<H", 118), struct.pack("<H", 117), 1)[:-5] + bytes(4))


def npz_seeds():
    members = {"a.npy": SMALL, "b/c.npy": files.npy("<f2", (4,), bytes(8)),
               "\u00e9.npy": files.npy("|u1", (300,), bytes(300))}
    deflated = {"method": zipfile.ZIP_DEFLATED}
    for name, options in (("stored", {}), ("deflated", deflated), ("zip64", {"zip64": True}),
                          ("descriptors", {"descriptors": True}),
                          ("all", {**deflated, "zip64": True, "descriptors": True})):
        write("npz", name, files.npz(members, **options))
    write("npz", "empty", files.npz({}))
    write("npz", "empty_member", files.npz({"a": b""}))
    write("npz", "bzip2", files.npz({"a.npy": SMALL}, zipfile.ZIP_BZIP2))
    write("npz", "ratio", files.npz({"a.npy": files.npy("|u1", (100000,), bytes(100000))}, zipfile.ZIP_DEFLATED))
    whole = files.npz(members, **deflated)
    write("npz", "cut", whole[:-30])
    write("npz", "encrypted", whole.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01", 1))
    end = whole.rindex(b"PK\x05\x06")
    write("npz", "comment", whole[:end + 20] + struct.pack("<H", 5) + b"hello")
    # All ones in the end record: where the directory is, is in a zip64 record before it.
    count, size, start = struct.unpack("<HII", whole[end + 10:end + 20])
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<IIQI", 0x07064b50, 0, end, 1)
    last = struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0)
    write("npz", "end64", whole[:end] + end64 + locator + last)


npy_seeds()
npz_seeds()
