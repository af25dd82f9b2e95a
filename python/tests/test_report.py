# SPDX-License-Identifier: Apache-2.0
"""Reports: numbers that add up, a text of 80 columns, a page that is well formed and needs nothing from elsewhere."""
import html.parser
import json
import os
import pathlib
import re
import stat
import types
import xml.etree.ElementTree as ElementTree

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, activation, attach
from libcomet.torch import report, report_data, report_html
from libcomet.torch.options import Options

MIB = 1 << 20
STRANGE = "<b>&\"'\x01\ud800é"


class Page(html.parser.HTMLParser):
    """Fails at the first tag that is closed wrongly; collects all text."""

    def __init__(self, text):
        super().__init__()
        self.open_tags, self.words, self.tags = [], [], []
        self.feed(text)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, attributes)
        self.tags.append(tag)
        if tag != "meta":
            self.open_tags.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags and self.open_tags.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.words.append(data)


def figures(text):
    """Title -> its drawings, the wide one and the narrow one."""
    found = {}
    for figure in re.findall(r"<figure.*?</figure>", text, re.S):
        element = ElementTree.fromstring(figure)
        found[element.find("figcaption").find("span").tail] = element.findall(".//svg")
    return found


def model(device):
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(),
                         nn.Conv2d(8, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 5 * 5, 10)).to(device)


def train(network, device, steps=2, batch=4):
    for _ in range(steps):
        network(torch.randn(batch, 3, 16, 16, device=device)).square().mean().backward()


def reports(session):
    """All three, after checks that every report passes."""
    data, text, page = session.report("dict"), session.report("text"), session.report("html")
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.startswith(data["headline"] + "\n") and text.endswith("\n")
    Page(page)
    figures(page)
    assert not re.search(r"(?i)https?:|<link|<script|<img|@import|url\(|\bsrc=|\bhref=", page)
    return data, text, page


# ---- numbers ----


def test_fields(device):
    network = model(device)
    session = attach(network)
    train(network, device)
    data, _, _ = reports(session)
    assert {"headline", "model", "attached", "passes", "versions", "options", "forms", "totals", "uses", "sites",
            "kept", "memory", "time", "budget", "measured", "gpu_obstacle", "sections", "notes"} == data.keys()
    assert data["passes"] == 2 and data["attached"] and data["model"] == "Sequential"
    assert data["versions"]["torch"] == torch.__version__
    assert data["options"]["error_rel"] == 0.3 and data["forms"] == {"default": "eb:0.3", "modules": []}
    rows = {row["name"]: row for row in data["sites"]}
    assert rows["1.input"]["use"] == "batch norm input" and rows["1 > relu"]["use"] == "ReLU result"
    assert rows["1 > dropout"]["use"] == "dropout mask" and rows["1 > dropout"]["bound"] == 0
    assert rows["5 > curve"]["use"] == "SiLU/GELU input" and rows["5 > curve"]["bound"] == pytest.approx(0.1)
    assert rows["5.input"]["dtype"] == "float32" and rows["5.input"]["bound"] == 0.3
    assert rows["5.input"]["saves"] == rows["5.input"]["loads"] == 2
    assert rows["5.input"]["tensor_mib"] * MIB == 4 * rows["5.input"]["values"] == 4 * 4 * 8 * 7 * 7
    assert data["memory"]["devices"][0]["device"] == ("cpu" if device.type == "cpu" else "cuda:0")
    assert data["totals"]["kept_tensors"] > 0 and data["totals"]["shapes_mib"] > 0


def test_rows_add_up_to_totals(device):
    network = model(device)
    session = attach(network)
    train(network, device, 3)
    train(network, device, 1, batch=2)
    data = session.report("dict")
    totals, rows = data["totals"], data["sites"]
    assert data["passes"] == 4
    for kind in ("raw_mib", "stored_mib"):
        assert sum(row[kind] for row in rows) == pytest.approx(totals["sites_" + kind])
        assert sum(use[kind] for use in data["uses"]) == pytest.approx(totals["sites_" + kind])
    assert totals["raw_mib"] == pytest.approx(totals["sites_raw_mib"] + totals["indices_raw_mib"])
    assert totals["stored_mib"] == pytest.approx(totals["sites_stored_mib"] + totals["indices_packed_mib"])
    assert totals["ratio"] == pytest.approx(totals["raw_mib"] / totals["stored_mib"]) and totals["ratio"] > 3
    images = (3 * 4 + 2) / 4  # the mean of four passes
    by_name = {row["name"]: row["raw_mib"] for row in report_data.merged(rows)}
    assert by_name["1.input"] == pytest.approx(images * 8 * 14 * 14 * 4 / MIB)
    assert totals["indices_raw_mib"] == pytest.approx(images * 8 * 7 * 7 * 8 / MIB)


