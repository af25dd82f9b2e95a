# SPDX-License-Identifier: Apache-2.0
"""A report as one file of HTML that looks like those of the comet command (cmd/report): drawings are SVG inside it,
nothing is loaded from elsewhere. Every drawing is there twice, for wide and for narrow windows; one of them shows."""
import html
import json
import math

from libcomet.torch.report import bound_text, clean, facts, forms_lines, ratio_text, shorten
from libcomet.torch.report_data import merged, mib

# cmd/report/report_style.c; what is behind the blank line is only here.
STYLE = """\
:root{color-scheme:light dark;--page:#f6f7f8;--card:#fff;--ink:#1d2126;--soft:#5c6570;--edge:#dfe3e8;--grid:#e9ecef;\
--row:#f6f8fa;--shade:#c4cad1;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b3558c;--c4:#c98500;--c5:#3fa0dc;\
--c6:#666d75;--t1:#bd5300;--t2:#00805c;--t3:#ac5087;--t4:#926000;--t5:#1c77b5}
@media (prefers-color-scheme:dark){:root{--page:#14171a;--card:#1c2024;--ink:#e6e9ec;--soft:#9ba5af;--edge:#31373e;\
--grid:#2a3036;--row:#22272c;--shade:#0b0d0f;\
--c0:#4fb0ee;--c1:#ff8c42;--c2:#2fcf9f;--c3:#e59bc6;--c4:#f0b93a;--c5:#9fd6fa;--c6:#aab2ba;\
--t1:var(--c1);--t2:var(--c2);--t3:var(--c3);--t4:var(--c4);--t5:var(--c5)}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,\
"Helvetica Neue","Liberation Sans",Arial,sans-serif}
main,header,footer{max-width:1120px;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.5rem;padding-bottom:.75rem}
h1{font-size:1.75rem;line-height:1.2;margin:0;letter-spacing:-.015em;overflow-wrap:anywhere}
header p{margin:.4rem 0 0;color:var(--soft);overflow-wrap:anywhere}
section,figure{margin:1.25rem 0;padding:1.1rem 1.25rem 1rem;background:var(--card);border:1px solid var(--edge);\
border-radius:8px}
h2,figcaption{font-size:1.05rem;font-weight:600;margin:0 0 .6rem;line-height:1.35;overflow-wrap:anywhere}
figcaption span{color:var(--soft);font-weight:400;margin-right:.5em}
.scroll{overflow:auto;background:linear-gradient(to right,var(--card) 40%,transparent),\
linear-gradient(to left,var(--card) 40%,transparent) 100% 0,linear-gradient(to right,var(--shade),transparent),\
linear-gradient(to left,var(--shade),transparent) 100% 0;background-repeat:no-repeat;\
background-size:40px 100%,40px 100%,14px 100%,14px 100%;background-attachment:local,local,scroll,scroll}
.tall{max-height:34rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .5rem;text-align:left;border-bottom:1px solid var(--grid);white-space:nowrap}
th{white-space:normal;vertical-align:bottom}
th{color:var(--soft);font-weight:600;border-bottom-color:var(--edge);position:sticky;top:0;background:var(--card)}
tbody tr:hover{background:var(--row)}
tbody tr:last-child td{border-bottom:0}
.n{text-align:right}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;list-style:none;margin:0 0 .5rem;padding:0;font-size:.85rem;\
color:var(--soft)}
.legend i{display:inline-block;width:1.1em;height:.3em;border-radius:2px;margin-right:.45em;vertical-align:middle}
.empty{color:var(--soft);margin:.5rem 0}
svg{display:block;width:100%;min-width:880px;height:auto;overflow:visible}
svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .name{fill:var(--ink)}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .base{stroke:var(--soft);stroke-width:1}
svg .whole{fill:currentColor;fill-opacity:.85}
svg .pale{fill:currentColor;fill-opacity:.3}
svg .part{fill:currentColor}
svg .bar:hover .name{font-weight:600}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}\
.c5{color:var(--c5)}.c6{color:var(--c6)}
.legend i{background:currentColor}
footer{padding-top:.5rem;padding-bottom:2rem;color:var(--soft);font-size:.85rem}
@media print{body{background:none}.tall{max-height:none}section,figure{break-inside:avoid}}

.legend .pale{opacity:.3}
.facts td{white-space:normal;vertical-align:top;overflow-wrap:anywhere}
.facts td:first-child{white-space:nowrap;color:var(--soft);width:1%}
section ul{margin:.2rem 0;padding-left:1.2rem}
section li{margin:.35rem 0;max-width:85ch;overflow-wrap:anywhere}
section p{margin:.2rem 0 .6rem;max-width:85ch;color:var(--soft)}
svg.narrow{display:none;min-width:0}
svg.narrow text{paint-order:stroke;stroke:var(--card);stroke-width:3px}
svg.narrow .base{display:none}
@media (max-width:700px){svg.wide{display:none}svg.narrow{display:block}.facts td,.facts td:first-child{display:block;\
width:auto}.facts td:first-child{border-bottom:0;padding-bottom:0}.facts td:last-child{padding-top:0}\
h1{font-size:1.4rem}}
"""

