#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""comet assess and comet sweep from outside.  usage: test_assess.py COMET [TEST...]"""
import json
import math
import os
import re
import signal

import case

SMALL = ("--model", "resnet8", "--data", "generated:160", "--image", "16", "--batch", "16", "--threads", "2", "--quiet")
LAYER = {"name", "use", "gradient", "bound", "error_rel", "sigma_predicted", "sigma_measured", "ratio",
         "joint_sigma_predicted", "joint_sigma_measured", "joint_ratio", "gradient_rms", "values", "mean_over_sigma",
         "within_sigma", "excess_kurtosis", "distance_normal", "factor", "factor_measured", "ratio_with_factor",
         "joint_ratio_with_factor", "joint_factor"}
TENSOR = {"name", "bound", "error_rel", "rms", "values", "zeros", "exact", "variance_ratio", "mean_over_bound",
          "distance_uniform", "largest_over_bound"}


def quantile(values, part):
    values = sorted(values)
    place = part * (len(values) - 1)
    below = int(place)
    return values[below] + (values[min(below + 1, len(values) - 1)] - values[below]) * (place - below)


class Assess(case.Case):
    def assess(self, *arguments):
        return json.loads(self.comet("assess", *SMALL, "--json", *arguments))

    def check_ratios(self, layers):
        """Predicted and measured sigmas; what is left to chance goes by how many errors are independent: of a norm, one
        a channel."""
        channels = {layer["name"]: layer["values"] for layer in layers if layer["use"] == "norm_scale"}
        for use, tolerance in (("conv_weights", 0.06), ("linear_weights", 0.1), ("norm_scale", 0.12),
                               ("norm_input", 0.12)):
            rows = [layer for layer in layers if layer["use"] == use]
            weights = [channels[row["name"]] if use.startswith("norm") else row["values"] for row in rows]
            for row, weight in zip(rows, weights):
                self.assertTrue(abs(row["ratio"] - 1) < tolerance + 4 / math.sqrt(2 * weight), row)
            variance = sum(w / row["ratio"] ** 2 for row, w in zip(rows, weights)) / sum(weights)
            self.assertTrue(abs(1 / math.sqrt(variance) - 1) < tolerance, (use, variance))

    def test_json(self):
        report = self.assess("--error-rel", "0.05,0.3", "--batches", "1")
        self.assertEqual((report["model"], report["image"], report["batch"], report["batches"], report["steps"],
                          report["control"]), ("resnet8", [16, 16, 1], 16, 1, 0, "comet"))
        layers, tensors = report["layers"], report["tensors"]
        self.assertEqual(len(layers), 2 * 21)
        self.assertEqual(len(tensors), 2 * 10)
        for layer in layers:
            self.assertEqual(set(layer), LAYER)
            self.assertAlmostEqual(layer["error_rel"], float(layer["bound"]), places=6)
            self.assertAlmostEqual(layer["ratio"], layer["sigma_predicted"] / layer["sigma_measured"], places=5)
            self.assertAlmostEqual(layer["joint_ratio"],
                                   layer["joint_sigma_predicted"] / layer["joint_sigma_measured"], places=5)
        for tensor in tensors:
            chance = 1 / math.sqrt(tensor["values"] - tensor["zeros"] - tensor["exact"])
            self.assertEqual(set(tensor), TENSOR)
            self.assertTrue(abs(tensor["variance_ratio"] - 1) < 0.03 + 3 * chance, tensor)
            self.assertTrue(0.99 < tensor["largest_over_bound"] < 1.0001, tensor)
        uses = {layer["use"] for layer in layers}
        self.assertEqual(uses, {"conv_weights", "linear_weights", "norm_scale", "norm_input"})
        self.check_ratios(layers)
        summary = report["summary"]
        self.assertEqual({(s["use"], s["bound"]) for s in summary["uses"]},
                         {(use, bound) for use in uses for bound in ("0.05", "0.3")})
        for line in summary["uses"]:
            for key in ("ratio", "joint_ratio"):
                values = [s[key] for s in layers if (s["use"], s["bound"]) == (line["use"], line["bound"])]
                self.assertEqual(line["count"], len(values))
                for name, part in (("median", 0.5), ("p10", 0.1), ("p90", 0.9)):
                    self.assertAlmostEqual(line[key][name], quantile(values, part), places=5)
        self.assertEqual([s["bound"] for s in summary["tensors"]], ["0.05", "0.3"])

    def test_joint(self):
        """The error of each layer's gradient in parts of it, with all tensors compressed: rms over layers."""
        report = self.assess("--error-rel", "0.3", "--batches", "1")
        layers = {row["gradient"]: row for row in report["layers"] if row["use"] != "norm_scale"}
        (joint,) = report["summary"]["joint"]
        self.assertEqual((joint["bound"], joint["layers"]), ("0.3", len(layers)))
        for key, sigma in (("measured", "joint_sigma_measured"), ("predicted", "joint_sigma_predicted")):
            parts = [row[sigma] / row["gradient_rms"] for row in layers.values()]
            self.assertAlmostEqual(joint[key], math.sqrt(sum(x * x for x in parts) / len(parts)), places=5)
        worst = max(layers.values(), key=lambda row: row["joint_sigma_measured"] / row["gradient_rms"])
        self.assertEqual(joint["largest_of"], worst["gradient"])
        self.assertEqual(joint["with_factor"], joint["predicted"])

    def test_factors(self):
        """Measured on other batches; without them there are none, but for the controller's own bounds."""
        report = self.assess("--error-rel", "0.3", "--batches", "1", "--factors", "12")
        self.assertEqual(report["factors"], 12)
        for row in report["layers"]:
            self.assertGreater(row["factor_measured"], 0, row)
            self.assertTrue(0.25 <= row["factor"] <= 8, row)
            self.assertAlmostEqual(row["ratio_with_factor"], row["factor"] * row["ratio"], places=5)
        self.assertGreater(len({row["factor"] for row in report["layers"]}), 10)
        plain = self.assess("--error-rel", "0.3", "--batches", "1")
        self.assertEqual({(row["factor"], row["factor_measured"]) for row in plain["layers"]}, {(1, 0)})
        settings = ("--steps", "12", "--batches", "1", "--error-rel", "control")
        own = self.assess(*settings, "--control", "comet:warmup=2:every=1")["layers"]
        self.assertGreater(max(row["factor_measured"] for row in own), 0)
        none = self.assess(*settings, "--control", "comet:warmup=2:every=1:measured=0")["layers"]
        self.assertEqual({row["factor_measured"] for row in none}, {0})

    def test_same_again(self):
        arguments = ("--steps", "3", "--layers", "layer1.*", "--batches", "1", "--error-rel", "0.1")
        self.assertEqual(self.assess(*arguments), self.assess(*arguments))

    def test_controllers_bounds(self):
        report = self.assess("--steps", "6", "--error-rel", "control", "--control", "comet:warmup=2:every=1",
                             "--batches", "1")
        self.assertEqual(report["steps"], 6)
        self.assertEqual({layer["bound"] for layer in report["layers"]}, {"control"})
        self.assertGreater(len({tensor["error_rel"] for tensor in report["tensors"]}), 2)

    def test_table_and_report(self):
        out = self.comet("assess", *SMALL, "--layers", "layer1.*", "--batches", "1", "--report", "r.html")
        self.assertRegex(out, r"layer1\.0\.bn1 +conv_weights +layer1\.0\.conv2\.weight +[\d.e-]+ +[\d.e-]+ +[\d.]+")
        self.assertRegex(out, r"(?m)^0\.3 +norm_input +2 ")
        self.assertIn("Report: r.html", out)
        page = self.read("r.html").decode()
        for text in ("<svg", "predicted against measured", "error / sigma", "error / bound", "layer1.0.conv2.weight"):
            self.assertIn(text, page)
        self.assertNotIn("http://", page.replace("http://www.w3.org", ""))
        self.assertNotIn("conv1.weight in", page.replace("layer1.0.conv1", ""))

    def test_of_a_checkpoint(self):
        self.comet("train", *SMALL, "--steps", "5", "--checkpoint", "c", "--save-weights", "w.safetensors")
        choice = ("--layers", "bn1", "--batches", "1", "--error-rel", "0.1")
        folder, weights = self.assess("--checkpoint", "c", *choice), self.assess("--weights", "w.safetensors", *choice)
        self.assertEqual(folder["layers"], weights["layers"])
        self.assertNotEqual(folder["layers"], self.assess(*choice)["layers"])

    def test_progress(self):
        done = self.run_comet("assess", *SMALL[:-1], "--layers", "bn1", "--batches", "1")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\A(comet: [^\n]*\n)*\Z")

    def test_stopped(self):
        """While it trains, and while it measures: nothing is shown, an earlier report stays."""
        with open(self.path("r.html"), "wb") as file:
            file.write(b"an earlier one")
        for number, options in ((signal.SIGINT, ("--steps", "1000000")), (signal.SIGTERM, ("--batches", "1000000")),
                                (signal.SIGHUP, ("--batches", "1000000"))):
            child = self.start("assess", *SMALL, *options, "--report", "r.html")
            self.addCleanup(child.kill)
            self.wait_for_handler(child, number)
            child.send_signal(number)
            out, err = child.communicate(timeout=60)
            self.assertEqual((child.returncode, out), (128 + number, b""))
            self.assertRegex(err.decode(), r"comet: stopped[^\n]*\n\Z")
        self.assertEqual(self.read("r.html"), b"an earlier one")

    def test_misuse(self):
        for arguments, says in ((("--error-rel", "0"), "above 0"), (("--error-rel", "x"), "'x'"),
                                (("--error-rel", "0.1,"), "empty"), (("--layers", "nothing"), "'nothing'"),
                                (("--batches", "0"), "--batches"), (("--codec", "none"), "--forms"),
                                (("--memory", "1GiB"), "--memory"), (("--epochs", "1"), "--steps"),
                                (("--weights", "a", "--checkpoint", "b"), "exclude"), (("--control", "pid"), "acgc"),
                                (("--forms", "*=none"), "controller"), (("more",), "'more'")):
            self.refused(2, "assess", *SMALL, *arguments, says=says)
        self.refused(1, "assess", *SMALL, "--checkpoint", "missing", says="missing")
        self.refused(1, "assess", *SMALL, "--layers", "bn1", "--batches", "1", "--report", "no/r.html",
                     says="no/r.html")

    def test_help(self):
        self.assertIn("assess", self.comet("--help"))
        for text in ("--error-rel LIST", "control", "norm_input", "Examples:"):
            self.assertIn(text, self.comet("assess", "--help"))