def test_stored_is_what_the_store_holds():
    network = model("cpu")
    session = attach(network)
    output = network(torch.randn(4, 3, 16, 16))
    store = session.stats()[-1]
    totals = session.report("dict")["totals"]
    assert totals["sites_raw_mib"] * MIB == pytest.approx(store["raw_bytes"])
    assert totals["sites_stored_mib"] * MIB == pytest.approx(store["stored_bytes"])
    output.sum().backward()
    assert session.report("dict")["totals"] == totals


def test_a_module_that_is_called_at_several_sizes_is_one_pass(device):
    def pyramid(first, second, head, x):
        x = second(first(x).relu()).relu()
        return sum(head(F.avg_pool2d(x, size)).sum() for size in (1, 2, 4))
    network = Program(pyramid, *(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))).to(device)
    session = attach(network)
    for _ in range(3):
        network(activation(2, 8, 16, 16, device=device)).backward()
    assert session.report("dict")["passes"] == 3


@pytest.mark.parametrize("options, bound", [
    ({}, 0.3), ({"error_rel": 0.05}, 0.05), ({"codec": "zvc"}, 0), ({"codec": "raw"}, 0), ({"codec": "group:4"}, None),
    ({"codec": "dct"}, None), ({"codec": "pool:2"}, None), ({"forms": {"5": "eb:1"}}, 1)])
def test_bound(options, bound, device):
    network = model(device)
    session = attach(network, **options)
    train(network, device)
    data, _, page = reports(session)
    row = next(row for row in data["sites"] if row["name"] == "5.input")
    assert row["bound"] == bound
    assert any("Bound" in title for title in figures(page)) == bool(bound)
    relu = next(row for row in data["sites"] if row["use"] == "ReLU result")
    assert relu["bound"] is not None, "its mask is exact whatever the codec"


def test_exact(device):
    network = model(device)
    session = attach(network, exact=True)
    train(network, device)
    data, text, _ = reports(session)
    assert {row["use"] for row in data["sites"]} == {"ReLU result", "dropout mask"}
    assert all(row["bound"] == 0 for row in data["sites"])
    assert data["forms"]["default"] == "lossless" and "Mode 'exact'" in text and " exact\n" in text


def test_forms_of_modules(device):
    network = nn.Sequential(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 64), nn.Linear(64, 4)).to(device)
    session = attach(network, include=[network[0]], exclude=[nn.ReLU], forms={"1": "eb:0.1"})
    network(activation(64, 64, device=device)).sum().backward()
    data, text, _ = reports(session)
    assert data["options"]["include"] == ["0"] and data["options"]["exclude"] == ["ReLU"]
    assert data["forms"]["default"] == "exact"
    assert {row["module"]: row["form"] for row in data["forms"]["modules"]} == {"0": "eb:0.3", "1": "eb:0.1",
                                                                              "0.1": "exact"}
    assert "Form eb:0.1       1\n" in text and "Form exact        0.1\n" in text


# ---- states of a session ----


def test_before_any_pass(device):
    data, text, page = reports(attach(model(device)))
    assert data["passes"] == 0 and data["sites"] == [] and data["totals"]["ratio"] is None
    assert "was the model compiled after attach?" in text.replace("\n  ", " ") and "Traceback" not in page
    assert figures(page) == {}


def test_after_detach(device):
    network = model(device)
    session = attach(network)
    train(network, device)
    before = session.report("dict")
    session.detach()
    train(network, device)
    data, text, _ = reports(session)
    assert not data["attached"] and "detached" in text
    assert {**data, "attached": True, "memory": before["memory"]} == before


