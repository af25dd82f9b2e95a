#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/codec-gpu.svg: speed and ratio of eb on a GPU beside other codecs.

    comet bench codec --device cuda --mode nearest --dtype f32 --data ... --sizes 100 --json > run.json
    bench/plot_gpu.py run.json

Peers' figures, with their sources, are in bench/results/peers.json.
"""
import json
import os
import statistics
import sys

from svg import OURS, PEER, Svg

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def rows_of(path):
    """The fp32 cases of eb, rounding to nearest, at 100 MiB."""
    with open(path) as f:
        run = json.load(f)
    return [r for r in run["tensors"]
            if r["codec"] == "eb" and r["mode"] == "nearest" and r["dtype"] == "f32" and r["size_mib"] == 100]


def gb_per_s(row, what):
    return row["mib"] * 2**20 / row[what] / 1e6


def median_speed(rows, layout, what):
    return statistics.median(gb_per_s(r, what) for r in rows if r["layout"] == layout)


def draw_speed(svg, rows, peers, x, y):
    svg.text(x, y, "Speed, GB/s of tensor (100 MiB, fp32)", weight="bold", size=14)
    bars = [("device-to-device copy", None, median_speed(rows, "nchw", "copy_ms"), PEER)]
    for layout in ("nchw", "nhwc"):
        for what, verb in (("compress_ms", "compress"), ("decompress_ms", "decompress")):
            bars.append((f"Comet {layout.upper()}", verb, median_speed(rows, layout, what), OURS))
    for p in peers["speed"]:
        for verb in ("compress", "decompress"):
            bars.append((p["name"] + (f' ({p["where"]})' if "where" in p else ""), verb, p[verb], PEER))
    scale = 270 / max(b[2] for b in bars)
    for i, (name, verb, speed, fill) in enumerate(bars):
        top = y + 16 + 24 * i
        svg.text(x + 192, top + 13, f"{name} {verb or ''}".strip(), anchor="end", size=12)
        svg.bar(x + 200, top, speed * scale, 17, fill)
        svg.text(x + 206 + speed * scale, top + 13, f"{speed:,.0f}", size=12)


def draw_ratio(svg, rows, peers, x, y):
    svg.text(x, y, "Ratio at 0.3 x rms (filled) and 0.1 x rms (hollow)", weight="bold", size=14)
    tensors = peers["ratio"]["tensors"]
    most = 40
    scale = 260 / most
    for tick in range(0, most + 1, 8):
        svg.line(x + 190 + tick * scale, y + 14, x + 190 + tick * scale, y + 20 + 27 * len(tensors))
        svg.text(x + 190 + tick * scale, y + 36 + 27 * len(tensors), f"{tick}", anchor="middle", size=12)
    for i, t in enumerate(tensors):
        top = y + 32 + 27 * i
        svg.text(x + 182, top + 4, f'{t["file"]} {t["name"]}'.replace("_", " "), anchor="end", size=11)
        for bound, peer_ratio, hollow in ((0.1, t["ratio"][0], True), (0.3, t["ratio"][1], False)):
            ours = [r["ratio"] for r in rows if r["layout"] == "nchw" and abs(r["error_rel"] - bound) < 1e-6
                    and r["name"].startswith(t["file"]) and r["name"].endswith(t["name"])]
            svg.dot(x + 190 + peer_ratio * scale, top, PEER, hollow)
            if ours:
                svg.dot(x + 190 + ours[0] * scale, top, OURS, hollow)
    legend = y + 60 + 27 * len(tensors)
    svg.dot(x + 196, legend - 4, OURS, False)
    svg.text(x + 206, legend, "Comet", size=12)
    svg.dot(x + 276, legend - 4, PEER, False)
    svg.text(x + 286, legend, peers["ratio"]["name"], size=12)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = rows_of(sys.argv[1])
    with open(os.path.join(ROOT, "bench", "results", "peers.json")) as f:
        peers = json.load(f)
    svg = Svg(1060, 370)
    draw_speed(svg, rows, peers, 16, 26)
    draw_ratio(svg, rows, peers, 570, 26)
    path = os.path.join(ROOT, "docs", "images", "codec-gpu.svg")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(svg.end())
    print(path)


if __name__ == "__main__":
    main()
