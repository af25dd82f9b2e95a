#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/results/control.md from what bench/study_figures.sh measured.  usage: study_table.py FOLDER

Parts that were not measured are left out. Variants of all cifar-*.json are one table, beside those named `none`.
"""
import glob
import json
import math
import os
import statistics
import sys

from tables import interval, table

FOLDER = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
MIB = 2.0 ** 20
EVERY = 20  # updates from one observation to the next


def files(pattern):
    for path in sorted(glob.glob(os.path.join(FOLDER, pattern))):
        if os.path.exists(path) and os.path.getsize(path):
            with open(path) as file:
                yield os.path.basename(path)[:-5], json.load(file)


def part(values, share):
    """A quantile, between the two nearest values."""
    values = sorted(values)
    at = share * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def predictions():
    rows = []
    for name, result in files("assess-*.json"):
        for bound in dict.fromkeys(layer["bound"] for layer in result["layers"]):
            for use in sorted({layer["use"] for layer in result["layers"]}):
                of_use = [l for l in result["layers"] if l["bound"] == bound and l["use"] == use]
                ratios = [l["ratio"] for l in of_use if l["ratio"]]
                joint = [l["joint_ratio"] for l in of_use if l["joint_ratio"]]
                if ratios:
                    rms = [l["error_rel"] for l in of_use]
                    rows.append((name[len("assess-"):], bound, f"{min(rms):.2g}-{max(rms):.2g}", use, len(ratios),
                                 f"{statistics.median(ratios):.2f}", f"{part(ratios, 0.1):.2f}-{part(ratios, 0.9):.2f}",
                                 f"{statistics.median(joint):.2f}"))
    table("Predicted over measured sigma",
          ("network", "bound", "in rms", "use", "tensors", "median", "10-90 %", "joint, median"), rows)


def end_loss(run):
    """The training loss over the last fifth of a run."""
    return statistics.mean(run["loss"][-(len(run["loss"]) // 5):])


def accuracies():
    runs = {}
    for _, result in files("cifar-*.json"):
        for v in result["variants"]:
            runs.setdefault(v["name"], {})[v["seed"]] = v
    none = runs.get("none", {})
    raw = statistics.mean(v["saved_stored_bytes"] for v in none.values()) if none else math.nan
    rows = []
    for name, seeds in sorted(runs.items(),
                              key=lambda item: -statistics.mean(v["saved_stored_bytes"] for v in item[1].values())):
        mean = lambda of: statistics.mean(of(v) for v in seeds.values())
        pairs = [(v, none[s]) for s, v in seeds.items() if s in none and name != "none"]
        against = lambda of, digits: interval([of(v) - of(n) for v, n in pairs], digits)
        stored = mean(lambda v: v["saved_stored_bytes"])
        ceiling = [v["at_ceiling"] for v in seeds.values() if v.get("at_ceiling") is not None]
        rows.append((name, len(seeds), f"{mean(lambda v: v['accuracy']):.2f}", against(lambda v: v["accuracy"], 2),
                     f"{mean(end_loss):.3f}",
                     against(end_loss, 3), f"{stored / MIB:.2f}", f"{raw / stored:.1f}",
                     f"{100 * statistics.mean(ceiling):.0f} %" if ceiling else ""))
    table("CIFAR-10, resnet8, 5 epochs",
          ("variant", "seeds", "accuracy %", "points against `none` (95 %)", "training loss, last epoch",
                                          "against `none`", "stored MiB a step", "times fewer", "at the ceiling"), rows)


def costs():
    rows = []
    for path in sorted(glob.glob(os.path.join(FOLDER, "cost-*.jsonl"))):
        with open(path) as file:
            steps = [e for e in (json.loads(line) for line in file) if e["event"] == "step" and e["step"] > 1]
        collecting = statistics.median(e["ms"] for e in steps if e["step"] % EVERY == 1)
        others = statistics.median(e["ms"] for e in steps if e["step"] % EVERY != 1)
        rows.append((os.path.basename(path)[5:-6], f"{others:.1f}", f"{collecting:.1f}",
                     f"{100 * (collecting - others) / others / EVERY:.2f} %"))
    table("What collecting takes", ("network", "ms of a step", "of one that collects", "of all, in parts of a step"),
          rows)


predictions()
accuracies()
costs()
