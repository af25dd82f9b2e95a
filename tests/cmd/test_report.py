#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports of made-up figures: well formed, complete, nothing lost.  usage: test_report.py REPORT_PROBE [TEST...]"""
import base64
import html.parser
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import images

PROBE = ""
VOID = {"meta", "br", "img", "link", "input", "hr"}
WIDTH = 960
SPIKE = 12345
POINTS = 30000


class Page(html.parser.HTMLParser):
    """Fails at the first tag that is closed wrongly; collects all text."""

    def __init__(self):
        super().__init__()
        self.open_tags, self.words, self.tags, self.ids = [], [], [], []

    def handle_starttag(self, tag, attributes):
        names = [name for name, value in attributes]
        assert len(names) == len(set(names)), (tag, attributes)
        self.ids += [value for name, value in attributes if name == "id"]
        self.tags.append(tag)
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags and self.open_tags.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.words.append(data)


def path_pieces(d):
    """The pieces of a path, each a list of (x, y); 'h0' and 'Z' end one."""
    pieces = []
    for kind, x, y in re.findall(r"([ML])(-?[\d.]+) (-?[\d.]+)", d):
        if kind == "M":
            pieces.append([])
        pieces[-1].append((float(x), float(y)))
    return pieces


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="comet_report_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def probe(self, kind, name="r.html"):
        return subprocess.run([PROBE, kind, os.path.join(self.folder, name)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60, check=False)

    def make(self, kind):
        done = self.probe(kind)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(os.listdir(self.folder), ["r.html"])
        with open(os.path.join(self.folder, "r.html"), encoding="utf-8", newline="") as file:
            return file.read()

    def parse(self, text):
        page = Page()
        page.feed(text)
        page.close()
        self.assertEqual(page.open_tags, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        return page

    def figures(self, text):
        """Title -> drawing (None where there is none)."""
        found = {}
        for figure in re.findall(r"<figure.*?</figure>", text, re.S):
            element = ElementTree.fromstring(figure)
            caption = element.find("figcaption")
            found[caption.find("span").tail] = element.find(".//svg")
        return found

    def lines(self, drawing):
        return [path for path in drawing.iter("path") if "line" in path.get("class").split()]

    def pieces(self, drawing):
        return [path_pieces(path.get("d")) for path in self.lines(drawing)]


class WellFormed(Case):
    def test_pages_are_html_and_drawings_xml(self):
        for kind in ("ordinary", "odd", "long"):
            with self.subTest(kind):
                text = self.make(kind)
                self.assertTrue(text.startswith("<!DOCTYPE html>"))
                page = self.parse(text)
                self.assertEqual(page.tags.count("figure"), len(self.figures(text)))

    def test_nothing_is_loaded_from_elsewhere(self):
        for kind in ("ordinary", "odd"):
            text = self.make(kind)
            self.assertNotRegex(text, r"(?i)https?:|<link|<script|<img|@import|url\(|\bsrc=|\bhref=")

    def test_every_coordinate_is_a_number_inside_the_drawing(self):
        for kind in ("ordinary", "odd", "long"):
            for title, drawing in self.figures(self.make(kind)).items():
                if drawing is None:
                    continue
                height = float(drawing.get("viewBox").split()[3])
                for element in drawing.iter():
                    for key in ("x", "cx"):
                        self.assertTrue(0 <= float(element.get(key, 0)) <= WIDTH, (title, element.attrib))
                    for key in ("y", "cy", "width", "height"):
                        self.assertTrue(0 <= float(element.get(key, 0)) <= max(height, WIDTH), (title, element.attrib))
                    for piece in path_pieces(element.get("d", "")):
                        for x, y in piece:
                            self.assertTrue(0 <= x <= WIDTH and 0 <= y <= height, (title, x, y))

    def test_ticks_are_few_and_different(self):
        for kind in ("ordinary", "odd", "long"):
            for title, drawing in self.figures(self.make(kind)).items():
                if drawing is None:
                    continue
                y = [text.text for text in drawing.iter("text")
                     if text.get("text-anchor") == "end" and text.get("class") is None]
                self.assertEqual(len(y), len(set(y)), title)
                if self.lines(drawing):
                    self.assertTrue(2 <= len(y) <= 15, (title, y))


class Points(Case):
    def test_every_point_has_its_place(self):
        drawing = self.figures(self.make("ordinary"))["Predicted against measured"]
        dots = list(drawing.iter("circle"))
        self.assertEqual(len(dots), 4 + 3)
        titles = [dot.find("title").text for dot in dots]
        self.assertEqual(titles[3], "<bn4>: 0.001, 0.0012")
        self.assertTrue(titles[4].startswith("norm_scale: "))
        ends = path_pieces(next(path for path in drawing.iter("path") if path.get("class") == "base" and
                                "L" in path.get("d")).get("d"))[0]

        def side(dot):  # above the diagonal, or below
            (x0, y0), (x1, y1) = ends
            return float(dot.get("cy")) - (y0 + (float(dot.get("cx")) - x0) * (y1 - y0) / (x1 - x0))

        self.assertEqual([side(dot) < 0 for dot in dots], [True, True, False, True, False, False, True])

    def test_what_has_no_place_is_left_out(self):
        figures = self.figures(self.make("odd"))
        self.assertIsNone(figures["points without a place"])
        self.assertEqual(len(list(figures["one place"].iter("circle"))), 1)
        self.assertEqual(len(list(figures["one place, not equal"].iter("circle"))), 3)  # 0 and less have a place there

    def test_names_of_a_crowd_do_not_lie_over_each_other(self):
        drawing = self.figures(self.make("odd"))["a crowd"]
        names = [text for text in drawing.iter("text") if text.text in ("crowded", "alone")]
        self.assertTrue(3 <= len(names) < 10, len(names))
        self.assertIn("alone", [name.text for name in names])
        boxes = []
        for name in names:
            x, y, width = float(name.get("x")), float(name.get("y")), 8 * len(name.text)
            boxes.append((x - width if name.get("text-anchor") == "end" else x, y))
        for i, (x, y) in enumerate(boxes):
            self.assertFalse(any(abs(x - a) < 8 * 5 and abs(y - b) < 14 for a, b in boxes[:i]), boxes)

    def test_clouds_have_their_names_beside_them(self):
        figures = self.figures(self.make("ordinary"))
        for title, named in (("One figure against another", True), ("Predicted against measured", False)):
            texts = [text.text for text in figures[title].iter("text")]
            for name in ("conv_weights", "norm_scale"):
                self.assertEqual(name in texts, named)


class Text(Case):
    def test_text_is_escaped_and_comes_back(self):
        text = self.make("odd")
        words = "".join(self.parse(text).words)
        self.assertIn("<script>alert(\"&\")</script> \ufffd \ufffd\ufffd \ufffd 'quoted'", words)
        for part in ("<name>", "a & b", "odd \"table\"", "x <i>", "y & z", "<b>series & number 11",
                     "resnet18 on <cifar10>"):
            self.assertIn(part, words)
        self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")

    def test_long_names_are_cut_where_they_are_drawn_but_whole_in_the_tooltip(self):
        bars = self.figures(self.make("odd"))["odd bars"]
        whole = "a name of more than forty characters, which is cut"
        self.assertIn(whole + ": ", [title.text for title in bars.iter("title")])
        drawn = [text.text for text in bars.iter("text") if text.get("class") == "name"]
        self.assertIn(whole[:39] + "\u2026", drawn)

    def test_numbers_stand_to_the_right_and_names_to_the_left(self):
        text = self.make("odd")
        table = ElementTree.fromstring(re.search(r"<table>.*?</table>", text[text.index("odd &quot;"):], re.S).group())
        rows = [[cell.get("class") for cell in row] for row in table.iter("tr")]
        self.assertEqual(rows, [[None, None, "n"]] * 4)
        text = self.make("ordinary")
        table = ElementTree.fromstring(re.search(r"<table>.*?</table>", text, re.S).group())
        self.assertEqual([cell.get("class") for cell in next(table.iter("tr"))], [None] + ["n"] * 5)


class Lines(Case):
    def test_gaps_break_the_line_and_a_lonely_point_is_a_dot(self):
        drawing = self.figures(self.make("odd"))["gaps"]
        (pieces,) = self.pieces(drawing)
        self.assertEqual([len(piece) for piece in pieces], [1, 2, 1])
        self.assertEqual(self.lines(drawing)[0].get("d").count("h0"), 2)
        self.assertEqual(len(list(drawing.iter("circle"))), 4)

    def test_nothing_to_draw_is_said(self):
        figures = self.figures(self.make("odd"))
        for title in ("nothing finite", "no points", "no positive values", "no series", "no bars"):
            self.assertIsNone(figures[title], title)
        for title in ("one point", "constant", "zero", "negative", "nearly constant", "tiny", "one bar of zero"):
            self.assertIsNotNone(figures[title], title)

    def test_one_value_is_drawn_level_and_inside(self):
        figures = self.figures(self.make("odd"))
        for title in ("constant", "negative", "nearly constant"):
            (pieces,) = self.pieces(figures[title])
            self.assertEqual(len({y for x, y in pieces[0]}), 1, title)
            self.assertTrue(30 < pieces[0][0][1] < 334, title)

    def test_values_without_a_place_are_gaps(self):
        figures = self.figures(self.make("odd"))
        self.assertEqual([len(p) for p in self.pieces(figures["wide"])[0]], [2, 2])
        self.assertEqual([len(p) for p in self.pieces(figures["decades"])[0]], [2, 2])

    def test_long_series_are_thinned_but_no_spike_and_no_gap_is_lost(self):
        drawing = self.figures(self.make("long"))["long"]
        spike, gap = self.pieces(drawing)
        for pieces in (spike, gap):
            self.assertLess(sum(map(len, pieces)), 4 * WIDTH)
            self.assertGreater(sum(map(len, pieces)), WIDTH)
        self.assertEqual([len(spike), len(gap)], [1, 2])
        top = min(spike[0], key=lambda point: point[1])
        left, right = spike[0][0][0], spike[0][-1][0]
        self.assertAlmostEqual(top[0], left + (right - left) * SPIKE / (POINTS - 1), delta=1)
        self.assertAlmostEqual(top[1], 30, delta=0.2)  # the highest tick is 1000, and so is the spike

    def test_seeds_share_a_colour_and_one_name(self):
        drawing = self.figures(self.make("ordinary"))["Accuracy on the evaluation split"]
        colours = [group.get("class") for group in drawing.iter("g") if group.find("circle") is not None]
        self.assertEqual(colours, ["c0", "c0", "c1", "c1", "c2"])
        names = [text for text in drawing.iter("text") if text.get("class") == "tag"]
        self.assertEqual(sorted(text.text for text in names), ["eb:0.3", "none", "pool:2"])
        heights = sorted(float(text.get("y")) for text in names)
        self.assertTrue(all(b - a >= 15.9 for a, b in zip(heights, heights[1:])), heights)

    def test_long_series_have_their_means_over_them(self):
        """Faint values behind, and a line that wanders less in front, near them; short series are as they are."""
        for title, drawing in self.figures(self.make("ordinary")).items():
            if drawing is None:
                continue
            classes = [path.get("class").split() for path in self.lines(drawing)]
            self.assertEqual(sum("faint" in c for c in classes), 3 if title == "Training loss" else 0, title)
            if title != "Training loss":
                continue
            paths = [path_pieces(path.get("d")) for path in self.lines(drawing)]
            for values, means in zip(paths[0::2], paths[1::2]):
                length = [sum(abs(b[1] - a[1]) for a, b in zip(p[0], p[0][1:])) for p in (values, means)]
                self.assertLess(length[1], 0.5 * length[0])
                self.assertLess(abs(values[0][-1][1] - means[0][-1][1]), 20)

    def test_points_tell_their_values(self):
        drawing = self.figures(self.make("ordinary"))["Accuracy on the evaluation split"]
        self.assertIn("pool:2: 79.3 at 5", [circle.find("title").text for circle in drawing.iter("circle")])

    def test_many_series_have_a_legend(self):
        text = self.make("odd")
        figure = re.search(r"<figure id=\"figure-\d+\">\s*<figcaption><span>\d+</span>a legend.*?</figure>", text, re.S)
        self.assertEqual(figure.group().count("<li>"), 12)


class Bars(Case):
    def test_parts_are_proportional(self):
        drawing = self.figures(self.make("odd"))["odd bars"]
        widths = {}
        for bar in drawing.iter("g"):
            if bar.get("class") == "bar":
                widths[bar.find("text").text] = [float(r.get("width")) for r in bar.iter("rect")]
        unit = widths["plain"][0] / 3
        for name, expected in (("part", [4, 1]), ("part > value", [2, 2]), ("<i>&", [1, 0.5]), ("negative", [2]),
                               ("not a number", []), ("infinite", [])):
            self.assertEqual(len(widths[name]), len(expected), name)
            for width, value in zip(widths[name], expected):
                self.assertAlmostEqual(width, value * unit, delta=0.2, msg=name)

    def test_a_deep_network_is_one_picture(self):
        drawing = self.figures(self.make("ordinary"))["The same for a deep network"]
        self.assertEqual(len([g for g in drawing.iter("g") if g.get("class") == "bar"]), 150)
        self.assertLess(float(drawing.get("viewBox").split()[3]), 2000)


class Pictures(Case):
    def test_they_are_in_the_page(self):
        """Pixel by pixel; names and texts are escaped; nothing else is loaded."""
        text = self.make("pictures")
        page = self.parse(text)
        sources = re.findall(r'\bsrc="([^"]*)"', text)
        self.assertEqual((len(sources), page.tags.count("img")), (7, 7))
        self.assertNotRegex(text, r"(?i)https?:|<link|<script|@import|url\(|\bhref=")
        shown = [images.read_png(base64.b64decode(s.removeprefix("data:image/png;base64,"), validate=True))
                 for s in sources]
        self.assertEqual(shown[4:], shown[:3])
        for side, (width, height, pixels) in zip((6, 7, 8), shown):
            self.assertEqual((width, height), (side, side))
            for p, pixel in enumerate(pixels):
                self.assertEqual(pixel, (p % side, p // side, p % side + p // side, 255 if p else 0))
        width, height, pixels = shown[3]
        self.assertEqual((width, height, pixels), (5, 4, [(12 * p, 0, 0) for p in range(20)]))
        words = "".join(page.words)
        for word in ("one & two", "three", "<first>", "5x4", "some <text>", "<b>a & b", "indices"):
            self.assertIn(word, words)
        self.assertEqual(sorted(self.figures(text)), ["with names", "without names"])


class Files(Case):
    def test_a_report_given_up_leaves_nothing(self):
        self.assertEqual(self.probe("abandon").returncode, 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_report_replaces_an_older_one_only_when_it_is_whole(self):
        path = os.path.join(self.folder, "r.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write("old")
        self.probe("abandon")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        self.assertNotEqual(self.make("ordinary"), "old")

    def test_it_cannot_be_written(self):
        os.mkdir(os.path.join(self.folder, "folder"))
        for name in ("missing/r.html", "folder", "x" * 5000):
            done = self.probe("ordinary", name)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr.decode(), r"\Acomet: [^\n]+\n\Z")
        self.assertEqual(os.listdir(self.folder), ["folder"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_a_device_is_not_replaced(self):
        done = subprocess.run([PROBE, "ordinary", "/dev/full"], stderr=subprocess.PIPE, check=False, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"not a regular file", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROBE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
