# SPDX-License-Identifier: Apache-2.0
"""The numbers of a report: a dict of plain numbers and strings, and notes in words.

Sizes are MiB. What is said of a pass is the mean over all forward passes that the session has seen; rows of sites add
up to the totals. Nothing here waits for a device or changes what is held.
"""
import platform

import torch
from torch import nn

import libcomet
from libcomet.torch import _bridge, ops
from libcomet.torch.options import CODEC, LOSSLESS, UNTOUCHED, UNTOUCHED_KIND

MIB = 1 << 20
SINCE = "since the last torch.cuda.reset_peak_memory_stats(), or since the process began"
USES = {"layer input": "layer input", "relu": "ReLU result", "curve input": "SiLU/GELU input",
        "batch norm input": "batch norm input", "row norm input": "row norm input", "scaled": "scaled by factors",
        "mask": "dropout mask", "dropout": "dropout mask"}
# Why a tensor is kept as it is: native/hold/session.h
REASONS = ("saved by a function that is not known", "weights", "small (below min_bytes)", "modules that are left out",
           "your own input", "backward needs it exactly", "of a kind that cannot be held")
COUNTS = ("saves", "loads", "aliases", "misfits", "kept", "heads")
DTYPES = {0: "float32", 1: "float16", 2: "bfloat16", 3: "uint8", 100: "int64", 101: "bool"}  # native/torch/torch_api.h


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
            **{key: int(site[key]) for key in (*COUNTS, "referenced") if key in site}}


def merged(rows, *keys):
    """Rows with the same name and use (other shapes, further calls of one module) as one, with the greatest bound."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys or ("name", "use", "dtype")), []).append(row)
    result = []
    for group in groups.values():
        raw, stored = (sum(row[key] for row in group) for key in ("raw_mib", "stored_mib"))
        counts = {key: sum(row[key] for row in group) for key in COUNTS}
        bounds = [row["bound"] for row in group if row["bound"] is not None]
        result.append({**group[0], "raw_mib": raw, "stored_mib": stored, "ratio": _ratio(raw, stored), **counts,
                       "bound": max(bounds, default=None)})
    return result


def _kept(stats, passes):
    """Why tensors were kept as they are: rows of a reason, and how many and how much in each pass."""
    return [{"reason": reason, "tensors": tensors / max(passes, 1), "mib": size / MIB / max(passes, 1)}
            for reason, (tensors, size) in zip(REASONS, stats["kept"]) if tensors]


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


def plural(count, noun, many=None):
    return f"{count:g} {noun}" if count == 1 else f"{count:g} {many or noun + 's'}"


def _least_text(options):
    least = options.min_bytes
    return f"{least} bytes" if least < 1024 else f"{least / 1024:.4g} KiB" if least < MIB else f"{mib(least / MIB)} MiB"


def mib(value):
    """Of a size, three digits that matter, and no unit."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else \
        f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1g}" if value >= 1e-4 else "0.00"


def _notes_of_passes(session, data):
    if session._is_compiled:
        yield "The model is compiled: what it saves is kept as it is. Attach to a model that runs eagerly."
    elif not data["passes"]:
        yield ("No forward pass has been seen: was the model compiled after attach? It must be called as model(x), not "
               "as model.forward(x), and while gradients are enabled.")
    elif not data["sites"]:
        yield ("Nothing was held. What is held are tensors of functions that are known (docs/pytorch.md lists them), "
               f"in modules that are not excluded, of {_least_text(session.options)} or more (min_bytes).")
    for text in sorted(session._warned):
        yield text[:1].upper() + text[1:] + "."


def _notes_of_kept(session, data):
    totals, rows, count = data["totals"], data["sites"], max(data["passes"], 1)
    if session.options.exact:
        yield "Mode 'exact': what is held loses nothing; inputs of layers, norms, SiLU and GELU are kept as they are."
    heads = sum(row["heads"] * row["tensor_mib"] for row in rows) / count
    if heads:
        yield (f"{mib(heads)} MiB in each pass are kept because backward begins with them: there is room for them as "
               "long as they are needed.")
    kept = sum(row["kept"] for row in rows)
    if kept:
        yield (f"{plural(kept, 'tensor')} in all stayed as they were because there was no memory to compress them, or "
               "because statistics of a batch norm were not finite.")
    never = [row["name"] for row in rows if row["use"] == USES["batch norm input"] and not row["saves"] + row["heads"]]
    if never:
        yield (f"{plural(len(never), 'batch norm')} never held anything: with running statistics (model.eval()), or "
               f"without channels in maps, inputs are kept. The first is {never[0]}.")


