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
