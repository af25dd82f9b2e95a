# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, and differences with their intervals, for the results of bench/."""
import math
import statistics

# Student's t for 95 %, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def table(title, columns, rows):
    if rows:
        print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for row in rows:
            print(f"| {' | '.join(str(cell) for cell in row)} |")


def interval(differences, digits):
    """The mean of paired differences and its 95 % interval."""
    if len(differences) < 2:
        return f"{differences[0]:+.{digits}f}" if differences else ""
    mean = statistics.mean(differences)
    half = T95[len(differences) - 1] * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{mean:+.{digits}f} ({mean - half:+.{digits}f} to {mean + half:+.{digits}f})"
