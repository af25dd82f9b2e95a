#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the memory lies that PyTorch's allocator has taken from the driver: step by step how much it took and how much
of that was allocated, and what was in its blocks when memory ran out.

  torch_reserved.py --data photographs.tar --batch 448 --cap 8GiB            ResNet-50 in bf16 with comet.attach
  torch_reserved.py --data photographs.tar --batch 448 --cap 8GiB --cudnn-rules --variants plain,hooks,fuse

The allocator takes blocks from the driver and gives out parts of them. A block can go back only when nothing in it is
allocated. Of each block it is told here whether it is free as a whole, or broken up: then what is free in it can be
given out again, but only for what fits into one of its gaps. Comet's segments are told apart by their size.

The first moment in which memory ran out and could not be had is shown, or, where it never did, the state when the last
step's forward pass has ended.
"""
import argparse
import json
import sys

import pictures
import torch
from common import add_comet_options, comet_options, mib, number, open_device, say, words
from torch_batch import Images, is_out_of_memory, size
from variants import VARIANTS, Setting, Training, train_before

LARGE = 1 << 20  # what is smaller comes from blocks of its own, of 2 MiB


def look(segment_bytes):
    """The allocator's blocks, in MiB: how many of each kind, what is allocated in them, and what is free."""
    found = {"blocks": 0, "taken": 0.0, "free as a whole": 0.0, "broken up": 0, "broken up, taken": 0.0,
             "broken up, free": 0.0, "greatest gap": 0.0, "segments of streams": 0.0, "blocks with segments": 0,
             "blocks with segments, free": 0.0, "small": 0.0, "waiting for a queue": 0.0}
    gaps, largest = [], []
    for block in torch.cuda.memory_snapshot():
        parts = block["blocks"]
        active = sum(part["size"] for part in parts if part["state"] == "active_allocated")
        waiting = sum(part["size"] for part in parts if part["state"] == "active_pending_free")
        free = sum(part["size"] for part in parts if part["state"] == "inactive")
        streams = sum(part["size"] for part in parts if part["state"] == "active_allocated" and
                      part.get("requested_size", part["size"]) == segment_bytes)
        total = block["total_size"]
        found["blocks"] += 1
        found["taken"] += mib(total)
        found["waiting for a queue"] += mib(waiting)
        found["segments of streams"] += mib(streams)
        if block["segment_type"] == "small":
            found["small"] += mib(total)
        elif not active and not waiting:
            found["free as a whole"] += mib(total)
        elif free:
            found["broken up"] += 1
            found["broken up, taken"] += mib(total)
            found["broken up, free"] += mib(free)
            gaps += [mib(part["size"]) for part in parts if part["state"] == "inactive"]
            if streams:
                found["blocks with segments"] += 1
                found["blocks with segments, free"] += mib(free)
            largest.append((mib(total), [(round(mib(part["size"]), 1), part["state"].replace("active_", ""))
                                         for part in parts]))
    gaps.sort(reverse=True)
    found["greatest gap"] = gaps[0] if gaps else 0.0
    found["gaps"] = [round(gap, 1) for gap in gaps[:24]]
    found["largest blocks that are broken up"] = sorted(largest, key=lambda item: -item[0])[:12]
    return found


class Watch:
    """Looks when memory has run out, before that is told to anybody."""

    def __init__(self, segment_bytes):
        self.segment_bytes, self.found = segment_bytes, None
        torch._C._cuda_attach_out_of_memory_observer(self._ran_out)

    def _ran_out(self, _device, asked, _total, _free):
        if self.found is None:
            self.found = {"asked": mib(asked), "allocated": mib(torch.cuda.memory_allocated()),
                          **look(self.segment_bytes)}