def _notes_of_use(session, data):
    totals, rows = data["totals"], data["sites"]
    if totals["shapes_mib"]:
        yield (f"Of {mib(totals['shapes_mib'])} MiB in each pass backward reads the shape alone (inputs of poolings): "
               "no values are kept. This is no part of the totals, as other functions may save the same tensors.")
    again, saves = (sum(row[key] for row in rows) for key in ("misfits", "saves"))
    if again:
        yield f"{again} of {saves - again} tensors were compressed twice: their scale had halved since the pass before."
    if getattr(session.model, "comet_fused", 0):
        yield (f"{plural(session.model.comet_fused, 'block')} of the model are fused. Outputs of their batch norms are "
               "rebuilt from the inputs, and do not count as saved: without Comet there is more than 'raw' says.")
    held = saves - again - sum(row["kept"] for row in rows)
    loads = sum(row["loads"] for row in rows)
    if data["passes"] >= 4 and loads < 0.75 * held:
        yield (f"Only {loads} of {held} tensors that were compressed have been read. Were there passes without "
               "backward? Within torch.no_grad() nothing is saved.")
    refused = sum(row["refused"] for row in data["memory"]["devices"])
    if refused:
        yield f"There was no memory for {plural(refused, 'stream')}: those tensors stayed as they were."
    still = sum(row.get("referenced", 0) for row in rows)
    if still:
        first = next(row["name"] for row in rows if row.get("referenced", 0))
        yield (f"{plural(still, 'tensor')} are still referenced by somebody else when backward reads them: compressing "
               f"them saved no memory. The first is {first}.")


def _notes_of_device(data):
    for memory in data["memory"]["devices"]:
        number = int(memory["device"][5:]) if memory["device"].startswith("cuda:") else -1
        why = _bridge.gpu_obstacle(number) if number >= 0 else ""
        if why:
            yield f"GPU {number} cannot be used: {why}."


# ---- sections of others ----


def _sections(session, kept):
    """Tables of what else a session has: its controller, its budget. Such an object has a method section(), which
    returns {"title": text, "columns": texts, "rows": lists of texts and numbers, "notes": texts}, or None."""
    parts = [getattr(session, name, None) for name in ("control", "budget")]
    found = [part.section() for part in parts if hasattr(part, "section")]
    if hasattr(parts[0], "measured_section"):
        found.insert(1, parts[0].measured_section())
    return [section for section in (*found, _kept_section(kept)) if section]


def _kept_section(kept):
    rows = [[row["reason"], f"{row['tensors']:.4g}", mib(row["mib"])]
            for row in sorted(kept, key=lambda row: -row["mib"])]
    return rows and {"title": "Kept as they are", "columns": ["why", "tensors in each pass", "MiB"], "rows": rows,
                     "notes": ["Functions that are not known to stand an error are losses, softmax, products of two "
                               "activations, and anything that others wrote. A tensor counts once for each function "
                               "that saves it."]}


def _measured(session):
    control = getattr(session, "control", None)
    return control.measured() if hasattr(control, "measured") else []


def _budget(session):
    budget = getattr(session, "budget", None)
    return budget.describe() if hasattr(budget, "describe") else None


# ---- all of it ----


def _headline(totals):
    if not totals["raw_mib"]:
        return "Activations: nothing was held"
    ratio = f" ({totals['ratio']:.1f} x)" if totals["ratio"] else ""
    return f"Activations: {mib(totals['raw_mib'])} MiB held in {mib(totals['stored_mib'])} MiB{ratio}"


def collect(session):
    """The report as a dict that JSON can have."""
    stats, sites = session.native.stats(), session.native.sites()
    names = {id(module): name for name, module in session.model.named_modules()}
    passes = session._passes
    forms, shown_forms = _forms(session, names)
    rows = [_row(site, max(passes, 1), forms) for site in sites]
    totals, numbers, kept = _totals(stats, rows, passes), _devices(session, stats), _kept(stats, passes)
    uses = [{key: row[key] for key in ("use", "raw_mib", "stored_mib", "ratio")} for row in merged(rows, "use")]
    data = {
        "headline": _headline(totals), "model": type(session.model).__name__, "attached": bool(session._undo),
        "passes": passes,
        "versions": {"libcomet": libcomet.__version__, "torch": torch.__version__, "cuda": torch.version.cuda or "",
                     "python": platform.python_version()},
        "options": _plain(vars(session.options), names), "forms": shown_forms,
        "totals": totals, "uses": uses, "sites": rows, "kept": kept,
        "memory": {"torch_peak_since": SINCE, "devices": [_memory(number, stats) for number in numbers]},
        "time": {"waited_ms": stats["waited_ms"] / max(passes, 1), "waited_ms_total": stats["waited_ms"]},
        "budget": _budget(session), "measured": _measured(session),
        "gpu_obstacle": _bridge.gpu_obstacle(), "sections": _sections(session, kept)}
    data["notes"] = [*_notes_of_passes(session, data), *_notes_of_kept(session, data), *_notes_of_use(session, data),
                     *_notes_of_device(data)]
    return data
