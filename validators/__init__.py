"""Whether things fit: pure functions from manifests to findings and a decision. No I/O, no torch."""

from validators.codes import CODES, CodeRecord, explain, problem_of
from validators.contract import judge_adapter, judged_by_form
from validators.decision import RULES_VERSION, decide
from validators.errors import CodeUnknownError, CouldNotCheckError
from validators.rules.family import refused_form

__all__ = [
    "CODES",
    "RULES_VERSION",
    "CodeRecord",
    "CodeUnknownError",
    "CouldNotCheckError",
    "decide",
    "explain",
    "judge_adapter",
    "judged_by_form",
    "problem_of",
    "refused_form",
]
