# SPDX-License-Identifier: Apache-2.0
"""What a session held: as a dict of plain numbers and strings, as a text of 80 columns, as a page (report_html.py).

Sizes are MiB. What is said of a pass is the mean over all forward passes that the session has seen; rows of sites add
up to the totals. Nothing here waits for a device or changes what is held.
"""
import json
import os
import platform
import secrets
import statistics
import textwrap

import torch
from torch import nn

import libcomet
from libcomet.torch import _bridge, ops
from libcomet.torch.options import CODEC, LOSSLESS, UNTOUCHED, UNTOUCHED_KIND

MIB = 1 << 20
COLUMNS, LARGEST = 80, 10
SINCE = "since the last torch.cuda.reset_peak_memory_stats(), or since the process began"
USES = {"layer input": "layer input", "relu": "ReLU result", "curve input": "SiLU/GELU input",
        "batch norm input": "batch norm input", "row norm input": "row norm input", "mask": "dropout mask",
        "dropout": "dropout mask"}
DTYPES = {0: "float32", 1: "float16", 2: "bfloat16", 3: "uint8", 100: "int64", 101: "bool"}


def make(session, form="text", path=None):
    """Session.report."""
    if form not in ("text", "dict", "html"):
        raise ValueError(f"form: a report is made as 'text', 'dict' or 'html', not as '{form}'")
    data = collect(session)
    if form == "dict":
        made, content = data, None if path is None else json.dumps(data, indent=1, allow_nan=False) + "\n"
    elif form == "text":
        made = content = text_of(data)
    else:
        from libcomet.torch import report_html
        made = content = report_html.page(data)
    if path is not None:
        _write(path, content)
    return made


def _write(path, content):
    """The file appears whole, or not at all; where `path` is a link, what it points to is replaced."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"'{path}' exists and is not a regular file; choose another name for the report")
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def clean(text):
    """Without what neither a terminal nor XML can show: control characters, halves of surrogate pairs."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(text))


# ---- options and forms ----


