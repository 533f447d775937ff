"""Runs a program for which changes of a file's owner succeed without effect: `ownerless PROGRAM ARGUMENTS…`.

It is for the kubelet, which gives tokens to the user in `runAsUser`, and volumes to the group in `fsGroup`. Where one
user is mapped alone, that fails; and it is not needed, since a container runs as the owner of its volumes under any
number.
"""

import os
import sys

from leeway_standalone.cri.seccomp import ownership_filter
from leeway_standalone.linux import filter_system_calls

if __name__ == "__main__":
    filter_system_calls(ownership_filter())
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - it becomes its command
