"""How often the gate is wrong: its rule, simulated on truths that are known.

`p_pass` answers for one truth; `python -m gates oc` prints tables, draws a picture and writes docs/decision.md.
"""

from gates.oc.noise import Noise
from gates.oc.residuals import Residuals
from gates.oc.simulation import (
    DEFAULT_PRECISION,
    R2_GAINS,
    R2_RATIOS,
    Outcome,
    Requirement,
    compared,
    p_pass,
    requirements,
    simulate,
)

__all__ = [
    "DEFAULT_PRECISION",
    "R2_GAINS",
    "R2_RATIOS",
    "Noise",
    "Outcome",
    "Requirement",
    "Residuals",
    "compared",
    "p_pass",
    "requirements",
    "simulate",
]