MOST_BARS = 160  # of more sites, those are drawn that take most
TALL_ROWS = 24   # longer tables scroll inside their box


def put(text):
    return html.escape(clean(text))


# ---- tables ----


def _cells(tag, cells, numbers):
    return "<tr>" + "".join(f'<{tag} class="n">{put(cell)}</{tag}>' if is_number else f"<{tag}>{put(cell)}</{tag}>"
                            for cell, is_number in zip(cells, numbers)) + "</tr>\n"


def _table(title, columns, rows, words=1, lead=""):
    """The first `words` columns are texts, the rest numbers, set to the right."""
    numbers = [i >= words for i in range(len(columns))]
    body = "".join(_cells("td", row, numbers) for row in rows)
    tall = " tall" if len(rows) > TALL_ROWS else ""
    lead = f"<p>{put(lead)}</p>\n" if lead else ""
    return (f"<section>\n<h2>{put(title)}</h2>\n{lead}<div class=\"scroll{tall}\">\n<table>\n<thead>\n"
            f"{_cells('th', columns, numbers)}</thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n</section>\n")


def _facts(title, pairs):
    rows = "".join(f"<tr><td>{put(label)}</td><td>{put(text)}</td></tr>\n" for label, text in pairs)
    return f"<section>\n<h2>{put(title)}</h2>\n<table class=\"facts\">\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n"


def _list(title, items):
    items = "".join(f"<li>{put(item)}</li>\n" for item in items)
    return f"<section>\n<h2>{put(title)}</h2>\n<ul>\n{items}</ul>\n</section>\n" if items else ""


# ---- bars ----


def _ticks(high, wanted):
    """From 0 to `high` in steps of 1, 2 or 5 times a power of ten, and their decimals."""
    power = 10.0 ** math.floor(math.log10(high / wanted))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit * 1.0001 >= high / wanted)
    return [i * step for i in range(int(high / step + 1e-6) + 1)], max(0, math.ceil(-math.log10(step) - 1e-9))


def _grid(place, high, wanted, top, bottom, unit, width):
    """Lines from top to bottom, with numbers below them, and above where there is room."""
    ticks, decimals = _ticks(high, wanted)
    drawn = ""
    for i, value in enumerate(ticks):
        x, label = place(value), f"{value:.{decimals}f}"
        anchor = "start" if x < 20 else "end" if x > width - 40 else "middle"
        drawn += (f'<path class="{"grid" if i else "base"}" d="M{x:.1f} {top}V{bottom}"/><text x="{x:.1f}" '
                  f'y="{bottom + 17}" text-anchor="{anchor}">{label}{unit if i == len(ticks) - 1 else ""}</text>\n')
        if top > 14:
            drawn += f'<text x="{x:.1f}" y="14" text-anchor="middle">{label}</text>\n'
    return drawn


