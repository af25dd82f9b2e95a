# SPDX-License-Identifier: Apache-2.0
"""To be imported first: goes on with a Python that has PyTorch, or skips the test (77) with the reason.

scripts/torch_venv.sh says which; it made one if `make test` was run, and COMET_TORCH_PYTHON and COMET_NO_TORCH are its.
Where it names one, PyTorch must be there: a test that cannot import it fails.
"""
import os
import subprocess
import sys

FINDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "torch_venv.sh")
FOUND = "COMET_TORCH_FOUND"  # this is the Python that was named

if FOUND not in os.environ:
    done = subprocess.run([FINDER, "--find"], stdout=subprocess.PIPE, text=True)
    answer = done.stdout.strip()
    if done.returncode == 1:
        print(f"skipped: {answer}")
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(answer)
    os.environ[FOUND] = "1"
    os.execv(answer, [answer, "-B"] + sys.argv)
