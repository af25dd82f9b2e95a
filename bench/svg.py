# SPDX-License-Identifier: Apache-2.0
"""A drawing of a few kinds of marks, for the plots of bench/."""

INK, OURS, PEER, GRID = "#24292f", "#0969da", "#9aa4af", "#d8dee4"


class Svg:
    def __init__(self, width, height):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]

    def text(self, x, y, text, anchor="start", size=13, fill=INK, weight="normal"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}" '
            f'font-weight="{weight}" stroke="white" stroke-width="3" paint-order="stroke">{text}</text>')

    def bar(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" '
                          f'fill="{fill}"/>')

    def line(self, x1, y1, x2, y2, stroke=GRID):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"/>')

    def dot(self, x, y, fill, hollow, radius=4.5):
        inside = "white" if hollow else fill
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{inside}" stroke="{fill}" '
                          'stroke-width="1.5"/>')

    def end(self):
        return "\n".join(self.parts + ["</svg>", ""])
