#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/results/codec-gpu.md, from what the bench commands named there printed.

usage: bench/gpu_table.py codec FILE.json...      of `comet bench codec --device cuda --json`
       bench/gpu_table.py norm FILE.txt           of `comet bench norm --device cuda`
"""
import json
import sys


def codec(paths):
    print("| layout | dtype | MiB | bound | ratio | resident | copy us | compress us | decompress us "
          "| compress / copy (slowest) "
          "| decompress / copy (slowest) |\n" + "|---" * 11 + "|")
    broken = differ = tensors = 0
    for path in paths:
        for s in json.load(open(path))["summary"]:
            times = " | ".join(f"{1000 * s[k]:.2f}" for k in ("copy_ms", "compress_ms", "decompress_ms"))
            print(f"| {s['layout'].upper()} | {s['dtype']} | {s['size_mib']} | {s['error_rel']} | {s['ratio']:.2f} "
                  f"| {s['ratio_resident']:.2f} "
                  f"| {times} | {s['compress_over_copy']:.2f} ({s['compress_over_copy_worst']:.2f}) "
                  f"| {s['decompress_over_copy']:.2f} ({s['decompress_over_copy_worst']:.2f}) |")
            broken += s["violations"] + s["zeros_broken"]
            differ += s["differ_from_cpu"]
            tensors = s["tensors"]
    print(f"\n{tensors} tensors. Values out of bound, zeros broken: {broken}. "
          f"Streams or statistics that differ from the CPU's: {differ}.")


def norm(paths):
    print("| tensor | layout | bound | copy | forward | forward and stream | backward from x "
          "| backward from the stream | decompress "
          "| with scale, shift and ReLU |\n" + "|---" * 10 + "|")
    for line in open(paths[0]):
        f = line.split()
        if len(f) < 16 or f[1] not in ("nhwc", "nchw"):
            continue
        copy, fwd, stream, from_x, from_stream, plain, epilogue = map(float, f[6:13])
        print(f"| {f[0].split('/')[1]} | {f[1].upper()} | {f[4]} | {copy:.0f} | {fwd:.0f} "
              f"| {stream:.0f} ({stream / fwd:.2f} x) | {from_x:.0f} "
              f"| {from_stream:.0f} ({from_stream / from_x:.2f} x) | {plain:.0f} "
              f"| {epilogue:.0f} ({epilogue / plain:.2f} x) |")


if len(sys.argv) < 3 or sys.argv[1] not in ("codec", "norm"):
    sys.exit(__doc__)
{"codec": codec, "norm": norm}[sys.argv[1]](sys.argv[2:])
