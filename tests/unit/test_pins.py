"""The pinned requirement files agree, carry hashes, and name no address."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "requirements"


def pins(name: str) -> set[str]:
    return set(re.findall(r"^[\w.-]+==[^\\\n]+", (FOLDER / name).read_text(), re.MULTILINE))


def test_the_image_has_what_the_tests_ran_on() -> None:
    assert "torch" in {pin.split("==")[0] for pin in pins("image.txt")}
    assert pins("image.txt") <= pins("dev.txt")


def test_each_pin_has_hashes_and_no_file_an_address() -> None:
    files = sorted(FOLDER.glob("*.txt"))
    assert len(files) >= 4
    for file in files:
        text = file.read_text()
        assert "://" not in text
        assert re.findall(r"^[\w.-]+==[^\\\n]+$", text, re.MULTILINE) == []
