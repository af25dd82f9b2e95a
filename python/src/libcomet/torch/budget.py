# SPDX-License-Identifier: Apache-2.0
"""memory=: a budget for all that PyTorch has allocated on the GPU, at its peak. docs/pytorch.md says how it is kept.

The first pass is as frugal as can be: every stream goes to the host, nothing lives on, and blocks are done again once
half of the budget is in use. It is measured, from one saved tensor to the next (native/hold/budget.h). From that a plan
follows: which tensors go to the host, which stay on the device as streams, which stay as they are. With
torch.backends.cudnn.benchmark it is the second one: in the first cuDNN tries its kernels, with workspaces as large as
they can be had, in every thread that calls it.
"""
import collections
import itertools

import torch

from libcomet.torch import recompute

MIB = 1 << 20
ON_DEVICE, ON_HOST, AS_IT_IS = range(3)  # places: native/hold/session.h
SITES_AHEAD = 6  # streams come back from the host this many sites before they are read: native/hold/budget.c
SLACK = 0.03  # of the budget, which is not planned with: the allocator rounds up, and steps are not all the same
GROWTH = 1.15  # streams may become this much larger than they were in the step that was measured
TRIES = 8  # passes that are measured before sites which backward never comes to are planned without it

Site = collections.namedtuple("Site", "number can_stay raw stream forward backward was_read")


class BudgetError(RuntimeError):
    """The training does not fit into memory=. `least` is what would do, in bytes."""

    def __init__(self, text, least):
        super().__init__(text)
        self.least = least


# ---- the plan ----


class Plan:
    """Sites in the order of the forward pass. The first `hosted` are on the host: they are needed last. From `kept` on
    they stay as they are: backward begins with those. Streams of the rest are on the device."""

    def __init__(self, sites, segment, flight):
        self.sites, self.segment, self.flight = sites, segment, flight
        self.hosted, self.kept = 0, len(sites)
        self.streams = [int(GROWTH * site.stream) for site in sites]
        self.before = [0, *itertools.accumulate(self.streams)]

    def _held(self, hosted, kept, is_forward):
        """Bytes that are held at each site: when its tensor has been saved, or is about to be read."""
        resident, sums = 0, []
        for at, site in enumerate(self.sites):
            if at >= hosted:
                resident += site.raw if at >= kept and site.can_stay else self.streams[at]
            on_the_way = self.flight if hosted else 0
            if not is_forward:  # those that have come back already
                on_the_way = self.before[min(at + 1, hosted)] - self.before[min(max(0, at - SITES_AHEAD), hosted)]
            sums.append(resident + on_the_way + self.segment)
        return sums

    def needs(self, hosted, kept):
        """(forward, backward): PyTorch's bytes at each site."""
        forward, backward = self._held(hosted, kept, True), self._held(hosted, kept, False)
        return ([site.forward + held for site, held in zip(self.sites, forward)],
                [site.backward + held for site, held in zip(self.sites, backward)])

    def need(self, hosted, kept):
        return max(map(max, self.needs(hosted, kept))) if self.sites else 0

    def fit(self, room):
        """As few on the host as fit, then as many as they are as fit. False: it does not fit with all on the host."""
        count = len(self.sites)
        self.hosted = next((hosted for hosted in range(count + 1) if self.need(hosted, count) <= room), count)
        while self.kept > self.hosted and self.need(self.hosted, self.kept - 1) <= room:
            self.kept -= 1
        return self.need(self.hosted, self.kept) <= room

    def rows(self, room):
        """For the C module: (number, place, how many bytes may live on until their streams are certain)."""
        forward, backward = self.needs(self.hosted, self.kept)
        free = [max(0, int(room - need)) for need in forward]
        free.append(max(0, int(room - backward[-1])) if backward else 0)
        places = [ON_HOST if at < self.hosted else AS_IT_IS if at >= self.kept and site.can_stay else ON_DEVICE
                  for at, site in enumerate(self.sites)]
        return [(site.number, place, min(here, behind))
                for site, place, here, behind in zip(self.sites, places, free, free[1:])]


def first_once(rows):
    """Each site once: a module that is called twice in a pass has two of them, but a shape may come again."""
    return list({row[0]: Site(*row) for row in reversed(rows)}.values())[::-1]


# ---- the budget of a session ----


