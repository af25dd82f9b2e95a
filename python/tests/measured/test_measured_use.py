# SPDX-License-Identifier: Apache-2.0
"""Measured errors in all that users do: loss scales, autocast, several batches and graphs, exceptions, checkpoints,
reports. Nothing else changes because something is measured."""
import copy
import gc
import json
import math
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, assert_same_bits, attach, total
from libcomet.torch import control_measure, measure
from libcomet.torch.budget import Budget
from libcomet.torch.control import Control
from measured_case import (ALWAYS, Blocks, away, batch, even, learn, loss_of, measured, network, still,
                           strict)  # noqa: F401 (strict)


# ---- units ----


def run(model, images, labels, steps=8, scaler=None, parts=1, precision=None, **options):
    """What is measured of a model that does not move."""
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        for some, theirs in zip(images.chunk(parts), labels.chunk(parts)):
            with torch.autocast(images.device.type, precision or torch.bfloat16, enabled=precision is not None):
                loss = F.cross_entropy(model(some), theirs) / parts
                (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    result = measured(session)
    assert session.control.measures and session.stats()["measuring_bytes"] == 0
    session.detach()
    return result


def same(found, expected, keys=("predicted", "measured", "factor"), **close):
    assert found.keys() == expected.keys() and found
    for key, row in expected.items():
        assert found[key]["times"] == row["times"], key
        for name in keys:
            assert found[key][name] == pytest.approx(row[name], **close), (key, name)


def test_scaled_gradients(device):
    model = network().to(device)
    images, labels = batch(device)
    expected = run(copy.deepcopy(model), images, labels)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    same(run(copy.deepcopy(model), images, labels, scaler=scaler), expected, rel=1e-3)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_autocast(precision, device, monkeypatch):
    """What is measured is the same but for rounding. It is not the difference of a cast, and no sum of half precision,
    also where backward runs within autocast."""
    if device.type == "cpu" and precision == torch.float16:
        pytest.skip("convolutions of a CPU in half precision")
    kept, sums = set(), set()
    keep, weight_sums = control_measure.Room.keep, measure.Layer.weight_sums

    def note_kept(room, values, dtype, copies=1):
        result = keep(room, values, dtype, copies)
        kept.update(() if result is None else [(copies, result.values.dtype)])
        return result

    def note_sums(layer, x, dy):
        result = weight_sums(layer, x, dy)
        sums.add(result.dtype)
        return result

    model = network().to(device)
    images, labels = batch(device, 64)
    expected = run(copy.deepcopy(model), images, labels, 12)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**14) if precision == torch.float16 else None
    monkeypatch.setattr(control_measure.Room, "keep", note_kept)
    monkeypatch.setattr(measure.Layer, "weight_sums", note_sums)
    found = run(copy.deepcopy(model), images, labels, 12, precision=precision, scaler=scaler)
    assert kept == {(1, precision), (2, precision)} and sums == {torch.float32}
    assert found.keys() - expected.keys() <= {("0.input", "conv weights")}  # a copy of the images
    both = [(found[key], row) for key, row in expected.items() if key in found]
    ratios = [one["measured"] / one["predicted"] / (other["measured"] / other["predicted"]) for one, other in both]
    assert len(ratios) >= 7
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) == pytest.approx(1, abs=0.35), ratios


