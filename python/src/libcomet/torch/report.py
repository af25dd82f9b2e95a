# SPDX-License-Identifier: Apache-2.0
"""What a session held: as a dict (report_data.py), as a text of 80 columns, as a page (report_html.py)."""
import json
import os
import secrets
import textwrap

from libcomet.torch.report_data import SINCE, collect, merged, mib, plural

COLUMNS, LARGEST = 80, 10


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


# ---- text ----


def shorten(name, most):
    """Without its beginning: the end of a module's name says more."""
    name = clean(name)
    return name if len(name) <= most else "..." + name[len(name) - most + 3:]


def bound_text(row):
    return "-" if row["bound"] is None else f"{row['bound']:.2g}" if row["bound"] else "exact"


def ratio_text(ratio):
    return "-" if ratio is None else f"{ratio:.1f} x" if ratio < 999.95 else f"{ratio:.0f} x"


def forms_lines(forms):
    """('eb:0.1', 'layer1, layer2 and 7 more') of each form that modules have of their own. Modules within them are not
    named."""
    by_name = {row["module"]: row["form"] for row in forms["modules"]}
    groups = {}
    for name, form in by_name.items():
        parents = [name[:i] for i, character in enumerate(name) if character == "."]
        around = next((by_name[parent] for parent in reversed(parents) if parent in by_name), None)
        if around != form:
            groups.setdefault(form, []).append(clean(name))
    for form, modules in groups.items():
        more = f" and {len(modules) - 6} more" if len(modules) > 6 else ""
        yield form, ", ".join(modules[:6]) + more


def facts(data):
    """Pairs of texts, above the table of sites."""
    totals = data["totals"]
    passes, sites = plural(data["passes"], "forward pass", "forward passes"), len(merged(data["sites"]))
    yield "Seen", f"{passes} of {data['model']}, {plural(sites, 'site')}" + ("" if data["attached"] else "; detached")
    form = data["forms"]["default"]
    yield "Form", form + (" (kept as it is) where no other is given" if form == "exact" else "")
    for form, modules in forms_lines(data["forms"]):
        yield f"Form {form}", modules
    if totals["indices_raw_mib"]:
        yield "Pool indices", f"{mib(totals['indices_raw_mib'])} MiB held in {mib(totals['indices_packed_mib'])} MiB"
    devices = data["memory"]["devices"]
    yield "Device", ", ".join(f"{memory['device']} ({memory['name']})" for memory in devices) or "none"
    for memory in devices:
        if memory["torch_peak_mib"] is not None:
            yield f"Memory, {memory['device']}", (f"{mib(memory['torch_peak_mib'])} MiB at PyTorch's peak, {SINCE}; "
                                                  f"segments of streams {mib(memory['store_peak_mib'])} MiB at theirs")
        if memory["host_peak_mib"]:
            yield "Host memory", f"{mib(memory['host_peak_mib'])} MiB at most, {mib(memory['host_mib'])} MiB now"
    if any(memory["waits"] for memory in devices) or data["time"]["waited_ms"]:
        yield "Waiting", f"{data['time']['waited_ms']:.2f} ms for the device in each pass"


def _cells(cells, widths):
    return " ".join(f"{cell:<{width}}" if width > 0 else f"{cell:>{-width}}"
                    for cell, width in zip(cells, widths)).rstrip()


def _site_lines(rows):
    widths = (29, 16, -8, -8, -7, -7)
    largest = sorted(rows, key=lambda row: row["stored_mib"], reverse=True)[:LARGEST]
    yield f"The {plural(len(largest), 'site')} that take{'s' * (len(largest) == 1)} most, MiB in each pass"
    yield _cells(("site", "use", "raw", "stored", "ratio", "bound"), widths)
    for row in largest:
        name = shorten(row["name"], COLUMNS)
        if len(name) > widths[0]:  # a line of its own
            yield name
            name = ""
        yield _cells((name, row["use"], mib(row["raw_mib"]), mib(row["stored_mib"]), ratio_text(row["ratio"]),
                      bound_text(row)), widths)
    rest = len(rows) - len(largest)
    if rest:
        stored = sum(row["stored_mib"] for row in rows) - sum(row["stored_mib"] for row in largest)
        yield f"and {rest} more, {mib(stored)} MiB stored"


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
