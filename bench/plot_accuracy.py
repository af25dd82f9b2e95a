#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/accuracy-bytes.svg: what variants of a training store in a step, and what they cost in accuracy.

usage: plot_accuracy.py FILE.json...     of `comet compare --json`, one of them with the variant `none`
"""
import json
import math
import os
import statistics
import sys

from svg import GRID, INK, OURS, PEER, Svg

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 30, 54, 50
OUR_NAMES = ("comet", "budget", "eb")
LEFT_OF = ("none", "dct", "group:2", "budget", "eb:0.3")  # where a name would meet another's on the right of the dot


def read(paths):
    runs = {}
    for path in paths:
        with open(path) as file:
            result = json.load(file)
        for v in result["variants"]:
            runs.setdefault(v["name"], {})[v["seed"]] = (v["saved_stored_bytes"] / 2 ** 20, v["accuracy"])
    return runs


def differences(runs):
    """By variant: stored MiB, and points against `none` of the same seed."""
    none = runs["none"]
    return {name: (statistics.mean(stored for stored, _ in seeds.values()),
                   [a - none[s][1] for s, (_, a) in seeds.items() if s in none])
            for name, seeds in runs.items()}


def axes(variants):
    stored = [x for x, _ in variants.values()]
    points = [p for _, all_points in variants.values() for p in all_points]
    low, high = 2 ** math.floor(math.log2(min(stored))), 2 ** math.ceil(math.log2(max(stored)))
    bottom, top = math.floor(min(points)), math.ceil(max(points))
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * math.log(v / low) / math.log(high / low)
    y = lambda v: TOP + (HEIGHT - TOP - BOTTOM) * (top - v) / (top - bottom)
    return x, y, low, high, bottom, top


def draw_frame(svg, x, y, low, high, bottom, top):
    for tick in range(bottom, top + 1):
        svg.line(LEFT, y(tick), WIDTH - RIGHT, y(tick), INK if tick == 0 else GRID)
        svg.text(LEFT - 8, y(tick) + 4, f"{tick:+d}" if tick else "0", anchor="end", size=12)
    tick = low
    while tick <= high:
        svg.text(x(tick), HEIGHT - BOTTOM + 20, f"{tick:g}", anchor="middle", size=12)
        tick *= 2
    svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "stored in a step, MiB", anchor="middle", size=12)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    variants = differences(read(sys.argv[1:]))
    svg = Svg(WIDTH, HEIGHT)
    svg.text(16, 24, "CIFAR-10, resnet8, 5 epochs: points of accuracy against the same seed uncompressed",
             weight="bold", size=14)
    svg.text(16, 42, "filled: means; hollow: seeds", size=12)
    x, y, *ends = axes(variants)
    draw_frame(svg, x, y, *ends)
    for name, (stored, points) in variants.items():
        colour = OURS if name.split(":")[0] in OUR_NAMES else PEER
        for p in points:
            svg.dot(x(stored), y(p), colour, True, 3)
        mean = statistics.mean(points)
        svg.dot(x(stored), y(mean), colour, False, 5)
        left = name in LEFT_OF
        svg.text(x(stored) + (-9 if left else 9), y(mean) + 4, name, anchor="end" if left else "start", size=12)
    path = os.path.join(ROOT, "docs", "images", "accuracy-bytes.svg")
    with open(path, "w") as file:
        file.write(svg.end())
    print(path)


if __name__ == "__main__":
    main()