def one(options, setting, variant, state, images, device, watch):
    """Steps of one training, and the state of the allocator in the end."""
    row = {"precision": setting.precision, "variant": variant, "batch": options.batch, "steps": []}
    watch.found = None
    training = Training(setting, variant, state, comet_options(options))
    try:
        batch = [tensor.to(setting.device) for tensor in images.first(options.batch)]
        for step in range(options.steps):
            device.reset_peak()
            retries = device.retries()
            row["steps"].append({"what": "forward"})
            training.optimiser.zero_grad(set_to_none=True)
            loss = training.forward(*batch)
            device.synchronize()
            row["steps"][-1] = {"forward": mib(device.peak()), "held": mib(device.allocated())}
            if step == options.steps - 1:
                row["between"] = look(watch.segment_bytes)
            loss.backward()
            training.optimiser.step()
            device.synchronize()
            row["steps"][-1].update(peak=mib(device.peak()), taken=mib(device.peak_reserved()),
                                    retries=device.retries() - retries)
            if step == 0 and options.empty:
                torch.cuda.empty_cache()
    except Exception as error:  # noqa: BLE001 (libraries have kinds of their own)
        if not is_out_of_memory(error):
            raise
        row["error"] = str(error).split("\n")[0][:200]
    finally:
        training.close()
    row["ran out"] = watch.found
    return row


def show(row):
    print(f"\n{row['precision']} {row['variant']}, batch {row['batch']}: "
          f"{row.get('error', str(len(row['steps'])) + ' steps')}")
    for at, step in enumerate(row["steps"]):
        print(f"  step {at + 1}: " + ", ".join(f"{name} {number(value, 0) if name != 'what' else value}"
                                              for name, value in step.items()))
    for moment in ("ran out", "between"):
        found = row.get(moment)
        if found:
            print(f"  {moment}: " + ", ".join(f"{name} {number(value, 0)}" for name, value in found.items()
                                             if isinstance(value, (int, float))))
            print(f"    gaps: {found['gaps']}")
            for total, parts in found["largest blocks that are broken up"]:
                print(f"    block of {total:,.0f}: " + ", ".join(f"{part:g} {state}" for part, state in parts[:14]))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", nargs="+", metavar="PATH", help="photographs, as for torch_batch.py (default: smooth random images)")
    add("--photographs", type=int, default=512, metavar="N", help="at most as many are read (default %(default)s)")
    add("--model", default="resnet50", metavar="NAME", help="of torchvision (default %(default)s)")
    add("--precisions", type=words(("tf32", "bf16", "fp32")), default=["bf16"], metavar="NAME,...",
        help="of tf32, bf16, fp32 (default bf16)")
    add("--variants", type=words(VARIANTS), default=["hooks"], metavar="NAME,...", help="default hooks")
    add("--batch", type=int, required=True, help="images of a step")
    add("--cap", type=size, metavar="SIZE", help="what PyTorch may take from the driver (default: all there is)")
    add("--image", type=int, default=224, metavar="PX", help="height and width (default %(default)s)")
    add("--steps", type=int, default=5, help="of each training (default %(default)s)")
    add("--steps-before", type=int, default=60, metavar="STEPS", help="of plain training (default %(default)s)")
    add("--rate", type=float, default=0.02, help="of SGD with momentum (default %(default)s)")
    add("--cudnn-rules", action="store_true", help="torch.backends.cudnn.benchmark is off")
    add("--empty", action="store_true", help="torch.cuda.empty_cache() behind the first step")
    add_comet_options(add)
    add("--json", metavar="FILE", help="everything that was found")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    device = open_device("cuda")
    photographs = (pictures.read(options.data, options.image, options.photographs) if options.data
                   else pictures.make_smooth(options.image, 64))
    images = Images(pictures.Feed(photographs, torch.device("cpu")), torch.channels_last)
    watch, rows = Watch(dict(options.comet).get("segment_bytes", 32 << 20)), []
    for precision in options.precisions:
        setting = Setting(options.model, precision, torch.channels_last, options.rate, device.device,
                          tries_kernels=not options.cudnn_rules)
        torch.cuda.set_per_process_memory_fraction(1.0)
        state = train_before(setting, pictures.Feed(photographs, device.device), 64, options.steps_before)
        device.clear()
        if options.cap:
            torch.cuda.set_per_process_memory_fraction(options.cap / torch.cuda.get_device_properties(0).total_memory)
        for variant in options.variants:
            torch.cuda.reset_peak_memory_stats()
            rows.append(one(options, setting, variant, state, images, device, watch))
            device.clear()
            say(f"{precision} {variant}: done")
            show(rows[-1])
            if options.json:
                with open(options.json, "w") as file:
                    json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (pictures.DataError, OSError) as error:
        sys.exit(f"torch_reserved.py: {error}")