def _rectangles(bar, place, y, height):
    drawn = ""
    for kind, value in (("pale" if "part" in bar else "whole", bar["value"]), ("part", bar.get("part", 0))):
        if value > 0:
            width = place(min(value, bar["value"])) - place(0)
            drawn += (f'<rect class="{kind}" x="{place(0):.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                      'rx="1.5"/>')
    return f'<g class="c0">{drawn}</g>'


def _text(kind, text, x, y, font, anchor):
    return (f'<text class="{kind}" style="font-size:{font}px" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{put(text)}</text>")


CHARACTER = 0.6  # of its height is the width of a character: more than most take


def _longest(bars, key):
    return max(len(clean(bar[key])) for bar in bars)


def _wide(bars, unit):
    """Names at the left, values at the bars' ends. Many bars are low, as in cmd/report/report_bars.c."""
    width, top = 960, 22
    row = 26 if len(bars) <= 16 else 19 if len(bars) <= 48 else 15 if len(bars) <= 96 else 12
    font, height = min(12, row - 2), math.floor(row * 0.72)
    most = min(40, _longest(bars, "name"))
    left, right = 14 + most * CHARACTER * font, width - 14 - _longest(bars, "label") * CHARACTER * font
    high = max(bar["value"] for bar in bars) or 1.0

    def place(value):
        return left + value / high * (right - left)

    def draw(bar, y):
        base = y + row / 2 + font * 0.35
        return (_text("name", shorten(bar["name"], most), left - 7, base, font, "end")
                + _rectangles(bar, place, y + (row - height) / 2, height)
                + _text("value", bar["label"], place(bar["value"]) + 6, base, font, "start"))

    bottom = top + row * len(bars)
    return width, top, row, draw, bottom, _grid(place, high, 6, top, bottom, unit, width)


def _narrow(bars, unit):
    """Names and values above the bars: side by side, or where that is too long, one above the other."""
    width, top, font = 320, 2, 12
    most = int(width / (CHARACTER * font))
    apart = _longest(bars, "name") + _longest(bars, "label") > most - 1
    row = 50 if apart else 36
    high = max(bar["value"] for bar in bars) or 1.0

    def place(value):
        return 0.5 + value / high * (width - 1)

    def draw(bar, y):
        value = (0, y + 29, font, "start") if apart else (width, y + 15, font, "end")
        return (_text("name", shorten(bar["name"], most), 0, y + 15, font, "start")
                + _text("value", bar["label"], *value) + _rectangles(bar, place, y + row - 15, 9))

    bottom = top + row * len(bars)
    return width, top, row, draw, bottom, _grid(place, high, 3, top, bottom, unit, width)


def _drawing(kind, bars, title, unit):
    width, top, row, draw, bottom, drawn = (_wide if kind == "wide" else _narrow)(bars, unit)
    for i, bar in enumerate(bars):
        drawn += (f'<g class="bar"><title>{put(bar["name"])}: {put(bar["label"])}</title>{draw(bar, top + row * i)}'
                  "</g>\n")
    return (f'<svg class="{kind}" viewBox="0 0 {width} {bottom + 24}" role="img" aria-label="{put(title)}">\n{drawn}'
            "</svg>\n")


def _figure(number, title, bars, unit, legend=()):
    """bars: dicts of name, value and label, and of part, which is drawn darker."""
    if not bars:
        return ""
    legend = "".join(f'<li><i class="c0 {kind}"></i>{put(text)}</li>' for kind, text in legend)
    return (f'<figure id="figure-{number}">\n<figcaption><span>{number}</span>{put(title)}</figcaption>\n'
            + (f'<ul class="legend">{legend}</ul>\n' if legend else "") + '<div class="scroll">\n'
            + _drawing("wide", bars, title, unit) + _drawing("narrow", bars, title, unit) + "</div>\n</figure>\n")


def _size_bar(row, name):
    return {"name": name, "value": row["raw_mib"], "part": row["stored_mib"],
            "label": f"{mib(row['raw_mib'])} -> {mib(row['stored_mib'])}, {ratio_text(row['ratio'])}"}


def _figures(data, rows):
    shown, more = rows, ""
    if len(rows) > MOST_BARS:
        least = sorted((row["stored_mib"] for row in rows), reverse=True)[MOST_BARS - 1]
        shown = [row for row in rows if row["stored_mib"] >= least][:MOST_BARS]
        more = f" (the {MOST_BARS} of {len(rows)} that take most)"
    sizes = [_size_bar(row, row["name"]) for row in shown]
    ratios = [{"name": use["use"], "value": use["ratio"],
               "label": f"{ratio_text(use['ratio'])}, {mib(use['raw_mib'])} -> {mib(use['stored_mib'])} MiB"}
              for use in data["uses"] if use["ratio"]]
    bounds = [{"name": row["name"], "value": row["bound"], "label": bound_text(row)} for row in shown
              if row["bound"] is not None]
    return [("Saved at each site in a pass, MiB" + more, sizes, " MiB",
             (("pale", "raw: what PyTorch would have kept"), ("part", "stored"))),
            ("Raw over stored, by what backward uses the tensors for", ratios, "", ()),
            ("Bound of each site, relative to the rms of its values (batch norms: to each channel's deviation)" + more,
             bounds if any(bar["value"] for bar in bounds) else [], "", ())]


# ---- the page ----


def _site_table(rows):
    types = sorted({row["dtype"] for row in rows})
    several = len(types) > 1
    columns = ("site", "use", *("type",) * several, "raw, MiB", "stored, MiB", "ratio", "bound", "saves", "loads",
               "shared", "done again", "kept", "first in backward")
    cells = [(row["name"], row["use"], *(row["dtype"],) * several, mib(row["raw_mib"]), mib(row["stored_mib"]),
              ratio_text(row["ratio"]), bound_text(row), row["saves"], row["loads"], row["aliases"], row["misfits"],
              row["kept"], row["heads"]) for row in rows]
    lead = (f"{'Several types' if several else 'All are ' + types[0]}; MiB of one pass, counts of all. Shared: other "
            "functions saved the same tensor. Done again: its scale had changed. Kept: as it was, for want of memory. "
            "First in backward: as it was, for it is needed at once.")
    return _table("Sites", columns, cells, 2 + several, lead)


def _memory_table(data):
    columns = ("device", "name", "PyTorch's peak, MiB", "store's peak, MiB", "store now, MiB", "work space, MiB",
               "host memory's peak, MiB", "waits", "spilled", "refused")
    rows = [(row["device"], row["name"], "-" if row["torch_peak_mib"] is None else mib(row["torch_peak_mib"]),
             mib(row["store_peak_mib"]), mib(row["store_mib"]), mib(row["workspace_mib"]), mib(row["host_peak_mib"]),
             row["waits"], row["spills"], row["refused"])
            for row in data["memory"]["devices"] if row["device"] != "cpu" or row["store_peak_mib"]]
    lead = f"PyTorch's peak is torch.cuda.max_memory_allocated(), {data['memory']['torch_peak_since']}."
    return _table("Memory", columns, rows, 2, lead) if rows else ""


def _summary(data):
    totals = data["totals"]
    skipped = ("Device", "Memory", "Host", "Form ")  # have tables of their own
    pairs = [pair for pair in facts(data) if not pair[0].startswith(skipped)]
    pairs.insert(1, ("In each pass", data["headline"].partition(": ")[2]))
    pairs.append(("Kept exactly", f"{totals['kept_tensors']:.4g} tensors in each pass, {mib(totals['kept_mib'])} MiB, "
                                  "weights aside"))
    if totals["shapes_mib"]:
        pairs.append(("Shapes alone", f"{mib(totals['shapes_mib'])} MiB in each pass, of which no values are kept"))
    return _facts("Summary", pairs)


def _setup(data):
    options = [(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
               for key, value in data["options"].items()]
    forms = [(f"form {form}", modules) for form, modules in forms_lines(data["forms"])]
    versions = [(name, version) for name, version in data["versions"].items() if version]
    return _facts("Options and versions", options + forms + versions)


def page(data):
    """The whole file, of what report_data.collect returns."""
    rows = merged(data["sites"])
    devices = ", ".join(row["name"] if row["device"] != "cpu" else "CPU" for row in data["memory"]["devices"])
    title = f"{data['model']}: {data['headline'].partition(': ')[2]}"
    subtitle = f"Activations saved for backward in a forward pass; PyTorch {data['versions']['torch']}, {devices}"
    sections = [_summary(data), _list("Notes", data["notes"])]
    for number, figure in enumerate((figure for figure in _figures(data, rows) if figure[1]), 1):
        sections.append(_figure(number, *figure))
    sections += [_memory_table(data), _site_table(rows) if rows else ""]
    for section in data["sections"]:
        sections.append(_table(section["title"], section.get("columns", ()), section.get("rows", ())))
        sections.append(_list(f"{section['title']}: notes", section.get("notes", ())))
    sections.append(_setup(data))
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{put(title)}</title>\n'
            f"<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{put(title)}</h1>\n<p>{put(subtitle)}</p>\n"
            f"</header>\n<main>\n{''.join(sections)}</main>\n"
            f"<footer>Made by libcomet {put(data['versions']['libcomet'])}</footer>\n</body>\n</html>\n")