class Reach(case.Case):
    def test_json(self):
        """What is put in, how it goes on, and that of a tensor which ends in weights."""
        report = json.loads(self.comet("assess", *SMALL, "--json", "--reach", "0.1", "--steps", "4"))
        self.assertEqual((report["model"], report["sigma"], report["bound"], report["batches"], report["steps"]),
                         ("resnet8", 0.1, "0.3", 2, 4))
        for source in report["sources"]:
            self.assertEqual(set(source), {"name", "error", "growth", "layers"})
            flows = [layer["flow"] for layer in source["layers"] if layer["flow"] > 0]
            if source["error"] == "gradient":
                self.assertEqual(source["layers"][-1]["name"], source["name"])
                self.assertTrue(0.08 < flows[-1] < 0.12, source)
            if len(flows) > 1:
                self.assertAlmostEqual(source["growth"], flows[0] / flows[-1], places=5)
            else:
                self.assertIsNone(source["growth"])
        self.assertEqual([s["error"] for s in report["sources"]], 8 * ["gradient"] + 10 * ["tensor"])
        self.assertIn([], [[layer for layer in s["layers"] if layer["flow"] > 0] for s in report["sources"]])

    def test_table_and_report(self):
        out = self.comet("assess", *SMALL, "--reach", "0.2", "--batches", "1", "--error-rel", "0.1", "--report",
                         "r.html")
        self.assertRegex(out, r"(?m)^layer2\.0\.conv1 +layer2\.0\.conv1 +0\.[12]\d+ +0\.[12]\d+ +\S+ +0\.\d+ +")
        self.assertRegex(out, r"(?m)^layer2\.0\.bn1 +layer2\.0\.conv1 +0\.\d+ ")
        self.assertRegex(out, r"(?m)^errors in gradients +median \d\.\d\d, from \d\.\d\d to \d\.\d\d \(\d+\)$")
        self.assertIn("ends in the weights of the layers that read it", out)
        page = self.read("r.html").decode()
        for text in ("<svg", "Errors of 0.2 x rms", "bound 0.1", "How far errors reach in resnet8", "times as large"):
            self.assertIn(text, page)

    def test_some_layers(self):
        report = json.loads(self.comet("assess", *SMALL, "--json", "--reach", "0.1", "--layers", "layer1.*",
                                       "--batches", "1"))
        self.assertEqual({s["name"].split(".")[0] for s in report["sources"]}, {"layer1"})

    def test_stopped(self):
        child = self.start("assess", *SMALL, "--reach", "0.1", "--batches", "1000000")
        self.addCleanup(child.kill)
        self.wait_for_handler(child, signal.SIGINT)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, out), (130, b""))
        self.assertRegex(err.decode(), r"comet: stopped[^\n]*\n\Z")

    def test_misuse(self):
        for arguments, says in ((("0",), "above 0"), (("x",), "'x'"),
                                (("0.1", "--error-rel", "0.1,0.3"), "one number"),
                                (("0.1", "--error-rel", "control"), "one number"),
                                (("0.1", "--factors", "2"), "--factors"),
                                (("0.1", "--layers", "nothing"), "'nothing'")):
            self.refused(2, "assess", *SMALL, "--reach", *arguments, says=says)
        self.refused(1, "assess", *SMALL, "--reach", "0.1", "--report", "no/r.html", says="no/r.html")