def test_compiled():
    pytest.importorskip("filelock", reason="torch.compile needs filelock")
    network = model("cpu")
    network.compile(backend="eager")
    with pytest.warns(UserWarning, match="compiled"):
        session = attach(network)
    notes = reports(session)[0]["notes"]
    assert "The model is compiled" in notes[0] and not any("No forward pass" in note for note in notes)


@pytest.mark.parametrize("options", [{"exclude": "*"}, {"min_bytes": "1GiB"}])
def test_nothing_held(options, device):
    network = model(device)
    session = attach(network, **options)
    train(network, device)
    data, text, _ = reports(session)
    assert data["sites"] == [] and data["totals"]["kept_tensors"] > 0
    assert "Nothing was held" in text and "No forward pass" not in text
    assert text.startswith("Activations: nothing was held\n")


def test_batch_norms_that_do_not_train(device):
    network = model(device)
    session = attach(network)
    network.eval()
    train(network, device)
    data, _, _ = reports(session)
    assert any(note.startswith("1 batch norm never held anything") for note in data["notes"])
    assert data["passes"] == 2


def test_passes_without_backward(device):
    network = model(device)
    session = attach(network)
    train(network, device, 4)
    assert not any("without backward" in note for note in session.report("dict")["notes"])
    for _ in range(8):
        network(torch.randn(4, 3, 16, 16, device=device))
    assert any("without backward" in note for note in session.report("dict")["notes"])


# ---- names, files ----