def _plain(value, names):
    """As JSON has it. Modules become their names, classes theirs."""
    if isinstance(value, nn.Module):
        return names.get(id(value), type(value).__name__) or "(the model)"
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, dict):
        return {str(_plain(key, names)): _plain(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item, names) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _form_text(form):
    """Of a form as the C module has it, how it is written in the option `forms`."""
    kind, codec, parameter, bounds = form
    if kind != CODEC:
        return {LOSSLESS: "lossless", UNTOUCHED_KIND: "exact"}[kind]
    return f"eb:{max(bounds):g}" if codec == "eb" else f"{codec}:{parameter}" if parameter else codec


def _forms(session, names):
    """All forms, and those of modules that have one of their own."""
    try:
        forms, rules = session.options.forms_of(session.model)
    except ValueError:  # modules went away since attach
        forms, rules = (session.options.form(), session.options.form("exact")), {}
    default = rules.pop(session.model, UNTOUCHED if session.options.include else 0)
    modules = [{"module": names[id(module)], "form": _form_text(forms[number])} for module, number in rules.items()]
    return forms, {"default": _form_text(forms[default]), "modules": modules}


# ---- sites ----


def _bound(site, use, forms):
    """What may be lost, relative; 0: nothing; None: that is not known, or the codec has no bound."""
    if not site["saves"]:
        return None
    codecs = {codec for kind, codec, _, _ in forms if kind == CODEC}
    if "form" in site:
        kind, codec, _, _ = forms[int(site["form"])]
        codecs = {codec if kind == CODEC else "zvc"}
    if site["bound"] == 0 or codecs <= {"zvc", "raw"} or (use == "relu" and not codecs & {"eb", "zvc", "raw"}):
        return 0.0  # of a ReLU's result such codecs hold the mask
    return site["bound"] if codecs == {"eb"} else None


def _times(site):
    """Passes that went through a site. A tensor whose scale had changed was saved twice."""
    return max(0, int(site["saves"] - site["misfits"] + site["heads"]))


def _stored(site):
    """Bytes of all passes together. Tensors that stayed as they were count whole."""
    whole = min(_times(site), site["heads"] + site["kept"])
    held, known = _times(site) - whole, site["raw_total"] / site["raw_bytes"]
    each = site["stored_total"] / known if known else site["bytes"] or site["raw_bytes"]
    return held * each + whole * site["raw_bytes"]


def _ratio(raw, stored):
    return raw / stored if stored > 0 else None


def _row(site, passes, forms):
    use = ops.ROLES[int(site["role"])]
    raw, stored = _times(site) * site["raw_bytes"], _stored(site)
    return {"name": (site["name"] or "").lstrip(" .>") or "(no name)", "use": USES.get(use, use),
            "dtype": DTYPES.get(int(site["dtype"]), "other"), "values": int(site["count"]),
            "tensor_mib": site["raw_bytes"] / MIB, "raw_mib": raw / passes / MIB, "stored_mib": stored / passes / MIB,
            "ratio": _ratio(raw, stored), "bound": _bound(site, use, forms),
            **{key: int(site[key]) for key in ("saves", "loads", "aliases", "misfits", "kept", "heads")}}


def merged(rows, *keys):
    """Rows with the same name and use (other shapes, or further calls of one module) as one. In order."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys or ("name", "use", "dtype")), []).append(row)
    result = []
    for group in groups.values():
        raw, stored = (sum(row[key] for row in group) for key in ("raw_mib", "stored_mib"))
        counts = {key: sum(row[key] for row in group)
                  for key in ("saves", "loads", "aliases", "misfits", "kept", "heads")}
        bounds = sorted({row["bound"] for row in group if row["bound"] is not None})
        result.append({**group[0], "raw_mib": raw, "stored_mib": stored, "ratio": _ratio(raw, stored), **counts,
                       "bound": bounds[-1] if bounds else None, "least_bound": bounds[0] if bounds else None,
                       "sites": len(group)})
    return result


def _count_passes(session, stats, sites):
    """Forward passes. Where nobody has counted them: what most places say. A tensor of another size is another site."""
    for counted in (stats.get("passes"), getattr(session, "passes", None)):
        if counted is not None:
            return int(counted)
    places = {}
    for site in sites:
        sizes = places.setdefault((site["name"], site["role"], site["dtype"]), {})
        sizes[site["count"]] = max(sizes.get(site["count"], 0), _times(site))
    seen = [times for times in (sum(sizes.values()) for sizes in places.values()) if times]
    return statistics.median_high(seen) if seen else 0


def _totals(stats, rows, passes):
    each = MIB * max(passes, 1)
    indices, packed = stats["index_raw_bytes"] / each, stats["index_bytes"] / each
    raw, stored = (sum(row[key] for row in rows) for key in ("raw_mib", "stored_mib"))
    return {"raw_mib": raw + indices, "stored_mib": stored + packed, "ratio": _ratio(raw + indices, stored + packed),
            "sites_raw_mib": raw, "sites_stored_mib": stored, "indices_raw_mib": indices, "indices_packed_mib": packed,
            "shapes_mib": stats["shape_bytes"] / each, "kept_tensors": stats["kept_tensors"] / max(passes, 1),
            "kept_mib": stats["kept_bytes"] / each}


# ---- devices ----


def _devices(session, stats):
    """-1: the CPU. Those that tensors were held on, and those of the parameters."""
    of_parameters = {parameter.device for parameter in session.model.parameters()}
    numbers = {device.index or 0 for device in of_parameters if device.type == "cuda"}
    numbers |= {-1} if any(device.type == "cpu" for device in of_parameters) else set()
    return sorted(numbers | {key for key in stats if isinstance(key, int)})


def _memory(number, stats):
    found = stats.get(number, {})
    is_gpu = number >= 0 and torch.cuda.is_available()
    row = {"device": f"cuda:{number}" if number >= 0 else "cpu",
           "name": torch.cuda.get_device_name(number) if is_gpu else platform.processor() or platform.machine(),
           "torch_peak_mib": torch.cuda.max_memory_allocated(number) / MIB if is_gpu else None}
    for key, name in (("stored_bytes", "held_now_mib"), ("segment_bytes", "store_mib"),
                      ("peak_segment_bytes", "store_peak_mib"), ("workspace_bytes", "workspace_mib"),
                      ("host_bytes", "host_mib"), ("peak_host_bytes", "host_peak_mib")):
        row[name] = found.get(key, 0.0) / MIB
    return {**row, **{key: int(found.get(key, 0)) for key in ("entries", "saves", "loads", "misfits", "refused",
                                                              "spills", "fetches", "waits")}}


# ---- notes ----


def plural(count, noun):
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


def _mib(value):
    """Of a size, three digits that matter, and no unit."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else \
        f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1g}" if value >= 1e-4 else "0.00"


def _notes_of_passes(session, data):
    if session._is_compiled:
        yield "The model is compiled: what it saves is kept as it is. Attach to a model that runs eagerly."
    elif not data["passes"] and not data["totals"]["kept_tensors"]:
        yield ("No forward pass has been seen: was the model compiled after attach? It must be called as model(x), not "
               "as model.forward(x), and while gradients are enabled.")
    elif not data["sites"]:
        yield ("Nothing was held. Only functions that are known are (docs/pytorch.md has the list), in modules that are "
               f"not excluded, and tensors of {session.options.min_bytes} bytes or more (min_bytes).")
    for text in sorted(session._warned):
        yield text[:1].upper() + text[1:] + "."


def _notes_of_kept(session, data):
    totals, rows, count = data["totals"], data["sites"], max(data["passes"], 1)
    if totals["kept_tensors"]:
        each = "in each pass" if data["passes"] else "in all"
        yield (f"Kept exactly, as they are: {plural(round(totals['kept_tensors'], 1), 'tensor')} {each}. These are "
               f"weights, inputs of your own, tensors below {session.options.min_bytes} bytes (min_bytes), and what "
               "functions save that are not known to stand an error: losses, softmax, anything that others wrote. "
               f"Of known functions it is {_mib(totals['kept_mib'])} MiB, weights included.")
    if session.options.exact:
        yield "Mode 'exact': what is held loses nothing; inputs of layers, norms and curves are kept as they are."
    heads = sum(row["heads"] * row["tensor_mib"] for row in rows) / count
    if heads:
        yield (f"{_mib(heads)} MiB in each pass are kept because backward begins with them: while they are needed there "
               "is room for them.")
    kept = sum(row["kept"] for row in rows)
    if kept:
        yield (f"{plural(kept, 'tensor')} in all stayed as they were because there was no memory to compress them, or "
               "because statistics of a batch norm were not finite.")
    never = [row for row in rows if not row["saves"] and not row["heads"]]
    if never:
        yield (f"{plural(len(never), 'site')} never held anything: batch norms with running statistics (model.eval()), "
               "or whose input is no map. The first is " + clean(never[0]["name"]) + ".")


def _notes_of_use(session, data):
    totals, rows = data["totals"], data["sites"]
    if totals["shapes_mib"]:
        yield (f"Of {_mib(totals['shapes_mib'])} MiB in each pass backward reads the shape alone (inputs of poolings): no "
               "values are kept. They are not part of the totals, as other functions may save the same tensors.")
    again, saves = (sum(row[key] for row in rows) for key in ("misfits", "saves"))
    if again:
        yield (f"{plural(again, 'tensor')} of {saves - again} were compressed twice, as their scale had halved since the "
               "pass before.")
    if getattr(session.model, "comet_fused", 0):
        yield (f"{plural(session.model.comet_fused, 'block')} of the model are fused. Outputs of their batch norms are "
               "rebuilt from the inputs, and do not count as saved: without Comet there is more than 'raw' says.")
    held = saves - again - sum(row["kept"] for row in rows)
    loads = sum(row["loads"] for row in rows)
    if data["passes"] >= 4 and loads < 0.75 * held:
        yield (f"Only {loads} of {held} tensors that were compressed have been read: were there passes without backward? "
               "Within torch.no_grad() nothing is saved.")
    refused = sum(row["refused"] for row in data["memory"]["devices"])
    if refused:
        yield f"There was no memory for {plural(refused, 'stream')}: those tensors stayed as they were."
    still = sum(site.get("referenced", 0) for site in data["sites"])
    if still:
        yield f"{plural(still, 'tensor')} are still referenced by somebody else: compressing them saved no memory."


def _notes_of_device(data):
    for memory in data["memory"]["devices"]:
        number = int(memory["device"][5:]) if memory["device"].startswith("cuda:") else -1
        why = _bridge.gpu_obstacle(number) if number >= 0 else ""
        if why:
            yield f"GPU {number} cannot be used: {why}."


# ---- sections of others ----


def _sections(session):
    """Tables of what else a session has: its controller, its budget. Such an object has a method section(), which
    returns {"title": text, "columns": texts, "rows": lists of texts and numbers, "notes": texts}, or None."""
    parts = [getattr(session, name, None) for name in ("control", "budget")]
    found = [part.section() for part in parts if hasattr(part, "section")]
    return [section for section in found if section]


# ---- all of it ----


def _headline(totals):
    if not totals["raw_mib"]:
        return "Activations: nothing was held"
    ratio = f" ({totals['ratio']:.1f} x)" if totals["ratio"] else ""
    return f"Activations: {_mib(totals['raw_mib'])} MiB held in {_mib(totals['stored_mib'])} MiB{ratio}"


def collect(session):
    """The report as a dict that JSON can have."""
    stats, sites = session.native.stats(), session.native.sites()
    names = {id(module): name for name, module in session.model.named_modules()}
    passes = _count_passes(session, stats, sites)
    forms, shown_forms = _forms(session, names)
    rows = [_row(site, max(passes, 1), forms) for site in sites]
    totals, numbers = _totals(stats, rows, passes), _devices(session, stats)
    uses = [{key: row[key] for key in ("use", "sites", "raw_mib", "stored_mib", "ratio")} for row in merged(rows, "use")]
    data = {
        "headline": _headline(totals), "model": type(session.model).__name__, "attached": bool(session._undo),
        "passes": passes,
        "versions": {"libcomet": libcomet.__version__, "torch": torch.__version__, "cuda": torch.version.cuda or "",
                     "python": platform.python_version()},
        "options": _plain(vars(session.options), names), "forms": shown_forms,
        "totals": totals, "uses": uses, "sites": rows,
        "memory": {"torch_peak_since": SINCE, "devices": [_memory(number, stats) for number in numbers]},
        "time": {"waited_ms": stats["waited_ms"] / max(passes, 1), "waited_ms_total": stats["waited_ms"]},
        "gpu_obstacle": _bridge.gpu_obstacle(), "sections": _sections(session)}
    data["notes"] = [*_notes_of_passes(session, data), *_notes_of_kept(session, data), *_notes_of_use(session, data),
                     *_notes_of_device(data)]
    return data


# ---- text ----


def shorten(name, most):
    """Without its beginning: the end of a module's name says more."""
    name = clean(name)
    return name if len(name) <= most else "..." + name[len(name) - most + 3:]


def bound_text(row):
    if row["bound"] is None:
        return "-"
    least = row.get("least_bound", row["bound"])
    return "exact" if row["bound"] == 0 else f"{row['bound']:.3g}" if least == row["bound"] else f"<{row['bound']:.3g}"


def ratio_text(ratio):
    return "-" if ratio is None else f"{ratio:.1f} x" if ratio < 999.95 else f"{ratio:.0f} x"


def forms_lines(forms):
    """('eb:0.1', 'layer1, layer2 and 7 more') of each form that modules have of their own."""
    groups = {}
    for row in forms["modules"]:
        groups.setdefault(row["form"], []).append(clean(row["module"] or "(the model)"))
    for form, modules in groups.items():
        more = f" and {len(modules) - 6} more" if len(modules) > 6 else ""
        yield form, ", ".join(modules[:6]) + more


def facts(data):
    """Pairs of texts, above the table of sites."""
    totals = data["totals"]
    yield "Seen", f"{plural(data['passes'], 'forward pass').replace('passs', 'passes')}, {plural(len(data['sites']), 'site')}"
    form = data["forms"]["default"]
    yield "Form", form + (" (kept as it is) where no other is given" if form == "exact" else "")
    for form, modules in forms_lines(data["forms"]):
        yield f"Form {form}", modules
    if totals["indices_raw_mib"]:
        yield "Pool indices", f"{_mib(totals['indices_raw_mib'])} MiB held in {_mib(totals['indices_packed_mib'])} MiB"
    for memory in data["memory"]["devices"]:
        if memory["torch_peak_mib"] is not None:
            yield f"Memory, {memory['device']}", (f"{_mib(memory['torch_peak_mib'])} MiB at PyTorch's peak, {SINCE}; "
                                                  f"{_mib(memory['store_peak_mib'])} MiB of it at most for streams")
        if memory["host_peak_mib"]:
            yield "Host memory", f"{_mib(memory['host_peak_mib'])} MiB at most, {_mib(memory['host_mib'])} MiB now"
    yield "Waiting", f"{data['time']['waited_ms']:.2f} ms for the device in each pass"


def _cells(cells, widths):
    return " ".join(f"{cell:<{width}}" if width > 0 else f"{cell:>{-width}}"
                    for cell, width in zip(cells, widths)).rstrip()


def _site_lines(rows):
    widths = (31, 16, -8, -8, -7, -5)
    largest = sorted(rows, key=lambda row: row["stored_mib"], reverse=True)[:LARGEST]
    yield f"The {len(largest)} sites that take most, MiB in each pass" if len(largest) > 1 else "The site, MiB in each pass"
    yield _cells(("site", "use", "raw", "stored", "ratio", "bound"), widths)
    for row in largest:
        yield _cells((shorten(row["name"], widths[0]), row["use"][:widths[1]], _mib(row["raw_mib"]),
                      _mib(row["stored_mib"]), ratio_text(row["ratio"]), bound_text(row)), widths)
    rest = len(rows) - len(largest)
    if rest:
        stored = sum(row["stored_mib"] for row in rows) - sum(row["stored_mib"] for row in largest)
        yield f"and {rest} more, {_mib(stored)} MiB stored"


def _section_lines(section):
    yield section["title"]
    texts = [[clean(cell) for cell in row] for row in (section.get("columns", ()), *section.get("rows", ()))]
    widths = [max(len(row[i]) for row in texts if i < len(row)) for i in range(max(map(len, texts)))]
    while sum(widths) + len(widths) > COLUMNS and max(widths) > 3:
        widths[widths.index(max(widths))] -= 1
    for row in texts:
        yield _cells([shorten(cell, width) for cell, width in zip(row, widths)], widths)[:COLUMNS]


def _wrapped(label, text, indent):
    return textwrap.fill(clean(text), COLUMNS, initial_indent=f"{label:<{indent}}", subsequent_indent=" " * indent)


def text_of(data):
    blocks = [[data["headline"]], [_wrapped(label, text, 18) for label, text in facts(data)]]
    if data["sites"]:
        blocks.append(list(_site_lines(merged(data["sites"]))))
    blocks += [list(_section_lines(section)) for section in data["sections"]]
    notes = data["notes"] + [note for section in data["sections"] for note in section.get("notes", ())]
    if notes:
        blocks.append(["Notes", *(_wrapped("-", note, 2) for note in notes)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"
