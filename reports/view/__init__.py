"""A run's verdict and facts as the reports show them, in no language yet."""

from reports.view.load import load_view
from reports.view.model import VERDICTS, Estimate, Misfit, Origin, ReportView, Requirement

__all__ = ["VERDICTS", "Estimate", "Misfit", "Origin", "ReportView", "Requirement", "load_view"]
