#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest batch that Comet trains inside a memory cap, and how many images a second go through there.

  comet_caps.py build/release/comet --data folder:photographs --caps 4GiB,8GiB,16GiB --json found.json
  comet_caps.py COMET --device cpu --model resnet8 --image 32 --caps 40MiB --multiple 8 --most 256 --settle 2 --row 2
                                                                        tries the logic

`comet plan` says what two batches take without training; memory grows with the batch in a straight line but for
workspaces, so the largest batch of each cap is known from these two. It is then run with `comet bench step --memory
CAP`: where it fails, one smaller by --multiple is tried. --beyond 1,1.5 also runs batches that are larger by these
factors: under --memory what does not fit goes to the host or is computed again, and the table says how much.

The cap counts what the trainer takes, not the context of CUDA and the code of libraries: as PyTorch's cap does
(torch_caps.py). 'measured' is what the driver says beyond the context.
"""
import argparse
import json
import re
import subprocess
import sys
import time


def size(text):
    match = re.fullmatch(r"([0-9.]+) *([KMGT]?)iB", text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 8GiB")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def sizes(text):
    return {word: size(word) for word in text.split(",")}


def say(text):
    print(text, file=sys.stderr, flush=True)


def ask(command):
    """The JSON object that it prints, and the seconds it took; None and the reason if there is none."""
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(done.stdout), time.monotonic() - begin
    except ValueError:
        return None, (done.stderr.strip().split("\n")[-1] or f"exit code {done.returncode}")


class Network:
    """One network in one type, held in one way."""

    def __init__(self, options, model, dtype, variant):
        self.options, self.model, self.dtype, self.variant = options, model, dtype, variant
        self.place = ["--device", options.device] + (["--dtype", dtype] if options.device != "cpu" else [])
        self.common = ["--model", model, "--image", str(options.image)] + self.place

    def planned(self, batch):
        codec = ["--codec", "eb" if self.variant.startswith("comet") else self.variant]
        found, seconds = ask([self.options.comet, "plan", *self.common, *codec, "--batch", str(batch), "--json"])
        if found is None:
            raise RuntimeError(f"comet plan: {seconds}")
        say(f"{self.model} {self.dtype} {self.variant}: batch {batch} is planned to take "
            f"{found['peak_bytes'] / 2 ** 20:,.0f} MiB ({seconds:.1f} s)")
        return found["peak_bytes"]

    def line(self):
        """Bytes of an image, and what there is without any."""
        low, high = self.options.plans
        first, second = self.planned(low), self.planned(high)
        slope = (second - first) / (high - low)
        if slope <= 0:  # workspaces outweigh images
            raise RuntimeError(f"batches of {low} and {high} take as much: --plans larger ones")
        return slope, first - slope * low

    def largest(self, cap, line):
        slope, start = line
        unit = self.options.multiple
        return min(int((cap - start) / slope) // unit * unit, self.options.most // unit * unit)

    def run(self, cap, batch):
        o = self.options
        found, seconds = ask([o.comet, "bench", "step", *self.common, "--data", o.data, "--variants", self.variant,
                              "--batch", str(batch), "--memory", cap, "--settle", str(o.settle), "--steps",
                              str(o.steps), "--row", str(o.row), "--ready", "2", "--json", "--quiet"])
        if found is None:
            return {"failed": seconds}
        return {**found["results"][0], "seconds": seconds}


KEPT = ("ms", "row_ms", "images_per_second", "peak_bytes", "static_bytes", "planned_peak_bytes", "library_bytes",
        "saved_raw_bytes", "saved_stored_bytes", "offloaded_bytes", "recomputed_bytes", "start_ms", "seconds", "failed")


def try_batch(network, cap, batch, tries):
    """With the batch, or the next smaller one that can be run."""
    for _ in range(tries):
        found = network.run(cap, batch)
        row = {"tool": "comet", "model": network.model, "dtype": network.dtype, "variant": network.variant, "cap": cap,
               "image": network.options.image, "batch": batch, **{key: found[key] for key in KEPT if key in found}}
        say(f"{network.model} {network.dtype} {network.variant} in {cap}: batch {batch}: " + (
            found.get("failed") or f"{found['images_per_second']:,.0f} images/s, {found['peak_bytes'] / 2 ** 20:,.0f} "
                                   f"MiB measured, {found['offloaded_bytes'] / 2 ** 20:,.0f} offloaded, "
                                   f"{found['recomputed_bytes'] / 2 ** 20:,.0f} computed again"))
        if "failed" not in row or batch <= network.options.multiple:
            break
        batch -= network.options.multiple
    return row


def search(network, write):
    options = network.options
    line = network.line()
    for cap, count in options.caps.items():
        largest, before = network.largest(count, line), None
        for factor in options.beyond:
            batch = min(int(largest * factor), options.most) // options.multiple * options.multiple
            if batch == before:
                continue
            before = batch
            if batch < options.multiple:
                write({"tool": "comet", "model": network.model, "dtype": network.dtype, "variant": network.variant,
                       "cap": cap, "batch": 0, "failed": "not even the smallest batch fits"})
                break
            write({**try_batch(network, cap, batch, options.tries), "beyond": factor})


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument

    def split(text):
        return text.split(",")

    add("comet", help="the command")
    add("--caps", type=sizes, default=sizes("4GiB,8GiB,16GiB"), metavar="SIZE,...", help="default 4GiB,8GiB,16GiB")
    add("--model", type=split, default=["resnet50"], metavar="NAME,...", help="default resnet50")
    add("--dtype", type=split, default=["bf16"], metavar="NAME,...", help="default bf16; a CPU has fp32 alone")
    add("--variants", type=split, default=["none", "eb"], metavar="NAME,...", help="default none,eb")
    add("--data", default="generated:4096", metavar="SET", help="as for `comet train` (default %(default)s)")
    add("--image", type=int, default=224, metavar="PX", help="height and width (default %(default)s)")
    add("--plans", type=lambda text: [int(word) for word in text.split(",")], default=[32, 64], metavar="B,B",
        help="the two batches that are planned (default 32,64)")
    add("--beyond", type=lambda text: [float(word) for word in text.split(",")], default=[1.0], metavar="F,...",
        help="factors on the batch that is planned to fit (default 1)")
    add("--multiple", type=int, default=16, metavar="N", help="batches are multiples of it (default %(default)s)")
    add("--most", type=int, default=3072, metavar="N", help="no batch above is tried (default %(default)s)")
    add("--tries", type=int, default=3, metavar="N", help="smaller batches after a failure (default %(default)s)")
    add("--settle", type=int, default=70, metavar="N", help="updates before it is timed (default %(default)s)")
    add("--steps", type=int, default=3, metavar="N", help="one by one (default %(default)s)")
    add("--row", type=int, default=20, metavar="N", help="timed in a row (default %(default)s)")
    add("--device", default="cuda", help="cuda or cpu (default %(default)s)")
    add("--json", metavar="FILE", help="everything that was found, written anew after each batch")
    options = parser.parse_args(arguments)
    if len(options.plans) != 2 or options.plans[0] >= options.plans[1] or options.plans[0] < 1:
        parser.error("--plans: two batches, the smaller one first")
    return options


def main():
    options = parse(sys.argv[1:])
    rows, failed = [], 0

    def write(row):
        rows.append(row)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"runs": rows}, file, indent=1)

    for model in options.model:
        for dtype in options.dtype if options.device != "cpu" else ["fp32"]:
            for variant in options.variants:
                try:
                    search(Network(options, model, dtype, variant), write)
                except RuntimeError as error:
                    say(f"{model} {dtype} {variant}: {error}")
                    failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
