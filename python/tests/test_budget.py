# SPDX-License-Identifier: Apache-2.0
"""memory=: the plan, by itself; and on a GPU, that the measured peak stays below it."""
import copy
import gc
import types

import pytest
import torch
from torch import nn

import libcomet.torch as comet
from conftest import NO_GPU
from libcomet.torch import budget as budgets
from libcomet.torch.budget import AS_IT_IS, ON_DEVICE, ON_HOST, Plan, Site

on_gpu = pytest.mark.skipif(bool(NO_GPU), reason=f"no GPU: {NO_GPU}")
MIB = 1 << 20


# ---- the plan ----


def sites_of(count=20, raw=100, stream=10, forward=200, backward=300, can_stay=1):
    return [Site(at, can_stay, raw, stream, forward, backward, 1) for at in range(count)]


def peak_by_hand(sites, places, ahead, segment, flight):
    """What is held at each site, counted tensor by tensor."""
    worst, any_hosted = 0, ON_HOST in places
    stream = lambda site: int(budgets.GROWTH * site.stream)
    size = {ON_DEVICE: stream, AS_IT_IS: lambda s: s.raw, ON_HOST: lambda s: 0}
    for at, site in enumerate(sites):
        held = sum(size[place](other) for other, place in zip(sites[:at + 1], places))
        back = sum(stream(other) for near, (other, place) in enumerate(zip(sites, places))
                   if place == ON_HOST and at - ahead <= near <= at)
        worst = max(worst, site.forward + held + segment + (flight if any_hosted else 0),
                    site.backward + held + back + segment)
    return worst


@pytest.mark.parametrize("room", [310, 340, 380, 420, 500, 800, 5000])
@pytest.mark.parametrize("seed", range(4))
def test_plan_is_what_it_says(room, seed):
    torch.manual_seed(seed)
    draw = lambda most: int(torch.randint(1, most, ()))
    sites = [Site(at, draw(3) - 1, draw(100), draw(20), draw(200), draw(250), 1) for at in range(30)]
    plan = Plan(sites, 7, 11)
    fits = plan.fit(room)
    places = [place for _, place, _ in plan.rows(room)]
    need = peak_by_hand(sites, places, budgets.SITES_AHEAD, 7, 11)
    assert plan.need(plan.hosted, plan.kept) == need
    assert fits == (need <= room)
    if not fits:
        assert set(places) == {ON_HOST}
    elif plan.hosted:  # one less would not do
        assert plan.need(plan.hosted - 1, len(sites)) > room
    if fits and plan.kept > plan.hosted:
        assert plan.need(plan.hosted, plan.kept - 1) > room


def test_much_room_leaves_everything_as_it_is():
    plan = Plan(sites_of(), 0, 0)
    assert plan.fit(10000)
    assert (plan.hosted, plan.kept) == (0, 0)
    assert {place for _, place, _ in plan.rows(10000)} == {AS_IT_IS}


def test_what_cannot_stay_is_a_stream():
    plan = Plan(sites_of(can_stay=0), 0, 0)
    assert plan.fit(10000)
    assert {place for _, place, _ in plan.rows(10000)} == {ON_DEVICE}


def test_tensors_live_on_only_where_there_is_room():
    sites = sites_of(count=4)
    room = 260
    plan = Plan(sites, 0, 0)
    plan.hosted, plan.kept = 0, 4
    forward, backward = plan.needs(0, 4)
    leads = [lead for _, _, lead in plan.rows(room)]
    assert leads[:3] == [room - need for need in forward[1:]]  # the next site has its streams, too
    assert leads[3] == max(0, min(room - forward[3], room - backward[3]))


def test_a_budget_needs_a_gpu():
    with pytest.raises(ValueError, match="for a GPU"):
        comet.attach(nn.Linear(4, 4), memory="1GiB")


@pytest.mark.parametrize("memory", ["much", 0, -5])
def test_what_is_no_size(memory):
    with pytest.raises(ValueError):
        comet.attach(nn.Linear(4, 4), memory=memory)


