"""What the kubelet asks for becomes a container's spec."""

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.container import CAPABILITIES
from leeway_standalone.cri.images import Image
from leeway_standalone.cri.record import ContainerSpec
from leeway_standalone.cri.specify import DEFAULT_CAPABILITIES, capabilities, niceness, specify, stop_signal

OWN = Image(entrypoint=["leeway"], env={"PATH": "/own", "A": "image"}, version="1")
names = st.sets(st.sampled_from([*CAPABILITIES, "ALL"]))


def request(**fields: object) -> cri.CreateContainerRequest:
    config = cri.ContainerConfig(command=["true"], image=cri.ImageSpec(image="x:1"), **fields)
    pod = cri.PodSandboxConfig(hostname="pod", log_directory="/logs")
    return cri.CreateContainerRequest(pod_sandbox_id="s", config=config, sandbox_config=pod)


@given(names, names)
def test_capabilities_follow_containerd(added: set[str], dropped: set[str]) -> None:
    result = capabilities(cri.Capability(add_capabilities=added, drop_capabilities=dropped))
    assert added - {"ALL"} <= result <= set(CAPABILITIES)
    assert not (dropped - added) & result
    if not added | dropped:
        assert result == DEFAULT_CAPABILITIES
    if "ALL" in dropped:
        assert result == added - {"ALL"}


def test_capability_may_be_written_with_its_prefix() -> None:
    assert "CHOWN" not in capabilities(cri.Capability(drop_capabilities=["CAP_CHOWN"]))


@pytest.mark.parametrize("name", cri.Signal.keys())
def test_every_stop_signal_has_a_number(name: str) -> None:
    number = stop_signal(cri.Signal.Value(name))
    assert 0 < number <= signal.SIGRTMAX
    if hasattr(signal, name):
        assert number == getattr(signal, name)


def test_real_time_signals_count_from_their_ends() -> None:
    assert stop_signal(cri.SIGRTMINPLUS3) == signal.SIGRTMIN + 3
    assert stop_signal(cri.SIGRTMAXMINUS2) == signal.SIGRTMAX - 2
    assert stop_signal(cri.RUNTIME_DEFAULT) == signal.SIGTERM


def test_user_is_the_pods_then_the_images_then_root() -> None:
    asked = request()
    assert (specify("c", asked, Image()).uid, specify("c", asked, Image()).gid) == (0, 0)
    assert (specify("c", asked, OWN).uid, specify("c", asked, OWN).gid) == (65532, 65532)
    asked.config.linux.security_context.run_as_user.value = 0
    assert (specify("c", asked, OWN).uid, specify("c", asked, OWN).gid) == (0, 0)
    asked.config.linux.security_context.run_as_group.value = 7
    assert (specify("c", asked, OWN).uid, specify("c", asked, OWN).gid) == (0, 7)


def test_containers_variables_win_over_the_images() -> None:
    env = specify("c", request(envs=[cri.KeyValue(key="A", value=b"own")]), OWN).env
    assert env == {"PATH": "/own", "A": "own", "HOME": "/", "HOSTNAME": "pod"}


def test_outer_mounts_come_before_inner_ones() -> None:
    mounts = [cri.Mount(container_path=path, host_path="/h") for path in ("/a/b/c", "/a/b", "/z", "/a")]
    targets = [mount.target for mount in specify("c", request(mounts=mounts), Image()).mounts]
    assert targets.index("/a") < targets.index("/a/b") < targets.index("/a/b/c")


def test_system_calls_are_filtered_only_where_asked() -> None:
    asked = request()
    assert not specify("c", asked, Image()).filter_system_calls
    asked.config.linux.security_context.seccomp.profile_type = cri.SecurityProfile.RuntimeDefault
    assert specify("c", asked, Image()).filter_system_calls


@pytest.mark.parametrize(
    ("cpu_shares", "expected"), [(0, 0), (2, 19), (51, 13), (102, 10), (512, 3), (1024, 0), (8192, 0)]
)
def test_who_requests_less_of_a_processor_stands_back_more(cpu_shares: int, expected: int) -> None:
    assert niceness(cpu_shares) == expected


def test_spec_reads_back_as_written(tmp_path: Path) -> None:
    value = b"not \xff text"
    asked = request(envs=[cri.KeyValue(key="A", value=value)], mounts=[cri.Mount(container_path="/a", host_path="/h")])
    spec = specify("c", asked, OWN)
    spec.write(tmp_path)
    assert ContainerSpec.read(tmp_path) == spec
