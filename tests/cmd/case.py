# SPDX-License-Identifier: Apache-2.0
"""A folder of its own for each test, and ways to run the command in it."""
import os
import subprocess
import sys
import tempfile
import unittest

COMET = ""
SLOW = bool(os.environ.get("COMET_TEST_SLOW"))  # with sanitizers: long runs are shorter


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="comet_cmd_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def start(self, *arguments, **options):
        return subprocess.Popen([COMET, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                **options)

    def run_comet(self, *arguments, **options):
        return subprocess.run([COMET, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120, check=False, **options)

    def comet(self, *arguments):
        """Must succeed; its standard output."""
        done = self.run_comet(*arguments)
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        return done.stdout.decode()

    def refused(self, code, *arguments, says="", **options):
        """Must fail with the code and one line on standard error."""
        done = self.run_comet(*arguments, **options)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, (arguments, text))
        self.assertRegex(text, r"\Acomet: [^\n]+\n\Z", arguments)
        self.assertIn(says, text)
        return text


def main(documentation):
    global COMET
    if len(sys.argv) < 2:
        sys.exit(documentation)
    COMET = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__", verbosity=2)  # says why a test is skipped
