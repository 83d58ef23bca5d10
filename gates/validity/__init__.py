"""Can a trial, can a run be trusted? Checked without looking at the outcome.

Each breach says what was expected and what was found. Whose fault it is decides what it does: the candidate's own is a
FAIL, any other makes the trial (or, found in the run as a whole, the run) INVALID.
"""

from gates.validity.bounded import unbounded
from gates.validity.breach import Breach
from gates.validity.kept import unfinished
from gates.validity.outputs import check_outputs
from gates.validity.trial import check_trial
from gates.validity.whole import check_run

__all__ = ["Breach", "check_outputs", "check_run", "check_trial", "unbounded", "unfinished"]
