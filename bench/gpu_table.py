#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/results/codec-gpu.md, from what the bench commands named there printed.

usage: bench/gpu_table.py codec FILE.json...      of `comet bench codec --device cuda --json`
       bench/gpu_table.py norm FILE.json...       of `comet bench norm --device cuda --json`
"""
import json
import sys


def quotient(group, what):
    """The median, and in brackets the slowest tensor's and its name; a dash where it was not measured."""
    name = group["worst_" + what]
    if name is None:
        return "-"
    return f"{group[what + '_over_copy']:.2f} ({group[what + '_over_copy_worst']:.2f}, {name})"


def promised_to_hold(group):
    """How many values are not what was promised: null is no promise, and codecs without a bound promise nothing."""
    if group["violations"] is None:
        return 0
    return sum(group[k] or 0 for k in ("violations", "zeros_broken", "mask_broken"))


def codec(paths):
    print("| mode | layout | dtype | MiB | bound | ratio | copy us | compress us | decompress us "
          "| c/copy (worst) | d/copy (worst) | d+bn/copy |\n" + "|---" * 12 + "|")
    broken = differ = tensors = 0
    for path in paths:
        with open(path) as file:
            groups = json.load(file)["summary"]
        for g in groups:
            times = " | ".join(f"{1000 * g[k]:.2f}" for k in ("copy_ms", "compress_ms", "decompress_ms"))
            with_bn = g["decompress_bn_over_copy"]
            bound = "-" if g["error_rel"] is None else f"{g['error_rel']:g}"
            print(f"| {g['mode'] or g['codec']} | {g['layout'].upper()} | {g['dtype']} | {g['size_mib']:g} | {bound} "
                  f"| {g['ratio']:.2f} | {times} | {quotient(g, 'compress')} | {quotient(g, 'decompress')} "
                  f"| {'-' if with_bn is None else format(with_bn, '.2f')} |")
            if g["mode"] != "training":  # its tensors are in the groups of their modes, too
                broken += promised_to_hold(g)
                differ += g["differ_from_cpu"]
            tensors = max(tensors, g["tensors"])
    print(f"\n{tensors} tensors. Values that are not what was promised: {broken}. "
          f"Streams or statistics that differ from the CPU's: {differ}.")


NORM_TIMES = {"statistics": "statistics", "forward": "forward", "forward_stream": "forward and stream",
              "backward": "backward from x", "backward_stream": "backward from the stream", "decompress": "decompress",
              "decompress_epilogue": "to the layer's output", "add": "adding: forward",
              "add_stream": "adding: and stream of u", "add_streams": "adding: and stream of y",
              "add_backward": "adding: backward"}


def norm_group(result):
    """Channels last it makes no difference how wide maps are."""
    layout = result["layout"].upper()
    return f"{layout}, {'all' if layout == 'NHWC' else str(result['shape'][-1]) + ' wide'} | {result['dtype']}"


def norm(paths):
    """In copies of x, ranges over tensors."""
    groups = {}
    for path in paths:
        with open(path) as file:
            for result in json.load(file)["tensors"]:
                groups.setdefault(norm_group(result), []).append(result)
    print("| layout | dtype | " + " | ".join(NORM_TIMES.values()) + " |\n" + "|---" * (2 + len(NORM_TIMES)) + "|")
    for name, results in groups.items():
        over = [[r[time + "_ms"] / r["copy_ms"] for r in results] for time in NORM_TIMES]
        print(f"| {name} | " + " | ".join(f"{min(each):.2f}-{max(each):.2f}" for each in over) + " |")


if len(sys.argv) < 3 or sys.argv[1] not in ("codec", "norm"):
    sys.exit(__doc__)
{"codec": codec, "norm": norm}[sys.argv[1]](sys.argv[2:])
