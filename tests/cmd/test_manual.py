#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command says of itself: help, completion for shells, the manual page.

usage: test_manual.py COMET [TEST...]
"""
import re
import shutil
import subprocess
import unittest

import case


class Manual(case.Case):
    def commands(self):
        return re.findall(r"^  (\w+) {2,}", self.comet("--help"), re.MULTILINE)

    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = ('source c.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _comet; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", "comet", *words], cwd=self.folder, check=True,
                              stdout=subprocess.PIPE)
        return done.stdout.decode().split()

    def test_help_fits_a_screen(self):
        lines = self.comet("--help").splitlines()
        self.assertLessEqual(len(lines), 24)
        for line in lines:
            self.assertLess(len(line), 80)
        self.assertEqual(self.comet("help"), self.comet("-h"))

    def test_bash(self):
        """Every option of every command's help is offered; values are."""
        with open(self.path("c.bash"), "w") as file:
            file.write(self.comet("completion", "bash"))
        self.assertEqual(sorted(self.complete("")), sorted([*self.commands(), "--help", "--version"]))
        self.assertEqual(self.complete("eva"), ["evaluate"])
        for command in self.commands():
            text = self.comet(command, "--help")
            offered = self.complete(command, "--")
            for option in re.findall(r"^  (--[\w-]+)", text, re.MULTILINE):
                self.assertIn(option, offered, command)
        self.assertEqual(self.complete("train", "--model", "resnet1"), ["resnet18", "resnet18-cifar"])
        self.assertEqual(self.complete("train", "--optimizer", ""), ["sgd", "adamw"])
        self.assertEqual(self.complete("predict", "--from", "c"), ["c.bash"])
        self.assertEqual(self.complete("train", "--pati"), ["--patience"])
        self.assertIn("--peers", self.complete("bench", "norm", "--"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        with open(self.path("_comet"), "w") as file:
            file.write(self.comet("completion", "zsh"))
        subprocess.run(["zsh", "-n", self.path("_comet")], check=True)

    def test_manual_page(self):
        page = self.comet("manual")
        for command in self.commands():
            self.assertIn(".SS comet %s\n" % command, page)
        self.assertIn("\\-\\-patience N", page)
        self.assertNotRegex(page, r"(?m)^\.(?!TH |SH |SS |TP|B |I |nf|fi)")
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tascii", "-ww"], input=page.encode(), check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.stderr, b"")

    def test_refused(self):
        self.refused(2, "completion", says="bash and zsh")
        self.refused(2, "completion", "fish", says="bash and zsh")
        self.refused(2, "manual", "x", says="unexpected")


if __name__ == "__main__":
    case.main(__doc__)