def strange_model():
    class Block(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.add_module(name, nn.Linear(64, 64))

        def forward(self, x):
            return next(self.children())(x).relu()
    return nn.Sequential(Block(STRANGE), Block("a_name_that_is_long_" * 8), nn.Linear(64, 4))


def test_names_are_escaped():
    network = strange_model()
    session = attach(network, exclude=f"0.{STRANGE}", forms={"1.*": "eb:0.1"})
    network(activation(64, 64)).sum().backward()
    data, text, page = reports(session)
    assert any(STRANGE in row["name"] for row in data["sites"])
    assert "<b>" not in page and "&lt;b&gt;&amp;&quot;&#x27;\ufffd\ufffdé" in page
    assert STRANGE not in text and STRANGE.replace("\x01\ud800", "\ufffd\ufffd") in text
    page.encode()
    words = " ".join(Page(page).words)
    assert "a_name_that_is_long_" * 8 in words and STRANGE[:5] in words


@pytest.mark.parametrize("form", ["text", "html", "dict"])
def test_written_to_a_file(form, tmp_path):
    network = strange_model()
    session = attach(network)
    network(activation(64, 64)).sum().backward()
    path = tmp_path / "report"
    made = session.report(form, path)
    content = path.read_text(encoding="utf-8")
    assert (json.loads(content) if form == "dict" else content) == made
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert os.listdir(tmp_path) == ["report"]
    link = tmp_path / "link"
    link.symlink_to("report")
    path.write_text("before")
    session.report(form, str(link))
    assert link.is_symlink() and path.read_text(encoding="utf-8") == content


def test_a_file_that_cannot_be_written_stays(tmp_path, monkeypatch):
    session = attach(model("cpu"))
    path = tmp_path / "report.html"
    path.write_text("before")

    def fail(*_):
        raise OSError("no space")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        session.report("html", path)
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["report.html"]


def test_what_is_refused(tmp_path):
    session = attach(model("cpu"))
    with pytest.raises(ValueError, match="'pdf'"):
        session.report("pdf")
    with pytest.raises(OSError, match="not a regular file"):
        session.report("html", tmp_path)
    with pytest.raises(OSError):
        session.report("html", tmp_path / "absent" / "report.html")


# ---- a session of made-up numbers: a deep network on a GPU ----


def made_up(monkeypatch, sites=200, extra=()):
    names = [f"backbone.stages.{i // 9}.blocks.{i // 3 % 3}.branch.conv{i % 3}.input" for i in range(sites)]
    rows = [{"name": name, "role": 1.0 + i % 5, "dtype": float(i % 3), "count": 1e6 / (1 + i),
             "raw_bytes": 4e9 / (1 + i), "bytes": 3e8 / (1 + i), "rms": 1.0, "bound": 0.3 / (1 + i % 7), "margin": 0.06,
             "saves": 40.0, "aliases": 3.0, "loads": 38.0, "misfits": 2.0, "kept": 1.0, "heads": 2.0,
             "raw_total": 37 * 4e9 / (1 + i), "stored_total": 37 * 3e8 / (1 + i), **dict(extra)}
            for i, name in enumerate(names)]
    store = {key: 8.0 for key in ("entries", "saves", "loads", "misfits", "refused", "spills", "fetches", "waits")}
    store.update({key: 5e8 for key in ("stored_bytes", "segment_bytes", "peak_segment_bytes", "workspace_bytes",
                                       "host_bytes", "peak_host_bytes")})
    stats = {"kept_tensors": 4000.0, "kept_bytes": 4e9, "waited_ms": 100.0, "shape_bytes": 4e9, "index_bytes": 4e8,
             "index_raw_bytes": 4e9, "kept": [(400, 4e9), (800, 1e8)] + [(0, 0.0)] * 5, 0: store}
    for name, value in (("is_available", True), ("max_memory_allocated", 3 * MIB),
                        ("get_device_name", "NVIDIA <H200>")):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(report_data._bridge, "gpu_obstacle", lambda index=0: "it is on holiday")
    native = types.SimpleNamespace(stats=lambda: stats, sites=lambda: rows)
    session = types.SimpleNamespace(model=model("cpu"), options=Options(), native=native, _undo=[1], _is_compiled=False,
                                    _warned={"a warning"}, _passes=40)
    session.report = lambda form: report.make(session, form)
    return session


def test_on_a_gpu(monkeypatch):
    data, text, page = reports(made_up(monkeypatch))
    assert data["passes"] == 40
    gpu = next(row for row in data["memory"]["devices"] if row["device"] == "cuda:0")
    assert gpu["torch_peak_mib"] == 3 and gpu["store_peak_mib"] == gpu["host_peak_mib"] == 5e8 / MIB
    assert data["time"]["waited_ms"] == 2.5 and "2.50 ms for the device in each pass" in text
    first = data["sites"][0]
    assert first["raw_mib"] * MIB == pytest.approx(4e9)
    assert first["stored_mib"] * MIB == pytest.approx((37 * 3e8 + 3 * 4e9) / 40)
    notes = " ".join(data["notes"])
    for words in ("backward begins with them", "compressed twice", "no memory", "A warning.",
                  "GPU 0 cannot be used: it is on holiday"):
        assert words in notes
    assert "NVIDIA &lt;H200&gt;" in page and "still referenced" not in notes
    assert re.search(r"not known +10 +95.4", text) and "and 190 more" in text


def test_reasons(device):
    """Why tensors are kept as they are, how many and how much of them in each pass."""
    def function(layer, excluded, x):
        x = layer(x)
        return excluded(torch.sigmoid(layer(x) * 1)), torch.sigmoid(x.mean((0, 2, 3)))

    network = Program(function, nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)).to(device)
    session = attach(network, exclude="parts.1", min_bytes=300)
    x = torch.randn(2, 4, 16, 16, device=device)
    for _ in range(2):
        sum(y.sum() for y in network(x)).backward()
    size = x.nbytes / MIB
    found = {row["reason"]: (row["tensors"], row["mib"]) for row in session.report("dict")["kept"]}
    assert found["your own input"] == (1, size)
    assert found["saved by a function that is not known"] == (1, size)  # sigmoid
    assert found["modules that are left out"] == (1, size)
    assert found["weights"] == (3, 4 * (2 * 4 * 4 * 9 + 4 * 4) / MIB)
    assert found["small (below min_bytes)"] == (1, 4 * 4 / MIB)  # the other sigmoid
    assert set(found) <= set(report_data.REASONS)
    section = next(one for one in session.report("dict")["sections"] if one["title"] == "Kept as they are")
    assert [row[0] for row in section["rows"]][-1] == "small (below min_bytes)"


