"""The part of the client that converts and hands out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from registry.client.later import later

if TYPE_CHECKING:
    from registry.service import convert, export, sync
    from registry.service.context import Context
    from registry.service.export import Form
    from registry.service.handed import Conversion, Synced
    from registry.service.results import Exported
    from registry.service.sync import Watcher
    from registry.service.wishes import Wish
else:
    convert, export, sync = later("registry.service", "convert export sync")


class Handing:
    """Conversions, exports and synchronised directories."""

    context: Context

    def convert(self, ref: str, wish: Wish) -> Conversion:
        """Make another adapter of one and record how."""
        return convert.convert(self.context, ref, wish)

    def export(
        self,
        ref: str,
        directory: Path,
        form: Form,
        *,
        named: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Exported:
        """Write a directory that servers load."""
        del progress
        return export.export(self.context, ref, directory, form, named=named)

    def ensure(self, ref: str, folder: Path, form: Form) -> Exported:
        """The directory of a reference inside `folder`, written unless it is there."""
        return export.ensure(self.context, ref, folder, form)

    def sync(self, channel: str, folder: Path, form: Form, *, progress: Callable[[int], None] | None = None) -> Synced:
        """Make `folder/live` the live generation of a channel."""
        del progress
        return sync.sync(sync.Stored(self.context), channel, folder, form)

    def watch(
        self, channel: str, folder: Path, form: Form, watcher: Watcher, stop: Event, interval_s: float = 2.0
    ) -> None:
        """Sync again and again until `stop` is set."""
        sync.watch(sync.Stored(self.context), channel, folder, form, watcher, stop, interval_s)