def test_two_half_batches_are_one(device):
    """Without batch norms, which would normalise each half on its own. Errors of both add up as gradients do."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(),
                          nn.Linear(16 * 14 * 14, 10)).to(device)
    images, labels = batch(device)
    whole, halves = (run(copy.deepcopy(model), images, labels, parts=parts) for parts in (1, 2))
    same(halves, whole, ("predicted", "measured"), rel=0.01)


# ---- what users do ----


def test_losses_and_gradients_are_those_without(device):
    """Bit by bit, while bounds are what they are: that something is measured changes nothing else."""
    def train(control):
        torch.manual_seed(3)
        model = Blocks().to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        session = attach(model, optimizer=optimizer, control=control, control_options=ALWAYS)
        result = {}
        for index in range(10):
            images, labels = batch(device, 16, index)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            result[f"loss {index}"] = loss.detach()
            result.update({f"{name} {index}": parameter.grad.clone() for name, parameter in model.named_parameters()})
        result.update({name: value.clone() for name, value in model.state_dict().items()})
        times = sum(row["times"] for row in measured(session).values())
        session.detach()
        return result, times

    without, none = train("comet:measured=0")
    with_it, some = train("comet")
    assert none == 0 and some > 10
    assert_same_bits(with_it, without)


def test_a_graph_that_is_gone_through_twice(device):
    """It is measured once; what is predicted is of both times, so there is no factor of it."""
    model = network().to(device)
    images = batch(device)[0]
    session, optimizer = learn(model, images)
    loss = loss_of(model, images)
    loss.backward(retain_graph=True)
    once = {key: (sums.clone(), batches) for key, (sums, _, batches) in session.control.measuring.weights.items()}
    loss.backward()
    assert once and session.control.room.used == 0
    for key, (sums, _, batches) in session.control.measuring.weights.items():
        assert batches == 1 and torch.equal(sums, once[key][0])
    optimizer.step()
    rows = measured(session)
    assert rows and all(use in ("norm scale", "norm input") for _, use in rows)  # batch norms are looked at once, too


def test_graphs_that_live_on(device):
    """What there is no room for is not measured. What comes late is not counted."""
    model = network().to(device)
    images = batch(device)[0]
    session = attach(model, control="comet", control_options=ALWAYS)  # an optimizer would change weights of live graphs
    loss_of(model, images).backward()
    session.step()
    for _ in range(3):
        losses = [loss_of(model, images) for _ in range(4)]
        assert 0 < session.control.room.used <= session.control.room.limit
        for loss in losses[:-1]:
            loss.backward()
        measuring = session.control.measuring
        before = {key: batches for key, (_, _, batches) in measuring.weights.items()}
        assert before
        session.step()
        losses[-1].backward()
        assert before == {key: batches for key, (_, _, batches) in measuring.weights.items()}
        assert session.control.room.used == 0
    assert session.control.room.peak <= session.control.measuring_bytes
    loss_of(model, images).backward()
    session.step()
    assert measured(session)


def raise_error(*_):
    raise ValueError


def test_exceptions(device):
    """Within the forward pass, and within the backward pass: nothing stays, and the next step is as any other."""
    model = network().to(device)
    images = batch(device)[0]
    session, optimizer = learn(model, images)
    for index in range(6):
        handle = model[8].register_forward_hook(raise_error) if index % 2 else \
            model[3].weight.register_hook(raise_error)
        with pytest.raises(ValueError):
            loss_of(model, images).backward()
        handle.remove()
        assert session.control.room.used == 0
    optimizer.zero_grad()
    optimizer.step()
    before = sum(row["times"] for row in measured(session).values())
    for _ in range(3):
        loss_of(model, images).backward()
        optimizer.step()
    assert sum(row["times"] for row in measured(session).values()) > before
    assert session.control.measures


def test_a_failure_ends_the_measuring_alone(device, monkeypatch):
    monkeypatch.setattr(Control, "strict", False)
    model = network().to(device)
    images = batch(device)[0]
    session, optimizer = learn(model, images)
    monkeypatch.setattr(measure.Layer, "weight_sums", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="errors are not measured any more"):
        loss_of(model, images).backward()
    optimizer.step()
    calls = session.control.native.calls
    loss_of(model, images).backward()
    optimizer.step()
    assert session.control.native is not None and session.control.native.calls > calls
    assert session.control.room.used == 0 and session.control.measuring_bytes == 0
    assert session.control.measuring is None


def test_nothing_stays(device):
    """A thousand tensors of a few hundred steps, without the garbage collector."""
    model = Blocks().to(device)
    images = batch(device, 8)[0]
    session, optimizer = learn(model, images)
    for index in range(150):
        if index % 3 < 2:
            loss_of(model, images).backward()
        else:
            model(images)  # a graph that nobody wants
        optimizer.step()
        optimizer.zero_grad()
        if index == 60:
            gc.collect()
            gc.disable()
            before, bytes_before = len(gc.get_objects()), resident()
    after = len(gc.get_objects())
    gc.enable()
    assert after - before < 200, after - before  # decisions are remembered
    assert resident() - bytes_before < 4 << 20
    assert session.control.room.used == 0 and total(session, "entries") == 0


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


# ---- whose turn it is ----


def sizes_of(count):
    return {kin: control_measure.Size(64 << kin % 3, 4 << 16 - kin % 3, 1 + kin % 2, 2) for kin in range(count)}


@pytest.mark.parametrize("stride", range(1, 11))
def test_all_take_their_turns(stride):
    """Whether statistics come with every turn or every tenth: all tensors, in blocks of channels that differ."""
    sizes, seen, blocks = sizes_of(70), {}, {}
    for turn in range(0, 60 * stride, stride):
        parts, room = control_measure.choose(sizes, 10 * turn, 10)
        assert 0 < len(parts) <= 10
        taken = 0
        for kin, (first, width) in parts.items():
            assert first >= 0 and first + width <= sizes[kin].channels and 2 <= width <= 8
            taken += width * sizes[kin].bytes * sizes[kin].copies
            seen[kin] = seen.get(kin, 0) + 1
            blocks.setdefault(kin, set()).add(first)
        assert taken <= room <= sum(size.channels * size.bytes for size in sizes.values()) // 192
    assert len(seen) == 70 and max(seen.values()) <= 2 * min(seen.values()) + 2
    assert sum(map(len, blocks.values())) > 0.6 * sum(seen.values())
    assert control_measure.choose(sizes, 120, 10) == control_measure.choose(dict(reversed(sizes.items())), 120, 10)
    assert control_measure.choose({}, 120, 10) == ({}, 0)


def test_a_run_that_goes_on(device):
    """From a state: the same parts are measured, and the same factors follow."""
    def steps(model, optimizer, session, first, last):
        parts = []
        for index in range(first, last):
            F.cross_entropy(model(batch(device, 32, index)[0]), batch(device, 32, index)[1]).backward()
            if session.control.measuring:
                parts.append(session.control.measuring.parts)
            optimizer.step()
            optimizer.zero_grad()
        return parts, measured(session)

    options = {"control_options": {"every": 2, "warmup": 4}}
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    session = attach(model, optimizer=optimizer, **options)
    steps(model, optimizer, session, 0, 21)
    state = json.loads(json.dumps({key: value.hex() if isinstance(value, bytes) else value
                                   for key, value in session.control.state_dict().items()}))
    state["native"] = bytes.fromhex(state["native"])
    copied = copy.deepcopy(model)
    other = torch.optim.SGD(copied.parameters(), 0.01, momentum=0.9)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    expected_parts, expected = steps(model, optimizer, session, 21, 33)
    again = attach(copied, optimizer=other, **options)
    again.control.load_state_dict(state)
    parts, found = steps(copied, other, again, 21, 33)
    assert parts == expected_parts and len(parts) == 6
    same(found, expected, ("factor",), rel=0.1)  # bounds are nearly the same: sites have seen no rms yet
    assert all(row["times"] > 0 for row in found.values())
    times = [{key: value[0] for key, value in one.control.means.of.items()} for one in (again, session)]
    assert times[0] == times[1] and max(times[0].values()) > 2


def test_a_network_that_grows(device):
    """The controller is made anew: factors of tensors that stay are kept, and how often they were measured."""
    def function(first, second, third, last, x):
        y = F.relu(second(F.relu(first(x))))
        return last(F.relu(third(y)) if model.deep else y)

    model = Program(function, *(nn.Conv2d(channels, 16, 3) for channels in (3, 16, 16, 16))).to(device)
    model.deep = False
    session, optimizer = learn(model, batch(device)[0])

    def step(index):
        away(model, even(32, index, device)).backward()
        optimizer.step()
        optimizer.zero_grad()
        measured(session)
        return {session.native.sites()[kin]["name"]: (factor, times)
                for kin, _, _, factor, times in session.control.native.factors()}

    for index in range(8):
        before = step(index)
    model.deep = True
    session.control.measures = False  # what there is afterwards is what was handed on
    for index in range(3):
        after = step(index)
    assert set(after) - set(before) == {"parts.2 > relu"} and after["parts.2 > relu"] == (1, 0)
    assert after["parts.0 > relu"] == before["parts.0 > relu"] and before["parts.0 > relu"][1] > 1
    assert before["parts.0 > relu"][0] > 1.5


# ---- options, and what is told ----


def test_switched_off(device):
    model = network().to(device)
    images, labels = batch(device)
    assert run(copy.deepcopy(model), images, labels, 3)
    for options in ({"control": "comet:measured=0"}, {"control": "fixed"}, {"exact": True}, {"control": "comet:mean"}):
        assert run(copy.deepcopy(model), images, labels, 3, **options) == {}, options
    session = attach(model, optimizer=still(model), control="comet:mean:floor=0.02:warmup-bound=0.1:every=7")
    assert session.control.method == "comet:mean" and session.control._every == 7
    with pytest.raises(ValueError, match="a number is wanted"):
        attach(network(), optimizer=still(model), control="comet:every=often")
    with pytest.raises(ValueError, match="no option 'sometimes'"):
        attach(network(), optimizer=still(model), control="comet:sometimes=1")


def test_report(device, tmp_path):
    model = Blocks().to(device)
    images, labels = batch(device)
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS)
    for _ in range(30):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    measured(session)
    data = session.report("dict", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == data
    assert {row["use"] for row in data["measured"]} >= {"conv weights", "linear weights", "norm input", "curve"}
    section = next(one for one in data["sections"] if one["title"] == "Measured errors")
    assert section["columns"] == ["site", "use", "bound", "predicted", "measured", "factor", "times"]
    assert len(section["rows"]) == len(data["measured"])
    row = next(row for row in section["rows"] if row[1] == "linear weights")
    assert all(isinstance(value, float) and value > 0 for value in row[2:6]) and row[6] > 0
    assert next(row for row in section["rows"] if row[1] == "curve")[3] == "-"
    text, page = session.report(), session.report("html")
    assert "Measured errors" in text and "norm input" in text and "Measured errors" in page


def test_memory(device):
    """What is kept is a small part of what is held, and counted."""
    model = Blocks().to(device)
    images = batch(device, 64)[0]
    session, optimizer = learn(model, images)
    room = session.control.measuring_bytes
    raw = sum(site["raw_bytes"] for site in session.native.sites())
    largest = max(site["raw_bytes"] for site in session.native.sites())
    assert 0 < room <= max(raw / 192, 2 * 2 * largest / 24)
    for _ in range(12):
        loss = loss_of(model, images)
        assert session.stats()["measuring_bytes"] == session.control.room.used <= room
        loss.backward()
        optimizer.step()
    assert 0.2 * room < session.control.room.peak <= room
    plan = types.SimpleNamespace(sites=[types.SimpleNamespace(raw=100)], needs=lambda *_: ([0], [1000]))
    for more, fits in ((room, True), (room - 1, False)):  # a budget asks for it, too
        budget = types.SimpleNamespace(session=session, plan=plan, _room=lambda: 1300 + more)
        assert Budget._collecting_fits(budget) == fits
