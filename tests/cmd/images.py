# SPDX-License-Identifier: Apache-2.0
"""Small pictures, and folders of them."""
import os
import struct
import zlib


def png(width, height, colour):
    """A picture of one colour."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def read_png(data):
    """Width, height and pixels of a picture of 8 bits, RGBA or with a palette, that is not interlaced."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = chunks.get(kind, b"") + body
        at += 12 + length
    width, height, bits, colours, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (bits, interlaced) == (8, 0) and colours in (3, 6), (bits, colours, interlaced)
    size, raw, pixels = {3: 1, 6: 4}[colours], zlib.decompress(chunks[b"IDAT"]), []
    before = bytes(width * size)
    for row in range(height):
        line = _unfilter(raw[row * (width * size + 1):(row + 1) * (width * size + 1)], before, size)
        pixels += [tuple(line[i:i + size]) for i in range(0, len(line), size)]
        before = line
    if colours == 3:
        palette = chunks[b"PLTE"]
        pixels = [tuple(palette[3 * p:3 * p + 3]) for (p,) in pixels]
    return width, height, pixels


def _unfilter(line, before, size):
    kind, line = line[0], bytearray(line[1:])
    for i, value in enumerate(line):
        left, above = line[i - size] if i >= size else 0, before[i]
        corner = before[i - size] if i >= size else 0
        nearest = min((left, above, corner), key=lambda v: abs(left + above - corner - v))
        line[i] = value + (0, left, above, (left + above) // 2, nearest)[kind] & 255
    return bytes(line)


def make_folder(root, classes, splits=("train", "val"), count=8, side=20):
    """Pictures of each class, each class of a colour of its own: easily told apart."""
    for split in splits:
        for number, name in enumerate(classes):
            folder = os.path.join(root, split, name)
            os.makedirs(folder)
            for i in range(count):
                colour = [20 + 3 * i] * 3
                colour[number % 3] = 220 - 3 * i
                with open(os.path.join(folder, "%d.png" % i), "wb") as file:
                    file.write(png(side, side, colour))
