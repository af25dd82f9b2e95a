# SPDX-License-Identifier: Apache-2.0
"""python -m libcomet.torch.compare: a script as it is, without Comet and with it, in processes of their own."""
import dataclasses
import json
import re

import pytest

from libcomet.torch import compare

TRAINS = """
import sys
import torch
from torch import nn

layers = [layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(nn.Linear(16, 64), *layers, nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
x = torch.randn(1024, 16)
target = x[:, :1].clone()
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = (model(x) - target).square().mean()
    loss.backward()
    optimizer.step()
print("the last loss is", loss.item())
"""


@dataclasses.dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """compare in this process, the script in its own. run(arguments): in the folder where the script is."""
    def start(*arguments):
        monkeypatch.chdir(tmp_path)
        code = compare.main(list(arguments))
        return Done(code, *capfd.readouterr())
    return start


@pytest.fixture
def script(tmp_path, run):
    def start(text, *arguments, options=()):
        (tmp_path / "train.py").write_text(text)
        return run(*options, "train.py", *arguments)
    return start


def rows_of(output):
    """name -> (without, with), of the table."""
    found = {}
    for line in output.splitlines():
        match = re.match(r" *(\S.*?)  +(\S+)  +(\S+)(  |$)", line)
        if match:
            found[match[1]] = (match[2], match[3])
    return found


def number(text):
    return float(text.replace(",", ""))


def test_both_runs_side_by_side(script, tmp_path):
    done = script(TRAINS, "30", options=["--json", "found.json", "--report", "report.html"])
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    assert rows["steps of the optimizer"] == ("30", "30")
    first, last = rows["loss, first"], rows["loss, mean of the last 3"]
    assert number(first[0]) == pytest.approx(number(first[1]), rel=1e-4)  # the forward pass is the same
    assert number(last[0]) < number(first[0]) and number(last[1]) < number(first[1])
    assert "ms per step (median)" in rows and "seconds in all" in rows
    assert len(re.findall("the last loss is", done.stderr)) == 2  # what the script prints
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["plain"]["losses"]) == len(found["comet"]["losses"]) == 30
    assert found["plain"]["losses"] != found["comet"]["losses"]  # gradients carried an error
    (model,) = found["comet"]["models"]
    raw = 30 * 3 * 1024 * 64 * 4  # in each step the results of three ReLUs, which are held once, and
    raw += 30 * 1024 * 64 * 4  # what the first layer makes, which the second one reads
    assert model["name"] == "Sequential" and model["raw"] == pytest.approx(raw, rel=0.01)
    assert 0 < model["stored"] < model["raw"] / 4
    assert f"Comet held {model['raw'] / 2 ** 20:,.0f} MiB" in done.stdout
    assert "<html" in (tmp_path / "report.html").read_text()


def test_a_module(run, tmp_path):
    """As with python -m. Options go to attach: the same losses, bit by bit. The runs end after --steps."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(TRAINS)
    done = run("--set", "exact=True", "--steps", "7", "--quiet", "--json", "found.json", "-m", "package.train", "30")
    assert done.returncode == 0, done.stderr
    assert "the last loss is" not in done.stderr
    assert rows_of(done.stdout)["steps of the optimizer"] == ("7", "7")
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["plain"]["losses"]) == 7 and found["plain"]["losses"] == found["comet"]["losses"]
    assert found["comet"]["models"][0]["raw"] > 0


ENDS = {
    "it fails": ("def broken():\n    raise ValueError('no data')\n\nbroken()", 1,
                 "the script failed without Comet: ValueError: no data"),
    "it exits": ("import sys; sys.exit('no folder')", 1, "the script failed without Comet: no folder"),
    "it is killed": ("import os; os.kill(os.getpid(), 9)", 1, "it was ended by SIGKILL"),
    "with Comet only": (TRAINS + "assert model._compiled_call_impl is None, 'no wraps'", 3,
                        "the script failed with Comet: AssertionError: no wraps"),
    "nothing is trained": ("print(1)", 4, "no optimizer of torch.optim made a step"),
}


@pytest.mark.parametrize("how", ENDS)
def test_how_it_ends(how, script):
    text, code, said = ENDS[how]
    done = script(text, "2", options=["--quiet"])
    assert done.returncode == code and said in done.stderr.splitlines()[-1], done.stderr
    assert done.stdout == ""
    if how == "it fails":  # as the script itself would have shown it
        frames = re.findall(r'File "([^"]+)"', done.stderr)
        assert len(frames) == 2 and all(frame.endswith("train.py") for frame in frames)


MISTAKES = {
    "no script": ([], "which script?"),
    "one that is not there": (["nowhere.py"], "there is no script 'nowhere.py'"),
    "an option that attach has not": (["--set", "colour=7", __file__], "comet.attach cannot have these options"),
    "a value that attach does not take": (["--error-rel", "-1", __file__], "error_rel is -1.0"),
    "not NAME=VALUE": (["--set", "codec", __file__], "must be NAME=VALUE"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_before_anything_runs(mistake, capsys):
    arguments, said = MISTAKES[mistake]
    with pytest.raises(SystemExit) as ended:
        compare.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_out_of_memory_without_comet_is_no_failure(script):
    """That is what shall be compared."""
    done = script(TRAINS + """
if model._compiled_call_impl is None:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
""", "3", options=["--quiet"])
    assert done.returncode == 0, done.stderr
    assert "without Comet the GPU had not enough memory" in done.stdout


def test_the_table_of_a_gpu():
    def run(peak, reserved, ms):
        return {"device": "GPU", "status": compare.DONE, "peak": peak << 20, "reserved": reserved << 20,
                "between": 100 << 20, "ms": [ms] * 20, "seconds": 5.0, "steps": 20, "losses": [2.0, 1.0]}

    rows = {name.strip(): cells for name, *cells in compare._rows(run(4100, 5000, 40.0), run(1100, 2500, 44.0))}
    assert rows["peak MiB (PyTorch's allocator)"] == ["4,100", "1,100", "3.73 x less"]
    assert rows["beyond what is there between steps"] == ["4,000", "1,000", "4.00 x less"]
    assert rows["taken from the driver for it"] == ["5,000", "2,500", "2.00 x less"]
    assert rows["ms per step (median)"] == ["40.0", "44.0", "1.10 x longer"]
    assert rows["loss, last"] == ["1.00000", "1.00000", "+0.00000"]


def test_models_optimizers_and_losses_are_found(script, tmp_path):
    """Two models (a GAN), a part that is called alone first, a scaled loss, another optimizer's steps."""
    text = """
import torch
from torch import nn
one = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
two = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
first, second = torch.optim.SGD(one.parameters(), 0.0), torch.optim.Adam(two.parameters(), 0.0)
x = torch.randn(1024, 64)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
one[0](x).sum().backward()
for step in range(4):
    loss = two(one(x)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(first)
    second.step()
    second.step()
    scaler.update()
    first.zero_grad(), second.zero_grad()
"""
    done = script(text, options=["--json", "found.json", "--quiet"])
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["comet"]
    assert found["steps"] == 4
    assert [model["name"] for model in found["models"]] == ["Linear", "Sequential", "Sequential"]
    assert len(found["losses"]) == 5 and len(set(found["losses"][1:])) == 1  # nothing was learnt
    assert 0 < found["losses"][1] < 1, "without the scale"
