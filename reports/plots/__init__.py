"""The report's pictures: SVG text that is the same, byte for byte, whenever it is drawn from the same values.

Arms differ in colour, marker and line width; steps in line style; places in hatching: all are readable in grey.
Estimates and limits are drawn as verdict.json states them.
"""

from reports.plots.ecdf import ttft_ecdf
from reports.plots.history import intervals
from reports.plots.order import order
from reports.plots.paired import paired
from reports.plots.served import served
from reports.plots.throughput import throughput

__all__ = ["intervals", "order", "paired", "served", "throughput", "ttft_ecdf"]
