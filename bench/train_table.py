#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/results/train-cpu.md from what bench/train_figures.sh measured.  usage: train_table.py FOLDER

Parts that were not measured are left out.
"""
import glob
import json
import os
import statistics
import sys

from tables import interval, table

FOLDER = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
MIB = 2.0 ** 20


def load(name):
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return None
    with open(path) as file:
        return [json.loads(line) for line in file] if name.endswith(".jsonl") else json.load(file)


def mib(value):
    return f"{value / MIB:.1f}"


def saved():
    rows = []
    for weights in ("resnet18", "resnet50", "resnet50-adamw"):
        torch = load(f"peak-{weights.split('-')[0]}-pytorch.json")
        for codec in ("eb", "eb:0.3", "recompute"):
            log = load(f"saved-{weights}-{codec}.jsonl")
            if not log or not torch:
                continue
            theirs = torch["channels_last"]["saved_bytes"] / torch["batch"]
            steps = [e for e in log if e["event"] == "step"]
            batch = next(e for e in log if e["event"] == "start")["batch"]
            ceiling = log[-1].get("at_ceiling")
            for first, last in ((0, 10), (len(steps) - 10, len(steps))):
                part = steps[first:last]
                stored = statistics.mean(e["saved_stored_bytes"] for e in part) / batch
                loss = statistics.mean(e["loss"] for e in part)
                rows.append((weights, codec, f"{first + 1}-{last}", f"{loss:.2f}", f"{theirs / MIB:.1f}",
                             f"{stored / MIB:.2f}",
                             f"{theirs / stored:.1f}", "" if ceiling is None else f"{100 * ceiling:.0f} %"))
    table("Saved for backward, MiB a sample, 224 px",
          ("weights", "variant", "steps", "loss", "PyTorch", "stored", "times fewer", "at the ceiling"), rows)


def peaks():
    for model in ("resnet18", "resnet50"):
        ours, default, torch = (load(f"peak-{model}{kind}.json") for kind in ("", "-default", "-pytorch"))
        rows = []
        if not ours:
            continue
        none = ours["variants"][0]
        above = lambda v, key: v[key] - v["static_bytes"]
        for v in ours["variants"][:1] + (default["variants"] if default else []) + ours["variants"][1:]:
            rows.append((v["name"], mib(v["saved_stored_bytes"]), mib(above(v, "planned_peak_bytes")),
                         mib(above(v, "measured_peak_bytes")),
                         f"{above(none, 'measured_peak_bytes') / above(v, 'measured_peak_bytes'):.2f}",
                         "" if v["at_ceiling"] is None else f"{100 * v['at_ceiling']:.0f} %"))
        for layout in ("contiguous_format", "channels_last") if torch else ():
            t = torch[layout]
            rows.append((f"PyTorch {t['torch']}, {layout}", mib(t["saved_bytes"]), "",
                         mib(t["peak_minus_static_bytes"]),
                         f"{above(none, 'measured_peak_bytes') / t['peak_minus_static_bytes']:.2f}", ""))
        table(f"{model}, 224 px, batch 16: MiB, peaks less weights, gradients and momentum",
              ("", "saved", "planned", "measured", "`none` / this", "at the ceiling"), rows)
    rows = []
    codecs = ("none", "eb", "eb:0.3", "pool:2", "recompute")
    for model in ("resnet18", "resnet50"):
        plans = {c: load(f"plan-{model}-{c}.json") for c in codecs}
        if all(plans.values()):
            least = {c: p["peak_bytes"] - p["static_bytes"] for c, p in plans.items()}
            rows.append((model, *(f"{mib(v)} ({least['none'] / v:.2f} x)" for v in least.values())))
    table("Planned at batch 64, before any step: MiB less weights, gradients and momentum", ("model", *codecs), rows)


def models():
    rows = []
    for path in sorted(glob.glob(os.path.join(FOLDER, "models-*.json"))):
        run = load(os.path.basename(path))
        for v in run["variants"] if run else ():
            loss = v["loss"]
            eighth = max(1, len(loss) // 8)
            rows.append((run["model"], v["name"], round(v["loss_step"][-1]), f"{statistics.mean(loss[:eighth]):.2f}",
                         f"{statistics.mean(loss[-eighth:]):.2f}",
                         mib(v["saved_stored_bytes"]), mib(v["measured_peak_bytes"] - v["static_bytes"]),
                         f"{v['ms_per_step']:.0f}"))
    table("On photographs, 64 px, batch 32: means over the first and last eighth",
          ("model", "variant", "steps", "first loss", "last loss", "saved MiB", "peak less static MiB", "ms a step"),
          rows)


def accuracy():
    first, others, rows = load("accuracy.json"), load("others.json"), []
    if not first:
        return
    runs = first["variants"] + (others["variants"] if others else [])
    none = {v["seed"]: v for v in runs if v["name"] == "none"}
    for name in dict.fromkeys(v["name"] for v in runs):
        mine = [v for v in runs if v["name"] == name]
        differences = [v["accuracy"] - none[v["seed"]]["accuracy"] for v in mine]
        rows.append((name, len(mine), f"{statistics.mean(v['accuracy'] for v in mine):.2f}",
                     "" if name == "none" else interval(differences, 2),
                     mib(statistics.mean(v["saved_stored_bytes"] for v in mine)),
                     f"{none[1]['saved_stored_bytes'] / statistics.mean(v['saved_stored_bytes'] for v in mine):.1f}",
                     mib(statistics.mean(v["measured_peak_bytes"] for v in mine))))
    table("CIFAR-10, resnet8, 5 epochs", ("variant", "seeds", "accuracy %", "points against `none` (95 %)",
                                          "saved MiB a step", "times fewer", "measured peak MiB"), rows)


def speed():
    rows = []
    for model in ("resnet18", "resnet50"):
        for turn in (1, 2, 3):
            ours, torch = load(f"speed-{model}-{turn}.json"), load(f"speed-{model}-pytorch-{turn}.json")
            if not ours or not torch:
                continue
            ms = {v["name"]: v["ms_per_step"] for v in ours["variants"]}
            layouts = [torch[k]["ms_per_step"] for k in ("contiguous_format", "channels_last")]
            rows.append((model, ours["variants"][0]["batch"], *(f"{ms[name]:.0f}" for name in ("none", "eb", "eb:0.3")),
                         f"{layouts[0]:.0f} / {layouts[1]:.0f}", f"{ms['none'] / min(layouts):.2f}",
                         f"{ms['eb'] / min(layouts):.2f}",
                         f"{ms['eb'] / ms['none']:.2f}", torch["channels_last"]["torch"]))
    table("ms a step, in turns", ("model", "batch", "none", "eb", "eb:0.3", "PyTorch, contiguous / channels_last",
                                  "none / PyTorch", "eb / PyTorch",
                                  "eb / none", "version"), rows)


for part in (saved, peaks, models, accuracy, speed):
    part()