# ---- from pass to pass, with a GPU that is made up ----


class MadeUp:
    """A session and its C module: the network has `need` bytes beside streams, on top of `base`."""

    def __init__(self, monkeypatch, limit, base=1000, need=300):
        self.base, self.need, self.rows, self.is_measuring, self.plans = base, need, sites_of(), False, []
        self.native, self.device, self.model = self, torch.device("cuda", 0), nn.Sequential()
        self._blocks, self.warnings, self.peak = [], [], base
        self.options = types.SimpleNamespace(segment_bytes=0)
        self.control = types.SimpleNamespace(give_up=self.warnings.append, measuring_bytes=0)
        monkeypatch.setattr(budgets._Peak, "read", lambda _: (self.base, self.peak))
        monkeypatch.setattr(budgets._Peak, "since_last", lambda _: float(self.peak))
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: self.base)
        self.budget = budgets.Budget(self, limit)

    def _warn(self, text):
        self.warnings.append(text)

    def set_budget(self, *_):
        pass

    def held_bytes(self):
        return 0

    def measured(self):
        return self.rows if self.is_measuring else []

    def begin_measuring(self, forgets):
        self.is_measuring = True
        if forgets:
            self.rows = [site._replace(forward=0, backward=0) for site in self.rows]

    def end_measuring(self):
        peak, self.is_measuring = float(self.peak) if self.is_measuring else None, False
        return peak

    def set_plan(self, plan):
        self.plans.append(plan)

    def step(self, collects=False, peak=None):
        """A pass. Returns whether it was measured."""
        may_collect = self.budget.begin_pass()
        if collects and may_collect:
            self.budget.begin_collecting()
        was_measured = self.is_measuring
        self.peak = peak or self.base + self.need
        self.rows = [site._replace(forward=max(site.forward, self.base), backward=max(site.backward, self.peak))
                     for site in self.rows]
        return was_measured


def test_memory_that_came_after_the_measurement_is_measured(monkeypatch):
    """The first step makes the optimizer's state."""
    gpu = MadeUp(monkeypatch, 5000)
    assert gpu.step()
    gpu.base += 500
    assert gpu.step() and not gpu.plans  # not planned with what is not true any more
    assert not gpu.step() and gpu.plans
    gpu.base += 10  # as steps differ
    assert not gpu.step()
    assert max(site.backward for site in gpu.budget.plan.sites) == 1800


@pytest.mark.parametrize("peak", [4000, 6000])
def test_a_pass_in_which_cudnn_tries_its_kernels_is_not_planned_with(monkeypatch, peak):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    gpu = MadeUp(monkeypatch, 5000)
    assert gpu.step(peak=peak)
    assert gpu.step() and not gpu.plans and len(gpu.warnings) == (peak > 5000)
    assert not gpu.step() and max(site.backward for site in gpu.budget.plan.sites) == 1300
    assert not any(gpu.step() for _ in range(5)) and not gpu.budget.exceeded
    gpu.rows = sites_of(count=21)  # another shape
    gpu.begin_measuring(False)  # the C module does
    gpu.peak = peak
    assert gpu.step()
    assert not gpu.step() and max(site.backward for site in gpu.budget.plan.sites) == 1300


