# SPDX-License-Identifier: Apache-2.0
"""Controllers: they set the bound of each held tensor from statistics of the training (docs/theory.md).

An iteration is a step of the optimizer: its hook ends one. In every tenth iteration, later every hundredth if bounds
have settled, passes are watched: what each layer and batch norm reads and which gradients come back is looked at by
libcomet's own functions (native/control/collect.c), on a GPU without waiting for it. All other iterations run as
without one.

What a held tensor is used for is learnt while the model runs, from the operations that hold it:

* input of a convolution or linear layer, also through a ReLU whose result is the same tensor: the layer's weights
* input of a batch norm: its scale, and the weights of the layer that made the input
* what a fused batch norm holds (fuse): both, and the weights of layers that read its output

Everything else, and a batch norm that no layer is right before, keeps the bound that it has without a controller.
"""
import collections
import math
import sys
import time
import weakref

import torch

from libcomet import _native
from libcomet.torch import control_measure, ops
from libcomet.torch.control_measure import NEEDS_MEASURED
from libcomet.torch.control_pass import NEEDS_ACGC, NO_MODEL, Guard, Layer, Norm, Pass
from libcomet.torch.options import PARTS

METHODS = ("comet", "comet:mean", "acgc", "budget", "fixed")

_EVENTS = 4096  # decisions that are remembered
_LEARNT = 8     # passes of one iteration that are watched for nothing but what there is
_FIRST = 6      # observations until rests begin: they are smoothed, and the first decision comes with the sixth
_RAREST = 10    # times as rarely as the controller asks for are statistics collected where bounds have settled
_WARM = 1000    # updates that a momentum buffer is taken to have seen which was there before the session


# ---- numbers that are on their way from a device ----


class _Arriving:
    """Tensors of one number, on any device, as floats: at once from a CPU, later from a GPU, without waiting. Then all
    that was issued on `on` before has been done, too."""

    def __init__(self, scalars, on=()):
        self.count, self.parts, self.events, self.is_late = len(scalars), [], [], False
        devices = collections.defaultdict(list)
        for at, scalar in enumerate(scalars):
            if scalar is not None:
                devices[scalar.device].append((at, scalar))
        for device, numbered in devices.items():
            values = torch.stack([_plain(scalar) for _, scalar in numbered])
            if device.type == "cuda":
                values = torch.empty(values.shape, pin_memory=True).copy_(values, non_blocking=True)
            self.parts.append(([at for at, _ in numbered], values))
        for device in {*devices, *on}:
            if device.type == "cuda":
                self.events.append(torch.cuda.Event())
                self.events[-1].record(torch.cuda.current_stream(device))

    @property
    def is_there(self):
        return not self.events

    def numbers(self):
        for event in self.events:  # of an iteration ago: the device has a whole one to go on with meanwhile
            event.synchronize()
        found = [math.nan] * self.count
        for places, values in self.parts:
            for at, value in zip(places, values.tolist()):
                found[at] = value
        return found


def _plain(scalar):
    scalar = scalar.detach()
    return scalar if scalar.dim() == 0 and scalar.dtype == torch.float32 else scalar.reshape(()).float()


def _sums(tensors, order):
    """Norms in fp32: sums of |.|, or roots of sums of squares. None stays None."""
    present = [tensor.detach() for tensor in tensors if tensor is not None]
    if present and {(tensor.dtype, tensor.device) for tensor in present} == {(torch.float32, present[0].device)}:
        norms = torch._foreach_norm(present, order)  # a few kernels for all of them
    else:
        norms = [torch.linalg.vector_norm(tensor, order, dtype=torch.float32) for tensor in present]
    norms = iter(norms)
    return [None if tensor is None else next(norms) for tensor in tensors]


# ---- optimizers ----


def _find(optimizer, parameter):
    if optimizer is not None:
        for group in optimizer.param_groups:
            if any(one is parameter for one in group["params"]):
                return group
    return None


def _updates_of(state, own):
    """Updates of a parameter, where that can be told without waiting for a device."""
    step = state.get("step")
    if isinstance(step, torch.Tensor):
        return int(step) if step.device.type == "cpu" else own
    return own if step is None else int(step)


def _moment(optimizer, parameter, own):
    """(buffer, what its mean size is multiplied with): a mean of past gradients. Without momentum, the gradient."""
    group = _find(optimizer, parameter)
    state = optimizer.state.get(parameter, {}) if group is not None else {}
    if state.get("momentum_buffer") is not None and group.get("momentum"):
        factor = _native.momentum("sgd", group["momentum"], own)
        return state["momentum_buffer"], factor / (1 - group.get("dampening", 0) or 1)
    if state.get("exp_avg") is not None:
        beta = group["betas"][0] if "betas" in group else group.get("beta1", 0.9)
        return state["exp_avg"], _native.momentum("adam", beta, max(_updates_of(state, own), 1))
    return parameter.grad, 1.0


