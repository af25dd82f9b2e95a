# SPDX-License-Identifier: Apache-2.0
"""A folder of its own for each test, and ways to run the command in it."""
import os
import subprocess
import sys
import tempfile
import time
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

    def wait_until(self, happened, what):
        for _ in range(6000):
            if happened():
                return
            time.sleep(0.01)
        self.fail("never: " + what)

    def wait_for_handler(self, child, number):
        """Until the signal would be noticed."""
        def is_caught():
            with open("/proc/%d/status" % child.pid) as file:
                mask = [line.split()[1] for line in file if line.startswith("SigCgt:")]
            return int(mask[0], 16) >> (number - 1) & 1
        self.wait_until(is_caught, "a handler of signal %d" % number)

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