def test_a_block_that_is_done_again_has_cudnn_try_kernels_in_another_thread(monkeypatch):
    """Less is free in the second step, so more is done again. What that step takes is not the least that does."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    gpu = MadeUp(monkeypatch, 5000)
    block = types.SimpleNamespace(name="block", calls=0, bytes=0, position=0)
    gpu.budget.blocks = [block]
    assert gpu.step(peak=6000)
    assert gpu.step(peak=6000)  # the first step's shapes were new
    block.calls = 1
    assert gpu.step(peak=6000)  # the block was
    assert len(gpu.warnings) == 2 and not gpu.plans
    with pytest.raises(comet.BudgetError):  # nothing was, so that much is needed
        gpu.step()


def test_what_is_too_little_names_the_least(monkeypatch):
    gpu = MadeUp(monkeypatch, 1100)
    gpu.step()
    gpu.base += 200
    with pytest.raises(comet.BudgetError) as error:
        gpu.step()
    assert 1300 + 200 <= error.value.least <= 1.04 * (1300 + 200)


def test_a_plan_that_was_exceeded_gets_more_room(monkeypatch):
    gpu = MadeUp(monkeypatch, 5000)
    gpu.step(), gpu.step()
    room = gpu.budget._room()
    gpu.step(peak=5100)
    assert gpu.step() and gpu.plans[-1] is None and len(gpu.warnings) == 1
    assert not gpu.step() and gpu.plans[-1] and gpu.budget._room() < room


def test_statistics_that_do_not_fit_end_the_controller_alone(monkeypatch):
    gpu = MadeUp(monkeypatch, 5000)
    gpu.step(), gpu.step()
    assert gpu.step(collects=True, peak=5100)  # the first such pass is measured
    assert gpu.step(collects=True) and "statistics" in gpu.warnings[0] and gpu.budget.stopped_collecting
    assert not gpu.step(collects=True) and gpu.plans[-1] and len(gpu.warnings) == 1


def test_a_training_that_did_fit_goes_on(monkeypatch):
    """Even if a later step does not, frugal as it may be. Another shape that does not fit is an error."""
    gpu = MadeUp(monkeypatch, 5000)
    gpu.step(), gpu.step()
    gpu.step(peak=5100), gpu.step(peak=5100)
    assert not gpu.step() and gpu.plans[-1]
    gpu.rows = [site._replace(number=site.number + 100) for site in gpu.rows]
    gpu.begin_measuring(False)  # the C module does, at a site that has no plan
    gpu.peak = 5100
    with pytest.raises(comet.BudgetError):
        gpu.step()


def test_passes_without_backward_are_not_planned(monkeypatch):
    gpu = MadeUp(monkeypatch, 5000)
    gpu.rows = [site._replace(was_read=0) for site in gpu.rows]
    assert all(gpu.step() for _ in range(budgets.TRIES + 1)) and not gpu.plans
    assert not gpu.step() and gpu.plans


# ---- on a GPU ----


def resnet():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None, num_classes=10).cuda()


def steps(model, count, memory=None, batch=32, size=128, **options):
    """Trains. Returns the greatest peak of all steps, what was allocated after the last one, losses, the report."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, target = torch.randn(batch, 3, size, size, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")
    session = comet.attach(model, optimizer, memory=memory, segment_bytes=2 * MIB, **options) if memory else None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    peak, losses = 0, []
    try:
        for _ in range(count):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            peak = max(peak, session.budget.peak if session else torch.cuda.max_memory_allocated())
        report = session.report("dict")["budget"] if session else None
    finally:
        if session:
            session.detach()
    return peak, torch.cuda.memory_allocated(), losses, report


def limit_of(model, part):
    """What plain PyTorch needs beside weights, gradients and momentum, times `part`, and those."""
    steps(copy.deepcopy(model), 1)  # libraries take memory when they are first used
    gc.collect()
    before = torch.cuda.memory_allocated()
    peak, static, _, _ = steps(copy.deepcopy(model), 2)
    gc.collect()
    assert torch.cuda.memory_allocated() == before  # else the budget is for more than the model
    return int(static + part * (peak - static))


@on_gpu
@pytest.mark.parametrize("part", [0.55, 0.65, 0.85])
@pytest.mark.parametrize("control", ["fixed", None])
def test_the_peak_stays_below_the_budget(part, control):
    model = resnet()
    limit = limit_of(model, part)
    peak, _, losses, report = steps(model, 14, limit, control=control)
    assert peak <= limit
    assert report["is_planned"] and not report["exceeded"]
    assert losses[-1] < losses[0]