def _scaler_above():
    """The GradScaler in whose `step` we are, or None."""
    frame = sys._getframe(1)
    for _ in range(24):
        if frame is None:
            return None
        caller = frame.f_locals.get("self") if frame.f_code.co_name in ("step", "_maybe_opt_step") else None
        if isinstance(caller, torch.amp.GradScaler):
            return caller
        frame = frame.f_back
    return None


# ---- the controller of a session ----


class Control:
    """session.control. `method`, `iteration` (steps of the optimizer so far), `events` (decisions, the last ones),
    `rows()`, `state_dict()`, `load_state_dict()`."""

    strict = False  # tests: exceptions of statistics are raised

    def __init__(self, session, method, scaler=None, options=None):
        if method not in METHODS:
            raise ValueError(f"control: there is no '{method}'; there are {', '.join(METHODS)}")
        self._session = weakref.ref(session)  # which has us
        self.sites, self.optimizer = session.native, session.optimizer
        self.method, self.iteration = method, 0
        self.events = collections.deque(maxlen=_EVENTS)
        self.native = self.scaler = None
        self.layers, self.norms, self.parameters, self._gradients = {}, {}, [], {}
        self.fused = {}         # kin -> the fused norm whose input it holds
        self._uses, self._left = {}, {}       # kin -> {use: None}; kin -> why it keeps its bound
        self._new_uses, self._new_left = {}, {}  # of this iteration
        self._made, self._limits = None, {}
        self._known_sites, self._passes, self._collects = -1, 0, False
        self._pending = self._loss = self._to_load = None
        self._observed, self._observations = False, 0
        self.measuring, self.measures = None, True  # in this iteration; at all
        self.room, self.means = control_measure.Room(), control_measure.Means()
        self._sizes, self._operations = {}, {}  # kin -> (channels, bytes of one); of operations without a model, too
        self._rest = self._skips = 0  # times that statistics are wanted and not collected: from now on, the next time
        self._updates, self._steps, self._undo = 0, 0, []
        if method == "fixed" or session.options.exact or session.options.codec != "eb":
            self.method = "fixed"
            return
        options = {"warmup_bound": session.options.error_rel, **(options or {})}
        self.native = _native.Control(session.native, method, options)
        self._every = max(1, int(options.get("every", 10)))
        optimizer = self.optimizer
        if optimizer is not None:
            self._undo.append(optimizer.register_step_post_hook(self._after_step).remove)
            if any("momentum_buffer" in state and state["momentum_buffer"] is not None
                   for state in optimizer.state.values()):
                self._updates = _WARM
        if scaler is not None:
            self._adopt(scaler)

    def detach(self):
        undo, self._undo = self._undo, []
        for step in reversed(undo):
            step()
        self._end_measuring()
        if self.native is not None:
            self.native.end()

    def _warn(self, text):
        session = self._session()
        if session is not None:
            session._warn(text)

    # ---- what is known of the network ----

    def guarded(self):
        return Guard(self)

    def give_up(self, problem):
        self._warn(f"the controller has stopped, bounds stay as they are: {problem}")
        self.detach()
        self.native = None

    def gradient(self, parameter):
        """A number for a parameter's gradient; -1: it has none."""
        if not parameter.requires_grad:
            return -1
        if id(parameter) not in self._gradients:
            self._gradients[id(parameter)] = len(self.parameters)
            self.parameters.append(parameter)
        return self._gradients[id(parameter)]

    def _node(self, nodes, node, kind, parameter):
        if node not in nodes:
            nodes[node] = kind(len(nodes), self.gradient(parameter))
            self.native.set_layers(len(self.layers), len(self.norms))
        return nodes[node]

    def layer(self, node, weight):
        return self._node(self.layers, node, Layer, weight)

    def norm(self, node, weight):
        return self._node(self.norms, node, Norm, weight)

    def use(self, kin, *use):
        self._new_uses.setdefault(kin, {})[use] = None

    def leave(self, kin, why):
        self._new_left[kin] = why

    # ---- errors that are measured ----

    def see_size(self, kin, x, dim):
        channels, size = x.shape[dim], 4 * x.numel() // max(1, x.shape[dim])
        self._sizes[kin] = channels, max(size, self._sizes.get(kin, (0, 0))[1])

    def see_operation(self, kin, op, x, length):
        """Whether it is one that is looked at. Of operations that read one tensor, the first. A row norm works by rows
        and images: where there are few, one is much of the tensor."""
        size = 4 * x.numel() // max(1, length)
        before = self._operations.get(kin, (op, 0, 0))
        if before[0] != op or (op == ops.ROW_NORM and length < 4):
            return False
        self._operations[kin] = op, length, max(size, before[2])
        return True

    def _candidates(self):
        sizes = {kin: control_measure.Size(length, size, 1, 1 if op == ops.ROW_NORM else min(2, length))
                 for kin, (op, length, size) in self._operations.items() if kin in self._left}
        for kin, uses in self._made or ():
            channels, size = self._sizes[kin]
            sizes[kin] = control_measure.Size(channels, size, len(uses), min(2, channels))
        return sizes

    @property
    def measuring_bytes(self):
        """What is kept at most of tensors as they were."""
        if self.native is None or not self.native.needs & NEEDS_MEASURED or not self.measures:
            return 0
        return control_measure.room_of(self._candidates())

    def _begin_measuring(self):
        if not self.native.needs & NEEDS_MEASURED or not self.measures:
            return None
        parts, self.room.limit = control_measure.choose(self._candidates(), self.iteration, self._every)
        return control_measure.Measuring(self, parts, dict(self._made or ()), self.iteration) if parts else None

    def _end_measuring(self):
        measuring, self.measuring = self.measuring, None
        return measuring.close() if measuring is not None else ([], [], [])

    def stop_measuring(self, problem):
        self.measures = False
        self._warn(f"errors are not measured any more, bounds follow from the model alone: {problem}")

    def _learn(self):
        """Makes a controller of what this iteration has shown, unless it is the one that there is."""
        self._uses.update(self._new_uses)
        for kin in self._new_uses:
            self._left.pop(kin, None)
        self._left.update(self._new_left)
        self._new_uses, self._new_left = {}, {}
        known = [(kin, tuple(uses)) for kin, uses in sorted(self._uses.items())
                 if kin not in self._left and len(uses) <= 16 and all(use[1] >= 0 for use in uses)]
        if known == self._made:
            return
        self.native.make(known)
        self._made = known
        self._observations = self._rest = self._skips = 0
        if self._to_load is not None:
            state, self._to_load = self._to_load, None
            self._load_native(state)

    # ---- iterations ----

    def watch(self, may_collect=True):
        """Who watches a pass that is about to begin; None: nobody."""
        if self.native is None:
            return None
        self._passes += 1
        if self._passes == 1:
            self._collects = self._is_time() and may_collect and self._pending is None
            if self._collects:
                self.native.begin()
                self.measuring = self._begin_measuring()
        is_new = self._made is None or self.sites.site_count != self._known_sites
        learns = is_new and self._passes <= _LEARNT
        return Pass(self, self._collects) if self._collects or learns else None

    def _is_time(self):
        if not self.native.wants(self.iteration):
            return False
        self._rest -= 1
        return self._rest < 0

    def _rest_longer(self, on_the_move):
        """An iteration with statistics takes more than twice as long as another. Where they change little they are
        collected more and more rarely, and late in a training never as often as in its beginning."""
        self._observations += 1
        is_calm = self._observations > _FIRST and not on_the_move
        skips = min(2 * self._skips + 1, _RAREST - 1) if is_calm else 0
        self._skips = self._rest = max(skips, min(self.iteration // 200, _RAREST // 2 - 1))

    def _after_step(self, optimizer, *_):
        self._steps += 1
        self._updates += 1
        self._end(getattr(optimizer, "found_inf", None))

    def _end(self, found_inf=None, is_skipped=False):
        """An iteration is over."""
        if self.native is None:
            return
        with self.guarded():
            collects, self._collects, self._passes = self._collects, False, 0
            self.native.end()
            measured = self._end_measuring()
            if self.scaler is None and (collects or self._made is None):
                scaler = _scaler_above()
                if scaler is not None:
                    self._adopt(scaler)
            if self._pending is not None:
                self._observe()
            if collects and not is_skipped:
                self._gather(found_inf, measured)
            self._judge_loss()
            if self._new_uses or self._new_left:
                self._learn()
            self._known_sites = self.sites.site_count
            self.native.apply()
            on_the_move = self._remember()
            if self._observed or on_the_move:
                self._rest_longer(on_the_move)
            self._observed = False
            self.iteration += 1

    def _gather(self, found_inf, measured):
        """What the controller must know beside what was seen: momenta, and the loss scale."""
        optimizer, wants_squares = self.optimizer, self.native.needs & NEEDS_ACGC
        moments = [_moment(optimizer, parameter, max(self._updates, 1)) for parameter in self.parameters]
        sums = _sums([buffer for buffer, _ in moments], 1)
        roots = _sums([parameter.grad if wants_squares else None for parameter in self.parameters], 2)
        scaler = self.scaler
        scale = scaler._scale if scaler is not None and scaler.is_enabled() else None
        factors = [factor / max(parameter.numel(), 1) for parameter, (_, factor) in zip(self.parameters, moments)]
        weights, operations, errors = measured
        numbers = _Arriving([*sums, *roots, *errors, scale, found_inf],
                            {parameter.device for parameter in self.parameters})
        self._pending = self.iteration, numbers, factors, wants_squares, (weights, operations)
        if numbers.is_there:
            self._observe()

    def _observe(self):
        (iteration, arriving, factors, has_squares, measured), self._pending = self._pending, None
        numbers, count = arriving.numbers(), len(factors)
        scale, found_inf = numbers[-2:]
        if found_inf > 0:
            return
        momenta = tuple(total * factor for total, factor in zip(numbers, factors))
        squares = tuple(root * root if has_squares else 0.0 for root in numbers[count:2 * count])
        weights, operations = measured
        errors, rest = numbers[2 * count:2 * count + len(weights)], numbers[2 * count + len(weights):-2]
        seen = [(kin, use, error * error, float(batches))
                for (kin, use, batches), error in zip(weights, errors) if math.isfinite(error)]
        self.native.observe(iteration, momenta, squares, 1.0 if math.isnan(scale) else scale, seen)
        self._note_measured(zip(operations, rest[::2], rest[1::2]))
        self._observed = True

    def _note_measured(self, operations):
        for kin, use, kind, predicted, measured, momentum in self.native.take_measured():
            if momentum > 0:
                self.means.add((kin, use, kind), predicted / momentum**2, measured / momentum**2)
        for (kin, kind), error, whole in operations:
            if 0 < error < math.inf and 0 < whole < math.inf:  # 0: it was not held
                self.means.add((kin, -1, kind), 0.0, error / whole)

    # ---- the loss ----

    def step(self, loss):
        """session.step: notes the loss; without an optimizer, an iteration is over."""
        if loss is not None and self.native is not None:
            self._loss = _Arriving([loss if isinstance(loss, torch.Tensor) else torch.tensor(float(loss))])
        if self.optimizer is None:
            self._updates += 1
            self._end()

    def _judge_loss(self):
        """That of a GPU is read an iteration later."""
        loss, self._loss = self._loss, None
        if loss is None:
            return
        if not loss.is_there and not loss.is_late:
            loss.is_late, self._loss = True, loss
            return
        value = loss.numbers()[0]
        self.native.step(self.iteration, value, math.isfinite(value))

    # ---- a GradScaler ----

    def _adopt(self, scaler):
        """Its `step` does not call the optimizer's where gradients are not finite: then nothing is observed."""
        control, own, had = weakref.proxy(self), scaler.step, "step" in scaler.__dict__

        def step(optimizer, *args, **kwargs):
            before = control._steps
            result = own(optimizer, *args, **kwargs)
            if optimizer is control.optimizer and control._steps == before:
                control._end(is_skipped=True)
            return result

        def undo():
            if scaler.__dict__.get("step") is step:
                scaler.step = own
                if not had:
                    del scaler.step

        scaler.step = step
        self.scaler = scaler
        self._undo.append(undo)

    # ---- what was decided ----

    def _remember(self):
        """Whether bounds are on the move: a fourth of them has changed by more than a fourth, or all for safety."""
        moved, is_urgent = 0, False
        for event in self.native.take_events():
            iteration, kin, name, cause, limit, use, before, after, rms, tightness, loss = event
            if kin >= 0:
                uses = list(self._uses.get(kin, ()))
                self._limits[kin] = self._limit_text(limit, uses[use][0] if 0 <= use < len(uses) else None)
            is_urgent |= kin < 0
            moved += kin >= 0 and not 0.75 * before <= after <= 1.25 * before
            if kin < 0 or before != after:
                self.events.append({"time": time.time(), "iteration": iteration, "site": name, "before": before,
                                    "after": after, "cause": cause, "limit": self._limits.get(kin, limit), "rms": rms,
                                    "tightness": tightness, "loss": loss})
        return is_urgent or (moved > 0 and 4 * moved >= len(self._made or ()))

    @staticmethod
    def _limit_text(limit, kind):
        names = ("layer's weights", "layer's weights", "batch norm's scale", "weights before the batch norm")
        return names[kind] if limit == "use" and kind is not None else limit

    def rows(self):
        """A dict for each site: site, bound (relative), limit (what set it), observed (how often)."""
        sites = self.sites.sites()
        controlled = {} if self.native is None else {row["kin"]: row for row in self.native.tensors()}
        reasons = {"curve input": NO_MODEL[ops.CURVE], "row norm input": NO_MODEL[ops.ROW_NORM],
                   "scaled": NO_MODEL[ops.SCALE], "relu": "no layer reads it"}
        rows = []
        for number, site in enumerate(sites):
            role = ops.ROLES[int(site["role"])]
            if role not in PARTS:
                continue
            if number in controlled:
                row = controlled[number]
                rows.append({"site": site["name"], "bound": row["bound"], "observed": row["observed"],
                             "limit": self._limits.get(number, "warm-up")})
            else:
                why = self._left.get(number, reasons.get(role, "not seen yet"))
                limit = "fixed" if self.method == "fixed" else f"fixed ({why})"
                rows.append({"site": site["name"], "bound": site["bound"], "observed": 0, "limit": limit})
        return rows

    def section(self):
        """For the report."""
        if self.native is None:
            return None
        rows = self.rows()
        fixed = sum(row["limit"].startswith("fixed") for row in rows)
        notes = [f"Controller '{self.method}', {self.iteration} iterations, {len(self.events)} changes remembered.",
                 f"{len(rows) - fixed} sites have statistics; {fixed} keep a safe fixed bound."]
        return {"title": "Controller", "columns": ["site", "bound", "set by", "observed"],
                "rows": [[row["site"], float(f"{row['bound']:.3g}"), row["limit"], row["observed"]] for row in rows],
                "notes": notes}

    def measured(self):
        """A dict for each site and use whose error was measured: site, use, bound, predicted (by the model; None: there
        is none) and measured (root mean squares, in units of the gradient's mean size), factor, times."""
        if self.native is None:
            return []
        sites, rows = self.sites.sites(), []
        factors = {(kin, use): (factor, times) for kin, use, _, factor, times in self.native.factors()}
        for (kin, use, kind), (times, predicted, measured) in sorted(self.means.of.items()):
            factor, counted = factors.get((kin, use), (None, times))
            rows.append({"site": sites[kin]["name"], "use": kind.replace("_", " "), "bound": sites[kin]["bound"],
                         "predicted": math.sqrt(predicted) if use >= 0 else None, "measured": math.sqrt(measured),
                         "factor": factor, "times": counted})
        return rows

    def measured_section(self):
        rows = self.measured()
        if not rows:
            return None
        notes = ["Errors are root mean squares, in units of the mean size of the gradient that they are in; "
                 "'predicted' is the model's. The controller multiplies what the model predicts by the factor, which "
                 "begins at 1.",
                 "Of SiLU, GELU, row norms and gates there is no model: what is measured is the error of the gradient "
                 "that they pass on, in units of its root mean square. Their bounds are fixed."]
        if not self.measures:
            notes.append("Nothing is measured any more: see the warnings.")
        return {"title": "Measured errors", "columns": ["site", "use", "bound", "predicted", "measured", "factor",
                                                        "times"],
                "rows": [[row["site"], row["use"], *("-" if row[key] is None else float(f"{row[key]:.3g}")
                                                     for key in ("bound", "predicted", "measured", "factor")),
                          row["times"]] for row in rows], "notes": notes}

    # ---- checkpoints ----

    def state_dict(self):
        if self.native is None:
            return {"method": self.method, "iteration": self.iteration}
        if self._pending is not None:  # a checkpoint may wait
            with self.guarded():
                self._observe()
        return {"method": self.method, "iteration": self.iteration, "updates": self._updates,
                "native": self.native.save(), "measured": self.means.state()}

    def load_state_dict(self, state):
        """Before the first pass, or later. A state of another network, or batch size, is not taken."""
        if state["method"] != self.method:
            raise ValueError(f"the state is of the controller '{state['method']}', this one is '{self.method}'")
        self.iteration = state["iteration"]
        if self.native is None or state.get("native") is None:
            return
        self._updates = state["updates"]
        if self._made is None:
            self._to_load = state
        else:
            self._load_native(state)
            self.native.apply()

    def _load_native(self, state):
        try:
            self.native.load(state["native"])
            self.means.load(state.get("measured", ()))
        except RuntimeError as problem:
            self._warn(f"the controller starts anew: {problem}")


def make(session, method, scaler, options):
    """None: 'comet' where there is an optimizer whose momentum can be read, else 'fixed'."""
    if method is None:
        method = "fixed" if session.optimizer is None else "comet"
    return Control(session, method, scaler, options)
