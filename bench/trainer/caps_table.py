#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Largest batches inside memory caps, as a table and a plot, of what comet_caps.py and torch_caps.py found.

usage: caps_table.py FILE.json... [--plot FILE.svg] [--model resnet50] [--dtype bf16]
"""
import argparse
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for what bench/ shares
from svg import GRID, OURS, PEER, Svg  # noqa: E402
from tables import table  # noqa: E402

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 440, 64, 40, 56, 50
COLUMNS = ("network", "type", "cap", "variant", "batch", "x eager", "images/s", "x eager", "MiB", "offloaded MiB",
           "computed again MiB")


def read(paths):
    rows, missing = [], []
    for path in paths:
        try:
            with open(path) as file:
                rows += json.load(file)["runs"]
        except (OSError, ValueError, KeyError) as error:
            missing.append(f"{path}: {error}")
    return rows, missing


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def quotient(above, below):
    return number(above / below, 2) if above and below else ""


def taken(row):
    """Of PyTorch what its allocator took, of Comet what the driver says; the first is what its cap is about."""
    count = row.get("reserved_peak_bytes") if row["tool"] == "torch" else row.get("peak_bytes")
    return None if count is None else count / (1 << 20)


def cells(row, rows):
    start = [row["model"], row["dtype"], row["cap"], ("PyTorch " if row["tool"] == "torch" else "") + row["variant"]]
    if "failed" in row:
        return start + [row["batch"] or "-", "", row["failed"].replace("|", "/")] + [""] * 4
    eager = next((other for other in rows if other["variant"] == "eager" and "failed" not in other and
                  all(other[key] == row[key] for key in ("model", "dtype", "cap"))), {})
    return start + [row["batch"], quotient(row["batch"], eager.get("batch")), number(row.get("images_per_second")),
                    quotient(row.get("images_per_second"), eager.get("images_per_second")), number(taken(row)),
                    *(number(row[name] / (1 << 20)) if row.get(name) else "" for name in ("offloaded_bytes",
                                                                                          "recomputed_bytes"))]


def nice(value):
    """The next of 1, 2, 5 times a power of ten."""
    power = 10 ** (len(str(int(value))) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def draw(rows, title, path):
    """Images a second over the batch: a line for each variant, a dot for each cap."""
    most_x = 1.08 * max(row["batch"] for row in rows)
    most_y = 1.1 * max(row["images_per_second"] for row in rows)
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * v / most_x
    y = lambda v: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * v / most_y
    svg = Svg(WIDTH, HEIGHT)
    svg.text(16, 24, title, weight="bold", size=14)
    svg.text(16, 42, "images a second over the largest batch in each cap; blue: Comet", size=12)
    step = nice(most_y / 6)
    for tick in range(int(most_y / step) + 1):
        svg.line(LEFT, y(tick * step), WIDTH - RIGHT, y(tick * step), GRID)
        svg.text(LEFT - 8, y(tick * step) + 4, f"{tick * step:,.0f}", anchor="end", size=12)
    step = nice(most_x / 8)
    for tick in range(int(most_x / step) + 1):
        svg.text(x(tick * step), HEIGHT - BOTTOM + 20, f"{tick * step:,.0f}", anchor="middle", size=12)
    svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "batch", anchor="middle", size=12)
    for tool, variant in sorted({(row["tool"], row["variant"]) for row in rows}):
        colour = PEER if tool == "torch" else OURS
        dots = sorted(((row["batch"], row["images_per_second"], row["cap"]) for row in rows
                       if (row["tool"], row["variant"]) == (tool, variant)))
        for (x1, y1, _), (x2, y2, _) in zip(dots, dots[1:]):
            svg.line(x(x1), y(y1), x(x2), y(y2), colour)
        for batch, images, cap in dots:
            svg.dot(x(batch), y(images), colour, variant == "none")
            svg.text(x(batch), y(images) - 9, cap, anchor="middle", size=11)
        svg.text(x(dots[-1][0]), y(dots[-1][1]) + 20, ("PyTorch " if tool == "torch" else "") + variant,
                 anchor="end", size=12, fill=colour)
    pathlib.Path(path).write_text(svg.end())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE.json")
    parser.add_argument("--plot", metavar="FILE.svg")
    parser.add_argument("--model", default="resnet50", help="of the plot (default %(default)s)")
    parser.add_argument("--dtype", default="bf16", help="of the plot (default %(default)s)")
    options = parser.parse_args()
    rows, missing = read(options.files)
    rows.sort(key=lambda row: (row["model"], row["dtype"], len(row["cap"]), row["cap"], row["tool"] != "torch"))
    table("The largest batch inside a cap", COLUMNS, [cells(row, rows) for row in rows])
    if missing:
        print("\nNot read: " + "; ".join(missing))
    plotted = [row for row in rows if (row["model"], row["dtype"]) == (options.model, options.dtype) and
               "failed" not in row and row.get("images_per_second")]
    if options.plot and plotted:
        draw(plotted, f"{options.model}, {options.dtype}, {plotted[0].get('image', 224)} px", options.plot)
    elif options.plot:
        print(f"\nNothing of {options.model} in {options.dtype} to plot.", file=sys.stderr)


if __name__ == "__main__":
    main()