@on_gpu
def test_the_first_steps_of_cudnns_benchmark_are_not_planned_with(monkeypatch):
    """It tries kernels with large workspaces, also where blocks are done again: that is another thread."""
    model = resnet()
    limit = limit_of(model, 0.6)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, target = torch.randn(32, 3, 128, 128, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
    with comet.compress(model, optimizer, memory=limit, segment_bytes=2 * MIB) as session:
        for step in range(12):
            if step == 6:
                torch.cuda.reset_peak_memory_stats()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), target).backward()
            optimizer.step()
        assert torch.cuda.max_memory_allocated() <= limit
        assert session.report("dict")["budget"]["is_planned"]


@on_gpu
def test_exact_under_a_budget_is_bit_equal():
    """Wherever streams are, and whatever stays as it is: what comes back is what was saved."""
    model = resnet()
    limit = limit_of(model, 0.9)
    _, _, wanted, _ = steps(copy.deepcopy(model), 6)
    gc.collect()
    peak, _, losses, _ = steps(model, 6, limit, exact=True)
    assert losses == wanted
    assert peak <= limit


@on_gpu
def test_too_little_names_the_least_and_that_does():
    model = resnet()
    limit = limit_of(model, 0.1)
    least, text = 0, ""
    try:
        steps(copy.deepcopy(model), 3, limit)
    except comet.BudgetError as error:
        least, text = error.least, str(error)
    assert f"{-(-least // MIB)}MiB" in text and least > limit
    gc.collect()
    peak, _, _, _ = steps(model, 8, least)
    assert peak <= least


@on_gpu
def test_a_large_budget_compresses_nothing_that_can_stay():
    model = resnet()
    _, _, _, report = steps(model, 4, 4 * limit_of(model, 1), own_norms=False)
    assert report["sites_on_host"] == 0
    assert report["sites_as_they_are"] == report["sites"]


@on_gpu
def test_blocks_are_done_again_where_tensors_stay_exact():
    """An exact EfficientNet has nothing that could be compressed: its blocks must be done again."""
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = torchvision.models.efficientnet_b0(weights=None, num_classes=10).cuda()
    limit = limit_of(model, 0.6)
    _, _, wanted, _ = steps(copy.deepcopy(model), 6)
    gc.collect()
    peak, _, losses, report = steps(model, 6, limit, exact=True)
    assert peak <= limit
    assert report["blocks_done_again"]
    assert losses == wanted


@on_gpu
def test_other_batches_get_a_plan_of_their_own():
    model = resnet()
    limit = limit_of(model, 0.6)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    torch.cuda.reset_peak_memory_stats()
    with comet.compress(model, optimizer, memory=limit, segment_bytes=2 * MIB, control="fixed") as session:
        for batch in (32, 32, 32, 12, 32, 32, 12, 32):
            x, target = torch.randn(batch, 3, 128, 128, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), target).backward()
            optimizer.step()
        assert session.budget.measured_passes <= 4  # one or two for each shape, and not every one
        assert session.budget.peak <= limit


@on_gpu
def test_two_graphs_alive():
    model = resnet()
    limit = limit_of(model, 0.9)
    x, target = torch.randn(16, 3, 128, 128, device="cuda"), torch.randint(0, 10, (16,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    with comet.compress(model, memory=limit, segment_bytes=2 * MIB) as session:
        for _ in range(4):
            losses = [nn.functional.cross_entropy(model(x), target) for _ in range(2)]
            for loss in losses:
                loss.backward()
        del losses, loss
        assert session.stats()[0]["entries"] == 0
        assert session.budget.peak <= limit


@on_gpu
def test_nothing_is_left_behind():
    """Neither by a session that ended nor by one that was refused."""
    limit = limit_of(resnet(), 0.7)
    gc.collect()
    before = torch.cuda.memory_allocated()
    for memory in (limit, limit // 4):
        try:
            steps(resnet(), 3, memory)
        except comet.BudgetError:
            pass
        gc.collect()
        assert torch.cuda.memory_allocated() == before
