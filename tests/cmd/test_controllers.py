#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Controllers from outside: who sets the bounds, what is logged and drawn; errors on purpose.

usage: test_controllers.py COMET [TEST...]
"""
import json
import math

import case

SMALL = ("--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2", "--quiet")
KEYS = {"event", "step", "layer", "reason", "limit", "use", "before", "after", "rms", "sensitivity", "momentum",
        "factor", "joint_factor", "tightness", "loss"}
CEILING = 0.4  # the default


def four_bits(value):
    """Rounded down, as bounds are."""
    _, exponent = math.frexp(value)
    unit = math.ldexp(1, exponent - 4)
    return math.floor(value / unit) * unit


def allowed(line, calibration):
    """What a decision's use allows. The gradient of a convolution before a batch norm, all of them here, has the error
    of another tensor, too: each may have half."""
    share = math.sqrt(0.5) if line["use"] in ("conv_weights", "norm_input") else 1
    return four_bits(share * calibration * line["momentum"] / line["sensitivity"])


def share_at_ceiling(decisions, last):
    """Over tensors, and steps since the first decision."""
    held, total, at, limits = 0, 0, 0, {}
    for step, layer, limit in [(d["step"], d["layer"], d["limit"]) for d in decisions] + [(last, None, None)]:
        held += sum(limit == "ceiling" for limit in limits.values()) * (step - at)
        total += len(limits) * (step - at)
        at = step
        if layer:
            limits[layer] = limit
    return held / total


class Control(case.Case):
    def train(self, *arguments, steps="16"):
        self.comet("train", *SMALL, "--checkpoint", "none", "--steps", steps, "--json-log", "log", *arguments)
        lines = [json.loads(line) for line in self.read("log").decode().splitlines()]
        return lines[0], [line for line in lines if line["event"] == "control"], lines

    def test_who_sets_bounds(self):
        for arguments, control in (((), "comet"), (("--codec", "eb"), "comet"), (("--codec", "eb:0.2"), None),
                                   (("--error-rel", "0.2"), None), (("--codec", "none"), None),
                                   (("--codec", "pool:2"), None), (("--control", "acgc"), "acgc"),
                                   (("--control", "fixed:0.2"), "fixed:0.2"),
                                   (("--codec", "eb+offload", "--spill-dir", "."), "comet"),
                                   (("--forms", "*=eb:0.1"), "comet")):
            start, _, _ = self.train(*arguments, steps="2")
            self.assertEqual(start["control"], control, arguments)

    def check_decision(self, line, calibration):
        """What limits a bound says what it is."""
        after, before, rms = line["after"]["value"], line["before"]["value"], line["rms"]
        before *= rms if line["before"]["kind"] == "relative" else 1
        if line["limit"] == "use":
            self.assertEqual(after, allowed(line, calibration), line)
        elif line["limit"] == "loosen":
            self.assertEqual(after, four_bits(2 * before), line)
            self.assertLess(after, allowed(line, calibration), line)
        else:
            self.assertEqual(line["limit"], "ceiling", line)
            self.assertTrue(0.85 * CEILING < after / rms <= CEILING, line)  # of the last step's rms, if that is less
            self.assertGreater(1.126 * allowed(line, calibration), CEILING * rms, line)

    def test_decisions_are_logged(self):
        _, decisions, lines = self.train("--control", "comet:warmup=4:every=2:warmup-bound=0.1", "--report", "r.html")
        self.assertGreater(len(decisions), 9)
        for line in decisions:
            self.assertEqual(set(line), KEYS)
            self.check_decision(line, 1)
        first = [line for line in decisions if line["reason"] == "warm-up has ended"]
        self.assertEqual({line["step"] for line in first}, {5})
        self.assertEqual([line["before"] for line in first], [{"kind": "relative", "value": 0.1}] * len(first))
        self.assertEqual({line["after"]["kind"] for line in first}, {"absolute"})
        self.assertEqual(len({line["layer"] for line in first}), len(first))
        self.assertIn("conv_weights", {line["use"] for line in first})
        self.assertEqual({line["limit"] for line in decisions[-len(first):]}, {"ceiling"})  # 0.35 to 0.4 by now
        steps = [line for line in lines if line["event"] == "step"]
        self.assertEqual({line["skipped"] for line in steps}, {False})
        self.assertAlmostEqual(lines[-1]["at_ceiling"], share_at_ceiling(decisions, steps[-1]["step"]), 12)
        page = self.read("r.html").decode()
        self.assertIn("Bounds that the controller set", page)
        self.assertIn("raw over stored", page)
        for bound, step, off in ((0.1, 0, 0), (0.375, -1, 0.05)):
            fixed = [line for line in self.train("--control", f"fixed:{bound}")[2] if line["event"] == "step"]
            expected, found = fixed[step]["saved_stored_bytes"], steps[step]["saved_stored_bytes"]
            self.assertTrue(abs(found / expected - 1) <= off, (bound, found, expected))

    def test_calibration(self):
        """The first decision is proportional to it, to the bit where it is twice as much."""
        first = []
        for calibration in (0.03125, 0.0625):
            _, decisions, _ = self.train("--calibration", str(calibration), "--control", "comet:warmup=4:every=2",
                                         steps="6")
            self.assertEqual(len(decisions), 10)
            for line in decisions:
                self.assertEqual((line["reason"], line["limit"]), ("warm-up has ended", "use"))
                self.check_decision(line, calibration)
            first.append([line["after"]["value"] for line in decisions])
        self.assertEqual([2 * bound for bound in first[0]], first[1])

    def test_a_layer_with_its_own_bound(self):
        _, decisions, _ = self.train("--control", "comet:warmup=4:every=2", "--forms", "layer2.*=eb:0.05")
        self.assertFalse([line for line in decisions if line["layer"].startswith("layer2.")])
        self.assertTrue([line for line in decisions if line["layer"].startswith("layer1.")])

    def test_diverging_run(self):
        arguments = (*SMALL, "--steps", "60", "--checkpoint", "none", "--lr", "1e6", "--weight-decay", "100",
                     "--schedule", "constant", "--json-log", "log")
        done = self.run_comet("train", *arguments)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"\Acomet: step \d+ was not finite and was skipped[^\n]*\n"
                                               r"(comet: the loss of this evaluation is not finite[^\n]*\n)+"
                                               r"comet: training has diverged since step \d+: 20 steps in a row"
                                               r"[^\n]*learning rate\n\Z")
        lines = [json.loads(line) for line in self.read("log").decode().splitlines()]
        self.assertTrue([line for line in lines if line["event"] == "step" and line["skipped"]])
        self.assertTrue([line for line in lines if line["event"] == "control" and "skipped" in line["reason"]])
        self.assertEqual(lines[-1]["state"], "failed")

    def test_resume(self):
        """A run in two parts decides as one that is not interrupted, and ends with the same bits."""
        options = ("train", *SMALL, "--control", "comet:warmup=4:every=3:ceiling=1", "--schedule", "constant",
                   "--save-weights",
                   "w.safetensors")
        self.comet(*options, "--steps", "23", "--checkpoint", "none", "--json-log", "whole")
        whole = self.read("w.safetensors")
        self.comet(*options, "--steps", "11", "--checkpoint", "c", "--json-log", "parts")
        self.assertNotEqual(self.read("w.safetensors"), whole)
        self.comet(*options, "--steps", "23", "--checkpoint", "c", "--json-log", "parts", "--resume")
        self.assertEqual(self.read("w.safetensors"), whole)
        decisions = [[line for line in self.read(name).decode().splitlines() if '"event": "control"' in line]
                     for name in ("whole", "parts")]
        self.assertGreater(len(decisions[0]), 20)
        self.assertEqual(*decisions)
        self.refused(1, "train", *SMALL, "--control", "acgc", "--checkpoint", "c", "--resume", "--steps", "30",
                     says="control")

    def test_compare(self):
        same = ("comet:paper:warmup-bound=0.1", "fixed:0.1", "eb:0.1")  # the first is still in warm-up
        out = self.comet("compare", *SMALL, "--json", "--steps", "6", "--variants",
                         ",".join(("none", "comet:warmup=2:every=1", "acgc", "budget", *same)))
        runs = json.loads(out)["variants"]
        self.assertEqual([run["name"] for run in runs], ["none", "comet:warmup=2:every=1", "acgc", "budget", *same])
        for key in ("saved_stored_bytes", "accuracy"):
            self.assertEqual(len({run[key] for run in runs[4:]}), 1, key)
        self.assertLess(runs[1]["saved_stored_bytes"], runs[4]["saved_stored_bytes"])
        self.assertLess(4 * runs[4]["saved_stored_bytes"], runs[0]["saved_stored_bytes"])

    def test_errors_on_purpose(self):
        losses = {}
        for rules in ("", "*:0.5", "*:0.3:uniform:activation"):
            start, _, lines = self.train("--codec", "eb:0", *(("--inject-error", rules) if rules else ()))
            self.assertEqual(start["inject_error"], rules)
            losses[rules] = [line["loss"] for line in lines if line["event"] == "step"]
        first = {loss[0] for loss in losses.values()}
        self.assertEqual(len(first), 1)  # forward is as it was
        self.assertEqual(len({loss[-1] for loss in losses.values()}), 3)
        for rules, says in (("conv1", "LAYER:SIGMA"), ("nothing:1", "nothing"), ("bn1:1:activation", "eb:0")):
            self.refused(2, "train", *SMALL, "--codec", "none", "--checkpoint", "none", "--steps", "1",
                         "--inject-error", rules, says=says)

    def test_misuse(self):
        for arguments, says in ((("--control", "pid"), "comet:paper"), (("--control", "comet:c=0"), "calibration"),
                                (("--control", "comet:speed=1"), "speed"),
                                (("--control", "comet", "--codec", "none"), "eb"),
                                (("--control", "comet", "--codec", "eb:0.1"), "eb"),
                                (("--calibration", "0"), "above 0"),
                                (("--control", "comet", "--error-rel", "0.1"), "fixed:0.1"),
                                (("--calibration", "1", "--codec", "none"), "--calibration")):
            self.refused(2, "train", *SMALL, "--checkpoint", "none", "--steps", "1", *arguments, says=says)
        self.refused(2, "compare", *SMALL, "--variants", "none,comet:c=x", says="c=x")


if __name__ == "__main__":
    case.main(__doc__)
