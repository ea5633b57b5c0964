"""Base and adapter directories in, adapter directories out: the only room that knows other programs' keys.

`base` and each producer's folder (`peft` first) hold one grammar; what they share (safe directories, strict
safetensors, streaming scans, the checks of an adapter against its base) lies beside them. A directory that is not
wholly understood is refused by naming the key, field or file.
"""

from registry.formats.ahead import read_many
from registry.formats.base.read import read_base
from registry.formats.peft.write import write_peft
from registry.formats.plain import write_plain
from registry.formats.read import read_adapter
from registry.formats.reader import Refusal
from registry.formats.readings import (
    AdapterReading,
    BaseReading,
    Evidence,
    FileReading,
    Note,
    TensorLocation,
)

__all__ = [
    "AdapterReading",
    "BaseReading",
    "Evidence",
    "FileReading",
    "Note",
    "Refusal",
    "TensorLocation",
    "read_adapter",
    "read_base",
    "read_many",
    "write_peft",
    "write_plain",
]
