# SPDX-License-Identifier: Apache-2.0
"""Weight files of Comet (.safetensors) as PyTorch's tensors, with what they say of themselves. Needs PyTorch alone."""
import json
import struct

import torch

TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64",
         torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8"}


def write(path, tensors, metadata):
    """tensors: {name: tensor}; metadata: {key: text}."""
    header, pieces, offset = {"__metadata__": {"format": "pt", **metadata}}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        piece = bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(piece)]}
        pieces.append(piece)
        offset += len(piece)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for piece in pieces:
            file.write(piece)


def read(path):
    """({name: tensor}, {key: text}). What begins with "comet." is Comet's own, and is left out of the tensors."""
    types = {name: dtype for dtype, name in TYPES.items()}
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        if name.startswith("comet."):
            if name == "comet.blob.images":  # of a checkpoint; weight files have it as metadata
                metadata.setdefault("comet.images", bytes(data[first:end]).decode())
            continue
        tensor = torch.frombuffer(data[first:end], dtype=torch.uint8) if end > first else torch.tensor([]).byte()
        tensors[name] = tensor.view(types[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def parse_images(text):
    """centre, mean and deviation of each channel, and names of classes, out of "comet.images"."""
    line, *names = text.rstrip("\n").split("\n")
    numbers = {key: [float(n) for n in value.split(",")] for key, value in (word.split("=") for word in line.split())}
    return numbers["centre"][0], numbers["mean"], numbers["deviation"], names


def format_images(centre, mean, deviation, names):
    line = "centre=%g mean=%s deviation=%s" % (centre, ",".join("%.9g" % x for x in mean),
                                               ",".join("%.9g" % x for x in deviation))
    return "\n".join([line, *names]) + "\n"