class Sweep(case.Case):
    def sweep(self, *arguments):
        return json.loads(self.comet("sweep", *SMALL, "--steps", "6", "--json", *arguments))

    def test_json(self):
        report = self.sweep("--layers", "conv1,layer1.*", "--sigma", "0.1,30", "--seeds", "2")
        self.assertEqual((report["model"], report["on"], report["shape"], report["seeds"]),
                         ("resnet8", "gradient", "normal", 2))
        self.assertEqual([(s["layer"], s["sigma"]) for s in report["layers"]],
                         [("conv1", 0.1), ("conv1", 30), ("layer1.*", 0.1), ("layer1.*", 30)])
        without = report["without"]["accuracy"]
        self.assertAlmostEqual(report["without"]["mean"], sum(without) / 2, places=6)
        for line in report["layers"]:
            gaps = [b - a for a, b in zip(without, line["accuracy"])]
            self.assertEqual(line["pairs"], 2)
            self.assertAlmostEqual(line["difference"], sum(gaps) / 2, places=6)
            deviation = math.sqrt(sum((g - sum(gaps) / 2) ** 2 for g in gaps))
            self.assertAlmostEqual(line["half_width_95"], 12.7062 * deviation / math.sqrt(2), places=2)
        self.assertEqual(report["failures"], [])

    def test_goes_on(self):
        options = ("--layers", "conv1,fc", "--sigma", "0.1,0.2,0.3,1,2,3")
        expected = self.sweep(*options)
        child = self.start("sweep", *SMALL, "--steps", "6", "--json", *options)
        self.addCleanup(child.kill)
        state = "comet-sweep-resnet8-generated.runs"

        def is_kept():
            return os.path.exists(self.path(state)) and os.path.getsize(self.path(state)) > 4096
        self.wait_until(is_kept, "a finished run")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130)
        self.assertEqual(self.sweep(*options, "--resume"), expected)
        self.assertEqual(os.listdir(self.folder), [])

    def test_is_what_train_does(self):
        line = self.sweep("--layers", "*", "--sigma", "3")
        self.comet("train", *SMALL, "--steps", "6", "--codec", "none", "--checkpoint", "none", "--inject-error", "*:3",
                   "--json-log", "log")
        end = json.loads(self.read("log").decode().splitlines()[-1])
        self.assertEqual(line["layers"][0]["accuracy"], [end["accuracy"]])

    def test_each(self):
        layers = [s["layer"] for s in self.sweep("--sigma", "1", "--steps", "1")["layers"]]
        self.assertEqual(layers[0], "conv1")
        self.assertEqual(layers[-1], "fc")
        self.assertEqual(len(layers), len(set(layers)))
        self.assertFalse([layer for layer in layers if "bn" in layer])
        tensors = [s["layer"] for s in self.sweep("--sigma", "1", "--on", "activation", "--steps", "1")["layers"]]
        self.assertIn("bn1", tensors)

    def test_table_and_report(self):
        out = self.comet("sweep", *SMALL, "--steps", "2", "--layers", "conv1,fc", "--sigma", "0.1,1", "--report",
                         "r.html")
        self.assertRegex(out, r"(?m)^layer +0\.1 +1$")
        self.assertTrue(re.search(r"(?m)^conv1 +[+-][\d.]+ +[+-][\d.]+$", out), out)
        page = self.read("r.html").decode()
        for text in ("<svg", "conv1", "Points of accuracy"):
            self.assertIn(text, page)

    def test_misuse(self):
        for arguments, says in ((("--layers", "nothing"), "'nothing'"), (("--sigma", "x"), "'x'"),
                                (("--sigma", "0"), "is none"), (("--on", "weights"), "activation"),
                                (("--shape", "flat"), "uniform"), (("--inject-error", "*:1"), "--layers"),
                                (("--on", "activation", "--codec", "none"), "eb:0"), (("--seeds", "0"), "--seeds")):
            self.refused(2, "sweep", *SMALL, "--steps", "1", *arguments, says=says)

    def test_help(self):
        self.assertIn("sweep", self.comet("--help"))
        self.assertIn("--sigma LIST", self.comet("sweep", "--help"))


class Variants(case.Case):
    def test_an_unknown_variant_names_controllers(self):
        says = self.refused(2, "compare", *SMALL, "--variants", "none,comit", says="comit")
        for name in ("pool:K", "comet:paper", "acgc", "budget"):
            self.assertIn(name, says)


if __name__ == "__main__":
    case.main(__doc__)
