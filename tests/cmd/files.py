# SPDX-License-Identifier: Apache-2.0
"""Small .npy and .npz files, written and read with nothing but Python itself, and values of all types as numbers."""
import ast
import io
import math
import struct
import zipfile

NPY_TYPE = {"f32": "<f4", "f16": "<f2", "bf16": "<u2", "u8": "|u1"}
SIZE = {"f32": 4, "f16": 2, "bf16": 2, "u8": 1}


def pack(dtype, values):
    """Bytes of the values. bf16 is cut, not rounded: any bf16 value will do for a test."""
    if dtype == "bf16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack("<%d%s" % (len(values), {"f32": "f", "f16": "e", "u8": "B"}[dtype]), *values)


def unpack(dtype, data):
    count = len(data) // SIZE[dtype]
    if dtype == "bf16":
        return [struct.unpack("<f", b"\0\0" + data[2 * i:2 * i + 2])[0] for i in range(count)]
    return list(struct.unpack("<%d%s" % (count, {"f32": "f", "f16": "e", "u8": "B"}[dtype]), data))


def npy(type_name, shape, data, fortran=False, version=1):
    shape_text = "(%s)" % "".join("%d, " % n for n in shape)
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (type_name, fortran, shape_text)
    return npy_with_header(text, data, version)


def npy_with_header(text, data, version=1):
    start = 10 if version == 1 else 12
    text += " " * (-(start + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin1") + data


def read_npy(data):
    """(type, shape, values' bytes) of a version 1 file in C order."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    assert (10 + length) % 64 == 0
    header = ast.literal_eval(data[10:10 + length].decode("latin1"))
    assert header["fortran_order"] is False
    return header["descr"], header["shape"], data[10 + length:]


class Unseekable(io.RawIOBase):
    """What zipfile writes to such a file has data descriptors behind its members."""

    def __init__(self):
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, piece):
        self.data += bytes(piece)
        return len(piece)


def npz(members, method=zipfile.ZIP_STORED, zip64=False, descriptors=False):
    """A zip archive of {name: bytes}."""
    target = Unseekable() if descriptors else io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with archive.open(info, "w", force_zip64=zip64) as member:
                member.write(data)
    return bytes(target.data) if descriptors else target.getvalue()


def read_zip(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {info.filename: archive.read(info) for info in archive.infolist()}


def activations(count, seed=1, sparse=True):
    """Something smooth with noise on it, half of it zero if sparse."""
    state, values = seed, []
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        noise = (state >> 33) / 2 ** 31 - 0.5
        value = 2 * math.sin(i / 9.0) + math.sin(i / 401.0) + 0.3 * noise
        values.append(max(value, 0.0) if sparse else value)
    return values


def rms_of_nonzeros(values):
    used = [v * v for v in values if math.isfinite(v) and v != 0]
    return math.sqrt(math.fsum(used) / len(used)) if used else 0.0
