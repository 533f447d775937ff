"""`leeway binaries`."""


def binaries() -> None:
    """Build what `leeway up` needs and this machine lacks, and say where each binary is."""
    from leeway_standalone import console

    console.binaries()
