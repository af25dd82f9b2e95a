#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table of what `comet bench step --json` and torch_step.py found, in Markdown.

usage: step_table.py [--dtype NAME] FILE.json...      NAME: rows of that type alone

Times are those of steps in a row. Ratios are to PyTorch eager of the same network, type, batch and size, or to Comet's
`none` where there is no eager. Memory is the measured peak without weights, gradients and momentum: what the driver
says is taken, and beside it, of PyTorch, what its allocator had given out. A variant that failed says why; files that
are not there, or were cut short, are named below the table.
"""
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for what bench/ shares
from tables import table  # noqa: E402

COLUMNS = ("network", "type", "variant", "ms", "one by one", "x eager", "images/s", "MiB at the peak", "times less",
           "allocated MiB", "of first steps", "saved MiB", "first steps, ms", "start, s")
ORDER = ("eager", "checkpoint", "compile", "compile-budget", "none", "eb")  # others behind, as they come


def read(paths):
    rows, missing = [], []
    for path in paths:
        try:
            with open(path) as file:
                found = json.load(file)
            rows += [{**row, "of": tuple(found[key] for key in ("model", "batch", "image")), "torch": "torch" in found,
                      "forms": found.get("forms")}
                     for row in found["results"]]
        except (OSError, ValueError, KeyError) as error:
            missing.append(f"{path}: {error}")
    return rows, missing


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def quotient(above, below, digits):
    return number(above / below, digits) if above and below else ""


def mib(row, name):
    """Without what is there all the time."""
    if row.get(name) is None:
        return None
    return max(0, row[name] - row["static_bytes"]) / (1 << 20)


def saved(row):
    raw, stored = row.get("saved_raw_bytes"), row.get("saved_stored_bytes")
    if raw is None:
        return ""
    return number(raw / (1 << 20)) + ("" if stored in (None, raw) else f" -> {number(stored / (1 << 20))}")


def time_of(row):
    """A step in a row; where none was timed, one alone."""
    return row.get("row_ms") or row.get("ms")


def base_of(row, rows):
    for wanted in ("eager", "none"):
        for other in rows:
            if (other["of"], other["dtype"], other["variant"]) == (row["of"], row["dtype"], wanted) and \
                    "failed" not in other:
                return other
    return {}


def cells(row, rows):
    model, batch, image = row["of"]
    name = ("PyTorch " if row["torch"] else "") + row["variant"] + (f", `{row['forms']}`" if row["forms"] else "")
    start = [f"{model}, {batch} x {image} px", row["dtype"], name]
    if "failed" in row:
        return start + [row["failed"].replace("|", "/")] + [""] * (len(COLUMNS) - 4)
    base = base_of(row, rows)
    first = ", ".join(number(ms) for ms in row.get("first_steps_ms", [])[:3])
    return start + [number(time_of(row), 2), number(row.get("ms"), 2),
                    quotient(time_of(row), base and time_of(base), 2), number(row.get("images_per_second")),
                    number(mib(row, "peak_bytes")), quotient(base and mib(base, "peak_bytes"), mib(row, "peak_bytes"),
                                                             1),
                    number(mib(row, "allocated_peak_bytes")), number(mib(row, "first_peak_bytes")), saved(row), first,
                    number(row["start_ms"] / 1e3, 1) if "start_ms" in row else ""]


def place(row):
    at = ORDER.index(row["variant"]) if row["variant"] in ORDER else len(ORDER)
    return not row["torch"], at


def main():
    paths, only = sys.argv[1:], None
    if paths[:1] == ["--dtype"]:
        only, paths = paths[1:2], paths[2:]
    if not paths:
        sys.exit(__doc__)
    rows, missing = read(paths)
    rows = [row for row in rows if only is None or row["dtype"] in only]
    groups = {}
    for row in rows:
        groups.setdefault((row["of"], row["dtype"]), []).append(row)
    ordered = [row for group in groups.values() for row in sorted(group, key=place)]
    table("A step of training", COLUMNS, [cells(row, rows) for row in ordered])
    if missing:
        print("\nNot read: " + "; ".join(missing))


if __name__ == "__main__":
    main()