def test_tensors_that_somebody_still_has(device):
    """Compressing them saves nothing: the report says so, and of others it does not."""
    kept = []

    def function(first, second, keep, x):
        x = first(x).relu()
        if keep[0]:
            kept.append(x)
        return second(x)

    keep = [False]
    network = Program(lambda first, second, x: function(first, second, keep, x), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    session = attach(network.to(device))
    x = torch.randn(2, 4, 16, 16, device=device)
    for keep[0] in (False, True):
        for _ in range(2):
            network(x).sum().backward()
        notes = " ".join(session.report("dict")["notes"])
        assert ("2 tensors are still referenced" in notes) == keep[0], notes


def test_note_on_referenced_tensors(monkeypatch):
    data = reports(made_up(monkeypatch, extra={"referenced": 1, "form": 0}))[0]
    assert any("200 tensors are still referenced" in note for note in data["notes"])


def test_compiled_says_so(monkeypatch):
    session = made_up(monkeypatch, 0)
    session._is_compiled, session._passes = True, 0
    notes = reports(session)[0]["notes"]
    assert "The model is compiled" in notes[0] and not any("No forward pass" in note for note in notes)


def test_drawings(monkeypatch):
    page = reports(made_up(monkeypatch))[2]
    drawings = figures(page)
    assert len(drawings) == 3
    for title, pair in drawings.items():
        assert [svg.get("class") for svg in pair] == ["wide", "narrow"], title
        for svg in pair:
            width, height = (float(number) for number in svg.get("viewBox").split()[2:])
            for element in svg.iter():
                assert 0 <= float(element.get("x", 0)) <= width and 0 <= float(element.get("y", 0)) <= height
                assert 0 <= float(element.get("x", 0)) + float(element.get("width", 0)) <= width + 0.1
    sizes = next(pair for title, pair in drawings.items() if title.startswith("Saved at each site"))
    for svg in sizes:
        bars = [group for group in svg.iter("g") if group.get("class") == "bar"]
        assert len(bars) == report_html.MOST_BARS
        for bar in bars:
            raw, stored = (float(rectangle.get("width")) for rectangle in bar.iter("rect"))
            assert stored <= raw
    names = [bar.find("title").text.partition(":")[0] for bar in sizes[0].iter("g") if bar.get("class") == "bar"]
    assert names[0] == "backbone.stages.0.blocks.0.branch.conv0.input" and "160 of 200" in page


def test_texts_of_bars_do_not_overlap(monkeypatch):
    """By a width of 0.6 em, which is more than fonts take. Narrow: a name and its value may share a line."""
    for wide, narrow in figures(reports(made_up(monkeypatch, 40))[2]).values():
        for svg, name_anchor in ((wide, "end"), (narrow, "start")):
            width = float(svg.get("viewBox").split()[2])
            for bar in svg.iter("g"):
                if bar.get("class") != "bar":
                    continue
                name, value = bar.findall("text")
                assert name.get("text-anchor") == name_anchor
                lengths = [0.6 * 12 * len(text.text) for text in (name, value)]
                if svg is narrow and name.get("y") == value.get("y"):
                    assert sum(lengths) < width
                elif svg is narrow:
                    assert max(lengths) <= width and float(value.get("y")) >= float(name.get("y")) + 12
                else:
                    assert float(name.get("x")) - lengths[0] >= 0 and float(value.get("x")) + lengths[1] <= width


def test_sections_of_others(monkeypatch):
    session = made_up(monkeypatch, 3)
    session.control = types.SimpleNamespace(section=lambda: {
        "title": "Decisions <of the controller>", "columns": ["step", "site", "bound"],
        "rows": [[100, "a" * 90, 0.25], [200, "b", 0.5]], "notes": ["Every 100 steps & more."]})
    session.budget = types.SimpleNamespace(section=lambda: None)
    data, text, page = reports(session)
    assert [section["title"] for section in data["sections"]] == ["Decisions <of the controller>", "Kept as they are"]
    assert "Decisions &lt;of the controller&gt;" in page and "a" * 90 in page and "0.25" in text
    assert "- Every 100 steps & more.\n" in text and "Every 100 steps &amp; more." in page


def test_looks_like_reports_of_the_command():
    source = pathlib.Path(__file__).parents[2] / "cmd" / "report" / "report_style.c"
    if not source.exists():
        pytest.skip("the comet command's sources are not here")
    parts = re.findall(r'^\s*"((?:[^"\\]|\\.)*)"', source.read_text(encoding="utf-8"), re.M)
    command = "".join(parts).replace('\\"', '"').split("\\n")
    assert len(command) > 30
    ours = report_html.STYLE.split("\n\n")[0].split("\n")
    assert [rule for rule in ours if rule not in command] == []
