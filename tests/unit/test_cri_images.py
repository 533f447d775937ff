"""An image name means an environment of this machine."""

import json
from pathlib import Path

import pytest
from leeway_standalone.cri.images import IMAGE_UID, Image, ImageError, Images, full_command, split_reference

OWN = Image(entrypoint=["/bin/leeway"], binds=["/opt/leeway"], env={"A": "b"}, version="1.2.3")
IMAGES = Images({"registry.example:5000/leeway/leeway": OWN})


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("nginx", ("nginx", "latest")),
        ("nginx:1", ("nginx", "1")),
        ("host:5000/nginx", ("host:5000/nginx", "latest")),
        ("host:5000/nginx:1", ("host:5000/nginx", "1")),
        ("nginx:1@sha256:ab", ("nginx", "sha256:ab")),
        ("nginx@sha256:ab", ("nginx", "sha256:ab")),
    ],
)
def test_reference_is_split(reference: str, expected: tuple[str, str]) -> None:
    assert split_reference(reference) == expected


def test_known_image_has_one_version() -> None:
    assert IMAGES.find("registry.example:5000/leeway/leeway:1.2.3") is OWN
    for other in (":1.2.4", "", "@sha256:ab"):
        with pytest.raises(ImageError, match=r"use the tag 1\.2\.3"):
            IMAGES.find(f"registry.example:5000/leeway/leeway{other}")


def test_known_image_has_a_user_and_others_have_none() -> None:
    assert OWN.uid == IMAGE_UID
    assert IMAGES.find("nginx:1").uid is None


def test_command_and_args_are_as_in_kubernetes() -> None:
    assert full_command(OWN, "leeway", [], []) == ["/bin/leeway"]
    assert full_command(OWN, "leeway", [], ["up"]) == ["/bin/leeway", "up"]
    assert full_command(OWN, "leeway", ["sh"], ["-c"]) == ["sh", "-c"]
    assert full_command(Image(), "nginx", ["sh"], []) == ["sh"]
    with pytest.raises(ImageError, match=r"image nginx: .*set command in the container"):
        full_command(Image(), "nginx", [], ["-g"])


def test_images_are_read_from_json(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    file.write_text(json.dumps({"leeway": {"entrypoint": ["x"], "version": "1", "env": {}, "binds": []}}))
    assert Images.read(file).find("leeway:1").entrypoint == ["x"]
