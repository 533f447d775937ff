"""Where programs are found, and which version counts."""

import shutil
import subprocess
from pathlib import Path

import pytest
from leeway_standalone.binaries import ALL, BinaryError, catalog, ensure, find, nft
from leeway_standalone.binaries.cache import binaries_directory, cache_root
from leeway_standalone.binaries.catalog import BINARIES, build_key


class Recorder:
    """A report that remembers how each program ended."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}

    def step(self, name: str, note: str, done: int = 0, total: int | None = None) -> None:
        pass

    def finish(self, name: str, note: str) -> None:
        self.ends[name] = note


def write_program(directory: Path, name: str, says: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_assets_are_taken_whatever_their_version_and_the_version_is_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = write_program(home / "assets", "kubectl", "Client Version: v1.30.1")
    write_program(binaries_directory(), "kubectl", "cached")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(home / "assets"))
    report = Recorder()
    assert ensure(["kubectl"], progress=report) == {"kubectl": kubectl}
    assert report.ends == {"kubectl": "1.30.1 from KUBEBUILDER_ASSETS"}


def test_assets_that_are_no_directory_are_a_mistake_to_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/nowhere")
    with pytest.raises(BinaryError, match="KUBEBUILDER_ASSETS is '/nowhere', which is no directory"):
        find("kubectl")


@pytest.mark.parametrize("name", sorted(set(BINARIES) - {"leeway-streaming"}))
def test_on_path_only_the_pinned_version_counts(home: Path, name: str) -> None:
    pinned = BINARIES[name].version
    write_program(home / "bin", name, f"{name} v{pinned}0")
    assert find(name) is None
    path = write_program(home / "bin", name, f"{name}: v{pinned} (go1.99.9)")
    assert find(name) == path


def test_a_program_on_path_that_does_not_run_is_passed_over(home: Path) -> None:
    write_program(home / "bin", "kubectl", "").write_text("#!/nowhere\n")
    assert find("kubectl") is None


def test_the_cache_is_found_without_asking(home: Path) -> None:
    cached = write_program(binaries_directory(), "etcd", "no version")
    assert find("etcd") == cached


def test_a_relative_cache_home_is_ignored_as_its_specification_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == Path.home() / ".cache" / "leeway"


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BinaryError, match=r"'kubctl': there are .*kubectl.*nft"):
        find("kubctl")


def test_the_pins_give_versions_as_programs_write_them() -> None:
    assert set(ALL) == {*BINARIES, "nft"}
    for name, binary in BINARIES.items():
        if name != "leeway-streaming":
            assert binary.version is not None
            assert binary.version.count(".") == 2
    assert not str(BINARIES["prometheus"].version).startswith("0.")


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "coredns/main.go", "streaming/main.go"])
def test_the_cache_is_another_when_a_pin_or_own_code_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    before = build_key()
    copy = home / "module"
    shutil.copytree(catalog.MODULE, copy)
    monkeypatch.setattr(catalog, "MODULE", copy)
    assert build_key() == before
    (copy / changed).write_text((copy / changed).read_text() + "// changed\n")
    assert build_key() != before


def test_nft_is_asked_for_where_it_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "_SYSTEM_DIRECTORIES", ())
    with pytest.raises(BinaryError, match="install your distribution's package `nftables`"):
        ensure(["nft"], progress=Recorder())


def test_nft_is_found_outside_the_path_of_a_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_program(home / "sbin", "nft", "nftables v1.0.6")
    monkeypatch.setattr(nft, "_SYSTEM_DIRECTORIES", (str(home / "sbin"),))
    assert find("nft") == path


def test_nft_is_found_unpacked_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "_SYSTEM_DIRECTORIES", ())
    assert find("nft") is None
    wrapper = write_program(cache_root() / "nftables" / "unpacked", "nft", "nftables v1.0.6")
    assert find("nft") == wrapper


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="the system's packages are not Debian's")
@pytest.mark.parametrize("user", [0, 1000], ids=["installed by root", "unpacked by a user"])
def test_nft_is_provided_by_the_distributions_package(
    user: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt is a stand-in that has one package and notes how it is called; dpkg is the real one."""
    package, tools, system = tmp_path / "package", tmp_path / "tools", tmp_path / "sbin"
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    write_program(package / "usr/sbin", "nft", "nftables v1.0.6")
    (package / "DEBIAN").mkdir()
    control = (
        "Package: nftables\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: nft\n"
    )
    (package / "DEBIAN/control").write_text(control)
    subprocess.run(
        ("dpkg-deb", "--build", str(package), str(tmp_path / "nftables.deb")), check=True, capture_output=True
    )
    tools.mkdir()
    apt = f'echo "$*" >> {tmp_path}/calls; case "$*" in *install*) cp -r {package}/usr/sbin {system};; '
    for name, script in {
        "apt-get": f"{apt}download*) cp {tmp_path}/nftables.deb .;; esac",
        "apt-cache": "echo nftables",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setattr(nft, "_SYSTEM_DIRECTORIES", (str(system),))
    monkeypatch.setattr("os.geteuid", lambda: user)
    found = ensure(["nft"], progress=Recorder())["nft"]
    assert found == (cache_root() / "nftables/unpacked/nft" if user else system / "nft")
    said = subprocess.run((found, "--version"), capture_output=True, text=True, check=True).stdout
    assert "nftables v1.0.6" in said
    calls = (tmp_path / "calls").read_text()
    assert calls.startswith("update\n")
    assert ("install -y --no-install-recommends nftables" in calls) == (user == 0)
