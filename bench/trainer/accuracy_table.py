#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of `comet compare --json` and of bench/plugin/torch_accuracy.py in one table, in Markdown.

usage: accuracy_table.py TITLE FILE.json...

Differences are taken seed by seed, with the 95 % interval of their mean: to Comet's `none`, which for a seed has the
same first values and batches, and to PyTorch, whose are others. Times are those of runs that shared a GPU: no figures.
"""
import json
import pathlib
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for what bench/ shares
from tables import interval, table  # noqa: E402

MIB = 1 << 20


def of_comet(found):
    return [(run["name"], run["seed"], run["accuracy"], run["saved_raw_bytes"], run["saved_stored_bytes"])
            for run in found["variants"]]


def of_torch(found):
    name = {"plain": "PyTorch"}
    return [(name.get(run["variant"], "PyTorch " + run["variant"]), run["seed"], run["accuracy"], run.get("saved"),
             run.get("saved")) for run in found["runs"]]


def read(paths):
    runs, missing = [], []
    for path in paths:
        try:
            with open(path) as file:
                found = json.load(file)
            runs += of_torch(found) if "runs" in found else of_comet(found)
            missing += [f"{path}: {one['name']}, seed {one['seed']}: {one['message']}"
                        for one in found.get("failures", [])]
        except (OSError, ValueError, KeyError) as error:
            missing.append(f"{path}: {error}")
    return runs, missing


def difference(own, other):
    common = [seed for seed in own if seed in other]
    return interval([own[seed] - other[seed] for seed in common], 2) if common and own is not other else ""


def mean_mib(values):
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known) / MIB:,.1f}" if known else ""


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    runs, missing = read(sys.argv[2:])
    by_name = {}
    for name, seed, accuracy, raw, stored in sorted(runs, key=lambda run: (not run[0].startswith("PyTorch"), run[1])):
        if accuracy is not None:
            by_name.setdefault(name, {})[seed] = (accuracy, raw, stored)
    accuracies = {name: {seed: run[0] for seed, run in seeds.items()} for name, seeds in by_name.items()}
    none, torch = accuracies.get("none", {}), accuracies.get("PyTorch", {})
    rows = [(name, " ".join(f"{accuracy:.2f}" for accuracy in own.values()), f"{statistics.mean(own.values()):.2f}",
             difference(own, none), difference(own, torch), mean_mib(run[1] for run in by_name[name].values()),
             mean_mib(run[2] for run in by_name[name].values())) for name, own in accuracies.items()]
    table(sys.argv[1], ("", "seeds", "mean %", "points to `none` (95 %)", "points to PyTorch (95 %)", "saved MiB",
                        "as held MiB"), rows)
    for line in missing:
        print(f"\nNot there: {line}")


if __name__ == "__main__":
    main()
