"""Whether variants of low-rank adaptation may be stacked: from the axes of a stack to its compatibility vector."""

from validators.stacks.decision import decide_stack
from validators.stacks.names import WORDS, parse_stack

__all__ = ["WORDS", "decide_stack", "parse_stack"]
