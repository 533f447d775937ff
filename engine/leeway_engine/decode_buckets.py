"""Sizes of batches for which decodes are recorded; smaller batches are padded up to the next one."""

from bisect import bisect_left

SMALL = (1, 2, 4, 8)
STEP = 16


def bucket_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes for up to `most` decodes, rising: a bigger step would compute more padding."""
    return (*(size for size in SMALL if size < most), *range(STEP, most, STEP), most)


def graph_path(bucket: int) -> str:
    """Return what the metrics call an iteration that a recording of so many decodes ran."""
    return f"graph-{bucket}"


def bucket_of(decodes: int, sizes: tuple[int, ...]) -> int | None:
    """Return the smallest of the rising sizes that holds so many decodes, or None."""
    place = bisect_left(sizes, decodes)
    return sizes[place] if decodes and place < len(sizes) else None
