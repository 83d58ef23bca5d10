"""A ReportView put into words: what stands on which page, in what order."""

from reports.pages.whole import document

__all__ = ["document"]
