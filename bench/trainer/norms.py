#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Comet's batch norms beside cuDNN's, at the shapes of ResNet-50 (batch 128, 224 px, NHWC), on the same GPU.

usage: norms.py COMET [--probe PROBE.json] [--dtype f32,bf16] [--batch 128] [--json OUT.json]
       norms.py --from OUT.json [--probe PROBE.json]         the table again

PROBE.json is what bench/cudnn_probe.c wrote with `--patterns bn+relu,bn+add+relu,drelu+dbn,drelu+dbn+dz`, right before
or after. Milliseconds of a step of the network: the sum over its 53 norms, each as often as it is there, as if all
were of the row's kind. Comet's forward is its statistics and what follows. 'With streams' it also writes, or reads, the
compressed x, and behind an addition that of the output, too. cuDNN keeps x and a bit mask.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for what bench/ shares
from tables import table  # noqa: E402

# Channels and height of the norms' maps: how many there are.
SHAPES = {(64, 112): 1, (64, 56): 6, (256, 56): 4, (128, 56): 1, (128, 28): 7, (512, 28): 5, (256, 28): 1,
          (256, 14): 11, (1024, 14): 7, (512, 14): 1, (512, 7): 5, (2048, 7): 4}
TYPES = {"f32": ("fp32", 4), "bf16": ("bf16", 2), "f16": ("fp16", 2)}  # as cudnn_probe calls them, bytes
# What is compared: cuDNN's pattern, and sums of times of `comet bench norm`.
ROWS = (("norm, ReLU: forward", "bn+relu", ("statistics", "forward"), ("statistics", "forward_stream")),
        ("norm, addition, ReLU: forward", "bn+add+relu", ("statistics", "add"), ("statistics", "add_streams")),
        ("norm, ReLU: backward", "drelu+dbn", ("backward",), ("backward_stream",)),
        ("norm, addition, ReLU: backward", "drelu+dbn+dz", None, ("add_backward",)))


def groups(batch, width):
    """Shapes of the same number of bytes: one call measures them all."""
    found = {}
    for channels, side in SHAPES:
        found.setdefault(batch * channels * side * side * width / 2 ** 20, []).append((channels, side))
    return found


def measure(options, folder):
    """Milliseconds by type, shape and kind."""
    import numpy

    random, found = numpy.random.default_rng(0), []
    for dtype in options.dtype.split(","):
        for mib, shapes in groups(options.batch, TYPES[dtype][1]).items():
            path = pathlib.Path(folder) / "norms.npz"
            numpy.savez(path, **{f"{channels}x{side}": random.standard_normal((2, channels, side, side), numpy.float32)
                                 for channels, side in shapes})
            done = subprocess.run([options.comet, "bench", "norm", "--device", "cuda", "--data", str(path), "--sizes",
                                   f"{mib:g}", "--layout", "nhwc", "--dtype", dtype, "--error-rel", "0.3", "--runs",
                                   str(options.runs), "--json", "--quiet"], stdout=subprocess.PIPE, check=False)
            if done.returncode != 0:
                sys.exit(f"norms.py: comet bench norm failed at {mib:g} MiB in {dtype}")
            found += json.loads(done.stdout)["tensors"]
    return found


def shape_of_probe(name):
    """7x7s2-3-64@224: 64 channels, 112 high."""
    kernel, _, rest = name.split("-")
    channels, side = rest.split("@")
    return int(channels), int(side) // (2 if "s2" in kernel else 1)


def of_cudnn(path):
    found = {}
    with open(path) as file:
        for job in json.load(file):
            if job["us"] > 0:
                found[job["type"], shape_of_probe(job["shape"]), job["pattern"]] = job["us"] / 1e3
    return found


def total(times):
    """Over the network; None where a shape is missing."""
    if any(times(shape) is None for shape in SHAPES):
        return None
    return sum(count * times(shape) for shape, count in SHAPES.items())


def show(tensors, cudnn):
    def channels_of(row):
        return row["shape"][-1] if row["layout"] == "nhwc" else row["shape"][1]

    ours = {(row["dtype"], (channels_of(row), row["shape"][2])): row for row in tensors}
    rows = []
    for dtype in dict.fromkeys(row["dtype"] for row in tensors):
        def comet(kinds, dtype=dtype):
            return kinds and total(lambda shape: sum(ours[dtype, shape][kind + "_ms"] for kind in kinds)
                                   if (dtype, shape) in ours else None)

        copies = total(lambda shape, dtype=dtype: ours[dtype, shape]["copy_ms"] if (dtype, shape) in ours else None)
        for title, pattern, plain, stream in ROWS:
            theirs = total(lambda shape: cudnn.get((TYPES[dtype][0], shape, pattern)))
            cells = [theirs, comet(plain), comet(stream)]
            numbers = ["-" if value is None else f"{value:.2f}" for value in cells]
            over = [f"{value / theirs:.2f}" if theirs and value else "-" for value in cells[1:]]
            rows.append((TYPES[dtype][0], title, *numbers, *over, "-" if copies is None else f"{copies:.2f}"))
    table("Batch norms of ResNet-50, ms of a step", ("type", "", "cuDNN", "Comet", "with streams", "Comet / cuDNN",
                                                     "with streams / cuDNN", "copies of x"), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("comet", nargs="?", help="the command")
    add("--from", dest="found", metavar="OUT.json")
    add("--probe", metavar="PROBE.json")
    add("--dtype", default="f32,bf16", metavar="LIST", help="of f32, bf16, f16 (default %(default)s)")
    add("--batch", type=int, default=128)
    add("--runs", type=int, default=7, help="medians of so many (default %(default)s)")
    add("--json", metavar="OUT.json")
    options = parser.parse_args()
    if not options.comet and not options.found:
        parser.error("COMET or --from is needed")
    if options.found:
        tensors = json.loads(pathlib.Path(options.found).read_text())["tensors"]
    else:
        with tempfile.TemporaryDirectory(prefix="comet_norms_") as folder:
            tensors = measure(options, folder)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"tensors": tensors}, indent=1))
    try:
        cudnn = of_cudnn(options.probe) if options.probe else {}
    except (OSError, ValueError, KeyError) as error:
        print(f"norms.py: cuDNN's times cannot be read: {error}", file=sys.stderr)
        cudnn = {}
    show(tensors, cudnn)


if __name__ == "__main__":
    main()