class _Peak:
    """PyTorch's greatest peak. The C module has it, and must not have the session through it: a circle lives on."""

    def __init__(self, index):
        self.index, self.bytes = index, 0

    def read(self):
        """(PyTorch's bytes now, the most of them since the peak was reset)"""
        found = torch.cuda.memory_stats_as_nested_dict(self.index)["allocated_bytes"]["all"]
        return found["current"], found["peak"]

    def now(self):
        return self.read()[1]

    def since_last(self):
        """Of all that happened since this was called before."""
        peak = self.now()
        torch.cuda.reset_peak_memory_stats(self.index)
        self.bytes = max(self.bytes, peak)
        return float(peak)


class Budget:
    def __init__(self, session, limit):
        if session.device is None:
            raise ValueError("memory= is a budget for a GPU, and no parameter of the model is on one")
        self.session, self.limit, self.index = session, limit, session.device.index or 0
        self.flight = min(128 * MIB, limit // 16)
        self._peak = _Peak(self.index)
        self.planned = set()  # numbers of all sites that ever had a plan
        self.tried = set()  # and of those that were in a measured pass, and the names of blocks done again in one
        self.plan, self.tries, self.exceeded, self.measured_passes = None, 0, 0, 0
        self.base = 0  # the most that was allocated beside streams when a measured pass began
        self.collects, self.collecting_is_measured, self.stopped_collecting = False, False, False
        self.again = None  # blocks that are done again; None: not decided yet
        chosen = {block.module for block in session._blocks}
        self.blocks = [session._block(module, self._is_done_again) for module in recompute.blocks_of(session.model)
                       if module not in chosen]
        session.native.set_budget(limit, self.flight, self.index, self._peak.since_last)
        self._check_static()

    def _check_static(self):
        allocated = torch.cuda.memory_allocated(self.index)
        if allocated > self.limit:
            raise BudgetError(f"memory={self.limit / MIB:,.0f} MiB: PyTorch has {allocated / MIB:,.0f} MiB allocated "
                              "before the first step", allocated)

    @property
    def peak(self):
        """The most that PyTorch had allocated since the session began, or since its peak was reset after that."""
        return max(self._peak.bytes, self._peak.now())

    def _is_done_again(self, block):
        if self.again is not None:
            return block in self.again
        return torch.cuda.memory_allocated(self.index) > self.limit // 2

    # ---- passes ----

    def begin_pass(self):
        """Before a forward pass: plans anew where something was measured. Returns whether statistics for a controller
        may be collected in it."""
        native, base = self.session.native, self._base()
        if not self.measured_passes:
            self._measure(base)
            return False
        sites = first_once(native.measured())
        if sites and not all(site.was_read for site in sites) and self.tries < TRIES:
            self.tries += 1  # backward has not come to them: the measurement goes on
            return False
        self.tries = 0
        peak = native.end_measuring()
        if peak is not None and self._tried_kernels(sites):
            if peak > self.limit:
                self._warn_of(peak, "That was cuDNN trying kernels (torch.backends.cudnn.benchmark), in one step only")
            self._measure(base, forgets=True)
            return False
        is_kept = self._is_kept() if peak is None else self._fits(peak, base, sites)
        # Or there is memory now that the last measurement did not meet: the first step makes the optimizer's state.
        if not is_kept or base > self.base + SLACK / 2 * self.limit:
            self._measure(base)
            return False
        if peak is not None:
            self._make_plan(sites)
        return self.plan is not None and self._may_collect()

    def _base(self):
        """What is allocated and no stream: weights, gradients, the optimizer's state, what is the user's."""
        return self._peak.read()[0] - self.session.native.held_bytes()

    def _measure(self, base, forgets=False):
        """The next pass. forgets: not the most that it and the ones before it need, but that of itself."""
        self.base = max(self.base, base)
        self.measured_passes += 1
        self.session.native.begin_measuring(forgets)

    def _tried_kernels(self, sites):
        """What the pass took that was measured may not say what others take: cuDNN met shapes in it, or, where a block
        was done again for the first time, shapes in a thread that had not met them."""
        met = {site.number for site in sites} | {block.name for block in self.blocks if block.calls}
        new = met - self.tried
        self.tried |= new
        return bool(new) and torch.backends.cudnn.benchmark

    def _fits(self, peak, base, sites):
        """After a pass that was measured, with nothing on the device that can be elsewhere."""
        collected, self.collects = self.collects, False
        if peak <= self.limit:
            return True
        if collected:
            self._stop_collecting()
            self._forget()
            return False
        if not all(site.number in self.planned for site in sites) or not self.planned:
            self._refuse(peak + max(0, base - self.base))
        self._warn_of(peak)  # a training that did fit goes on
        self.exceeded += 1
        return True

    def _is_kept(self):
        """After a pass that went by the plan. A budget that was exceeded all the same is planned with more slack."""
        peak, self.collects = self._peak.now(), False
        if peak <= self.limit:
            return True
        self._peak.since_last()
        self._warn_of(peak)
        self._forget()
        return False

    def _warn_of(self, peak, what="The next steps are planned with more room"):
        self.session._warn(f"the budget was exceeded: {peak / MIB:,.0f} MiB were allocated at the peak, not "
                           f"{self.limit / MIB:,.0f}. {what}")

    def _forget(self):
        self.exceeded += 1
        self.session.native.set_plan(None)

    def _refuse(self, peak):
        least = int(peak / (1 - SLACK)) + 1
        raise BudgetError(f"memory={self.limit / MIB:,.0f} MiB is too little: a step of this training takes "
                          f"{peak / MIB:,.0f} MiB with everything on the host that can be there. "
                          f"memory='{-(-least // MIB)}MiB' would do; so would a smaller batch", least)

    def _room(self):
        return self.limit * (1 - SLACK * (1 + min(self.exceeded, 4)))

    def _make_plan(self, sites):
        native = self.session.native
        if self.again is None:
            self.again = [block for block in self.blocks if block.calls]
            if self.again and self._relax(sites):
                native.set_plan(None)  # with other blocks done again other tensors are saved: measured once more
                return
        plan = Plan(sites, self.session.options.segment_bytes, self.flight)
        plan.fit(self._room())
        self.plan = plan
        self.planned.update(site.number for site in sites)
        native.set_plan(plan.rows(self._room()))

    def _relax(self, sites):
        """Fewer blocks, if the others fit as they are: the last ones, whose tensors are there for the shortest time."""
        plan, room = Plan(sites, self.session.options.segment_bytes, self.flight), self._room()
        needs = [max(pair) for pair in zip(*plan.needs(len(sites), len(sites)))]
        left = list(self.again)
        while left:
            block = left[-1]
            grown = [need + (1.1 * block.bytes if at >= block.position else 0) for at, need in enumerate(needs)]
            if max(grown, default=0) > room:
                break
            needs = grown
            left.pop()
        is_changed = len(left) < len(self.again)
        self.again = left
        return is_changed

    # ---- statistics for a controller take memory, too ----

    def _may_collect(self):
        if self.stopped_collecting:
            return False
        if not self.collecting_is_measured and not self._collecting_fits():
            self._stop_collecting()
        return not self.stopped_collecting

    def begin_collecting(self):
        """The pass that begins collects statistics. The first of these is measured."""
        self.collects = True
        if not self.collecting_is_measured:
            self.collecting_is_measured = True
            self._measure(self.base)

    def _collecting_fits(self):
        """Norms are decoded once more for them, gradients live on meanwhile, and sums take memory of their own. So do
        the channels that are kept to measure errors."""
        kept = self.session.control.measuring_bytes
        needs = zip(self.plan.sites, self.plan.needs(len(self.plan.sites), len(self.plan.sites))[1])
        return all(need + 3 * site.raw + kept <= self._room() for site, need in needs)

    def _stop_collecting(self):
        self.stopped_collecting = True
        self.session.control.give_up("its statistics do not fit into the budget")

    def end(self):
        self.session.native.set_plan(None)

    def describe(self):
        """For the report."""
        plan = self.plan
        return {"limit_mib": self.limit / MIB, "peak_mib": self.peak / MIB, "exceeded": self.exceeded,
                "measured_passes": self.measured_passes,
                "is_planned": plan is not None,
                "sites_on_host": plan.hosted if plan else None,
                "sites_as_they_are": len(plan.sites) - plan.kept if plan else None,
                "sites": len(plan.sites) if plan else None,
                "blocks_done_again": [block.name for block in self.again or []],
                "stopped_collecting": self.stopped_collecting}

    def section(self):
        """A table of the report (report_data.py)."""
        said, notes = self.describe(), []
        rows = [["budget", f"{said['limit_mib']:,.0f} MiB"],
                ["PyTorch's peak, measured", f"{said['peak_mib']:,.0f} MiB"]]
        if said["is_planned"]:
            streams = said["sites"] - said["sites_on_host"] - said["sites_as_they_are"]
            rows += [["tensors as they are", str(said["sites_as_they_are"])], ["streams on the device", str(streams)],
                     ["streams on the host", str(said["sites_on_host"])]]
        rows.append(["blocks done again", str(len(said["blocks_done_again"]))])
        if said["exceeded"]:
            notes.append(f"The budget was exceeded {said['exceeded']} times.")
        if said["stopped_collecting"]:
            notes.append("Statistics for the controller did not fit into the budget: bounds are fixed.")
        return {"title": "Memory budget", "columns": ["", ""], "rows": rows, "notes": notes}
