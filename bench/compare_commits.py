# SPDX-License-Identifier: Apache-2.0
"""Compares how two builds of the command train. Started by compare_commits.sh.

Weights   the files of --save-weights, byte by byte, and what the logs say of each step but its time
Peak      the measured one of the same runs: the other may have 2 % more
Time      the median of a run's steps, the first ones left out. Runs alternate (A B, B A, ...), each pair gives a ratio
          other / base, and their median may be 1.05. The quartiles beside it say how far the machine let one see.
"""
import argparse
import filecmp
import json
import os
import statistics
import subprocess
import sys
import time

MOST_PEAK, MOST_TIME = 1.02, 1.05
STEPS_LEFT_OUT = 3  # the first ones take memory and make oneDNN's code
UNSTABLE_KEYS = ("ms", "wait_ms", "images_per_s")

# At a rate that rises and falls within these steps.
SMALL = ["--model", "resnet8", "--data", "fashion-mnist", "--lr", "0.2", "--no-augment", "--steps", "50"]
# The controller decides after 60 updates if nothing else is said: too late for 50 or 10 steps. A small c keeps its
# bounds below the ceiling, where all of them would be the same.
EARLY_SMALL, EARLY_CIFAR = "comet:warmup=10:every=5:window=5:c=0.03", "comet:warmup=3:every=1:window=1:c=0.03"
FORMS = {"none": ["--codec", "none"], "eb": ["--codec", "eb"], "eb:0.1": ["--codec", "eb:0.1"]}


def cases(cifar):
    """The trainings by name, each a list of options."""
    data = ["--data", f"cifar10:{cifar}"] if cifar else ["--data", "generated:2000", "--image", "32", "--channels", "3"]
    network = ["--model", "resnet18-cifar", *data, "--batch", "32", "--steps", "10"]
    found = {}
    for name, options, early in (("resnet8", SMALL, EARLY_SMALL), ("resnet18-cifar", network, EARLY_CIFAR)):
        for form, words in FORMS.items():
            found[f"{name} {form}"] = options + words
        found[f"{name} comet"] = options + ["--codec", "eb", "--control", early]
    return found


class Runner:
    """Runs trainings one after the other, and says how long the rest will take."""

    def __init__(self, arguments, total):
        self.folder, self.threads, self.total = arguments.folder, arguments.threads, total
        self.done, self.begin = 0, time.monotonic()

    def run(self, command, which, name, options):
        """The log's lines and the file of weights of one run."""
        place = os.path.join(self.folder, f"{which} {name}".replace(" ", "-").replace(":", "-"))
        weights, log = place + ".safetensors", place + ".jsonl"
        words = [command, "train", *options, "--threads", str(self.threads), "--eval-images", "100",
                 "--checkpoint", "none", "--save-weights", weights, "--json-log", log, "--quiet"]
        result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode:
            sys.exit(f"{' '.join(words)}\n{result.stdout}exit code {result.returncode}")
        self.tell(f"{name}, {which}")
        with open(log, encoding="utf-8") as file:
            return [json.loads(line) for line in file], weights

    def tell(self, text):
        self.done += 1
        took = time.monotonic() - self.begin
        left = took / self.done * (self.total - self.done)
        print(f"[{self.done}/{self.total}] {text}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)


def stable(events):
    """What a log says that must be the same each time: steps, decisions, evaluations."""
    return [{key: value for key, value in event.items() if key not in UNSTABLE_KEYS}
            for event in events if event["event"] in ("step", "control", "evaluation")]


def peak(events):
    return events[-1]["measured_peak_bytes"]


def step_time(events):
    return statistics.median([event["ms"] for event in events if event["event"] == "step"][STEPS_LEFT_OUT:])


def first_difference(base, other):
    for one, two in zip(stable(base), stable(other)):
        if one != two:
            keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
            return f"step {one['step']}: {', '.join(sorted(keys))}"
    return "" if len(stable(base)) == len(stable(other)) else "number of lines"


def compare_results(runner, commands, name, options):
    """A row of the table of weights and peaks, and whether it is within the limits."""
    (base, base_weights), (other, other_weights) = (runner.run(command, which, name, options)
                                                    for command, which in zip(commands, ("base", "other")))
    same = filecmp.cmp(base_weights, other_weights, shallow=False)
    difference, ratio = first_difference(base, other), peak(other) / peak(base)
    decisions = sum(event["event"] == "control" for event in base)
    good = same and not difference and ratio <= MOST_PEAK
    return [name, "same" if same else "DIFFERENT", difference or "same", str(decisions), f"{peak(base) / 2**20:.1f}",
            f"{peak(other) / 2**20:.1f}", f"{ratio:.3f}", "" if good else "BROKEN"], good


def compare_times(runner, commands, name, options, pairs):
    """A row of the table of times, and whether it is within the limit."""
    ratios, times = [], {"base": [], "other": []}
    for pair in range(pairs):
        order = [("base", commands[0]), ("other", commands[1])]
        for which, command in order if pair % 2 == 0 else order[::-1]:
            times[which].append(step_time(runner.run(command, which, name, options)[0]))
        ratios.append(times["other"][-1] / times["base"][-1])
    low, middle, high = statistics.quantiles(ratios, n=4)
    good = middle <= MOST_TIME
    return [name, *(f"{statistics.median(times[which]):.1f}" for which in ("base", "other")), f"{middle:.3f}",
            f"{low:.3f} to {high:.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}", "" if good else "BROKEN"], good


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("commands", nargs=2)
    parser.add_argument("--names", nargs=2, default=["base", "other"])
    parser.add_argument("--folder", default=".")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cifar")
    arguments = parser.parse_args()
    if arguments.pairs < 2:
        parser.error("--pairs must be 2 or more")
    trainings = cases(arguments.cifar)
    timed = {} if arguments.quick else {name: options for name, options in trainings.items()
                                        if name.endswith((" none", " eb"))}
    runner = Runner(arguments, 2 * len(trainings) + 2 * arguments.pairs * len(timed))
    print(f"base {arguments.names[0]}, other {arguments.names[1]}, {arguments.threads} threads", flush=True)

    rows = [compare_results(runner, arguments.commands, *item) for item in trainings.items()]
    print_table([["training", "weights", "log", "decisions", "peak base, MiB", "other", f"ratio (<= {MOST_PEAK})", ""],
                 *(row for row, _ in rows)])
    good = all(within for _, within in rows)
    if timed:
        rows = [compare_times(runner, arguments.commands, *item, arguments.pairs) for item in timed.items()]
        print_table([["training", "ms a step base", "other", f"ratio (<= {MOST_TIME})", "quartiles", "range", ""],
                     *(row for row, _ in rows)])
        good = good and all(within for _, within in rows)
    print("\nall within the limits" if good else "\nA LIMIT IS BROKEN")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
