"""The CRI runtime without a kubelet: what a pod's author relies on, as root and as an ordinary user."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cri_node import Node, Pod, eventually, interpreter_for, running_node
from leeway_standalone.cri import api_pb2 as cri

NOBODY = 65534
USERS = {"root": 0, "nobody": NOBODY} if os.getuid() == 0 else {"self": os.getuid()}


@pytest.fixture(scope="module", params=USERS.values(), ids=USERS.keys())
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    interpreter = interpreter_for(request.param)
    if interpreter is None:
        pytest.skip("no Python of this version, or none of this code, is open to another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        Path(root).chmod(0o755)
        with running_node(Path(root), request.param, interpreter) as running:
            yield running


@pytest.fixture
def pod(node: Node) -> Iterator[Pod]:
    pod = node.run_pod()
    yield pod
    pod.remove()


@pytest.fixture
def volume(node: Node) -> Path:
    """A directory of the node's user."""
    path = Path(tempfile.mkdtemp(dir=node.root))
    os.chown(path, node.root.stat().st_uid, node.root.stat().st_gid)
    return path


def restricted(config: cri.ContainerConfig) -> None:
    """All that Pod Security `restricted` asks for, and a read-only root."""
    security = config.linux.security_context
    security.run_as_user.value, security.run_as_group.value = 1234, 77
    security.no_new_privs = security.readonly_rootfs = True
    security.capabilities.drop_capabilities.append("ALL")
    security.seccomp.profile_type = cri.SecurityProfile.RuntimeDefault


def with_memory(limit: int):
    def change(config: cri.ContainerConfig) -> None:
        config.linux.resources.memory_limit_in_bytes = limit

    return change


def test_who_requests_a_tenth_of_a_processor_stands_back(pod: Pod) -> None:
    def change(config: cri.ContainerConfig) -> None:
        config.linux.resources.cpu_shares = 102

    says = pod.output("sh", "-c", "cat /proc/self/autogroup 2>/dev/null || nice", change=change)
    assert says.split()[-1] == "10"


def test_command_runs_alone_under_the_pods_name(pod: Pod) -> None:
    says = pod.output(
        "sh", "-c", "hostname; echo $HOSTNAME; ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '"
    )
    assert says.splitlines()[:2] == ["pod", "pod"]
    assert int(says.splitlines()[2]) <= 4
    assert says.splitlines()[3].startswith("sh -c")


def test_no_descriptor_of_the_runtime_is_handed_down(pod: Pod) -> None:
    look = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')[:-1]])"
    container = pod.start("sh", "-c", f'python3 -c "{look}"; sleep 100')
    container.wait_for("]")
    for says in (container.text(), container.execute("python3", "-c", look).stdout.decode()):
        descriptors = eval(says)
        assert descriptors[0] == "/dev/null"
        assert all(each.startswith("pipe:") for each in descriptors[1:])
        assert len(descriptors) == 3


def test_rest_of_the_machine_is_not_visible(pod: Pod) -> None:
    says = pod.output(
        "sh", "-c", "ls /; echo; ls /root /home /run /tmp /dev; ls /proc/self/fd | wc -l; cat /etc/shadow"
    )
    roots = set(says.splitlines()[: says.splitlines().index("")])
    assert roots <= {
        *("bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc"),
        *("root", "run", "sbin", "sys", "tmp", "usr", "var"),
    }
    assert str(Path(__file__)) not in says
    assert "vda" not in says
    assert "/etc/shadow: No such file" in says


def test_programs_of_the_machine_are_read_only_and_the_rest_is_not(pod: Pod) -> None:
    says = pod.output(
        "sh", "-c", "touch /usr/x /sys/x; touch /proc/sys/kernel/x; echo a > /x; echo b > /tmp/y; cat /x /tmp/y"
    )
    assert says.count("Read-only file system") >= 2
    assert says.endswith("a\nb")


def test_names_are_resolved_as_the_pod_asks(pod: Pod) -> None:
    says = pod.output("cat", "/etc/resolv.conf", "/etc/hosts")
    assert "nameserver 10.96.0.10\nsearch svc.cluster.local\noptions ndots:5" in says
    assert f"{pod.status.network.ip} pod" in says


def test_restricted_container_is_its_user_without_rights(pod: Pod) -> None:
    script = """
        id -u; id -g; id -un; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
        touch /x /tmp/x; mount -t tmpfs none /mnt; unshare --user true; python3 -c 'import threading as t
x = t.Thread(target=print, args=("thread",)); x.start(); x.join()'
    """
    says = pod.output("sh", "-c", script, change=restricted)
    assert says.splitlines()[:3] == ["1234", "77", "container"]
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in says
    assert says.count("Read-only file system") == 2
    assert "unshare failed: Operation not permitted" in says
    assert "thread" in says


def test_capabilities_are_containerds_less_the_dropped_with_the_added(pod: Pod) -> None:
    def change(config: cri.ContainerConfig) -> None:
        config.linux.security_context.capabilities.add_capabilities.append("NET_ADMIN")
        config.linux.security_context.capabilities.drop_capabilities.append("CHOWN")

    says = pod.output("grep", "CapEff", "/proc/self/status", change=change)
    assert int(says.split()[1], 16) == 0xA80425FB & ~1 | 1 << 12


def test_containers_user_owns_its_volumes(pod: Pod, volume: Path) -> None:
    def change(config: cri.ContainerConfig) -> None:
        restricted(config)
        config.mounts.add(host_path=str(volume), container_path="/data")

    assert pod.output("sh", "-c", "echo hi > /data/x; stat -c '%u %g' /data/x", change=change) == "1234 77"
    assert (volume / "x").read_text() == "hi\n"


def test_mounts_are_read_only_where_asked_and_files_can_be_mounted(pod: Pod, volume: Path) -> None:
    (volume / "sub").mkdir()
    (volume / "sub" / "file").write_text("content")

    def change(config: cri.ContainerConfig) -> None:
        # The inner one is given first; it must still lie in the outer one.
        config.mounts.add(host_path=str(volume / "sub" / "file"), container_path="/data/inner/file")
        config.mounts.add(host_path=str(volume), container_path="/data", readonly=True, recursive_read_only=True)
        (volume / "inner").mkdir()
        (volume / "inner" / "file").touch()

    says = pod.output(
        "sh", "-c", "cat /data/inner/file; echo; touch /data/x; touch /dev/termination-log", change=change
    )
    assert says.startswith("content")
    assert "'/data/x': Read-only file system" in says


def test_later_mounts_of_the_node_show_up_where_asked(pod: Pod, node: Node, volume: Path) -> None:
    (volume / "later").mkdir()
    (volume / "later" / "before").touch()

    def change(config: cri.ContainerConfig) -> None:
        config.mounts.add(host_path=str(volume), container_path="/own")
        receives = cri.PROPAGATION_HOST_TO_CONTAINER
        config.mounts.add(host_path=str(volume), container_path="/live", propagation=receives)

    container = pod.start("sleep", "100", change=change)
    node.inside("mount", str(volume / "later"))
    assert container.execute("ls", "/live/later").stdout == b""
    assert container.execute("ls", "/own/later").stdout == b"before\n"
    container.stop()


def test_sysctls_are_the_pods_own(node: Node) -> None:
    wanted = {"net.ipv4.tcp_keepalive_time": "123", "kernel.shm_rmid_forced": "1"}
    pod = node.run_pod("tuned", lambda config: config.linux.sysctls.update(wanted))
    files = [f"/proc/sys/{name.replace('.', '/')}" for name in wanted]
    assert pod.output("cat", *files).split() == ["123", "1"]
    pod.remove()
    before = node.inside("left")
    with pytest.raises(grpc.RpcError, match="No such file or directory: /proc/sys/net/none"):
        node.run_pod("mistuned", lambda config: config.linux.sysctls.update({"net.none": "1"}))
    assert node.inside("left") == before


def test_users_other_than_root_may_bind_low_ports(pod: Pod) -> None:
    bind = "import socket; print(socket.create_server(('', 80)).getsockname()[1])"
    assert pod.output("python3", "-c", bind, change=restricted) == "80"


def test_mount_into_the_machines_own_directory_says_where_else(pod: Pod, volume: Path) -> None:
    container = pod.create(
        "true", change=lambda config: config.mounts.add(host_path=str(volume), container_path="/usr/nowhere")
    )
    with pytest.raises(
        grpc.RpcError, match=r"mountPath lies in a directory of the machine itself.*elsewhere: /usr/nowhere"
    ):
        container.start()


def test_exit_codes_and_reasons(pod: Pod) -> None:
    ends = {
        "exit 0": (0, "Completed"),
        "exit 3": (3, "Error"),
        "kill -KILL $$": (137, "Error"),
    }
    for script, expected in ends.items():
        # The first process of a PID namespace cannot be killed from within, so a child stands for it.
        status = pod.start("sh", "-c", f"sh -c '{script}'; exit $?").wait()
        assert (status.exit_code, status.reason) == expected
        assert status.created_at <= status.started_at <= status.finished_at


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nonesuch", 'exec: "nonesuch": executable file not found in \\$PATH'),
        ("/non/such", 'exec: "/non/such": no such file or directory'),
        ("/etc/passwd", 'exec: "/etc/passwd": Permission denied'),
    ],
)
def test_command_that_cannot_be_executed_is_a_start_error(pod: Pod, command: str, message: str) -> None:
    container = pod.create(command)
    with pytest.raises(grpc.RpcError, match=message):
        container.start()
    status = container.status
    assert (status.exit_code, status.reason) == (128, "StartError")
    assert command in status.message


def test_working_directory_is_made(pod: Pod) -> None:
    assert pod.output("pwd", change=lambda config: setattr(config, "working_dir", "/made/for/it")) == "/made/for/it"


def test_more_memory_than_the_limit_is_oom_killed(pod: Pod) -> None:
    hog = "import time; x = bytearray(120 << 20); time.sleep(60)"
    status = pod.start("python3", "-c", hog, change=with_memory(60 << 20)).wait()
    assert (status.exit_code, status.reason) == (137, "OOMKilled")
    assert status.finished_at - status.started_at < 5e9


def test_memory_shared_by_forked_processes_counts_once(pod: Pod) -> None:
    script = "import os, time; x = bytearray(40 << 20); [os.fork() for _ in range(2)]; time.sleep(2)"
    status = pod.start("python3", "-c", script, change=with_memory(100 << 20)).wait()
    assert status.reason == "Completed"


def test_raised_memory_limit_holds(pod: Pod, node: Node) -> None:
    script = "import time; time.sleep(1); x = bytearray(120 << 20); time.sleep(1)"
    container = pod.start("python3", "-c", script, change=with_memory(60 << 20))
    update = cri.UpdateContainerResourcesRequest(container_id=container.id)
    update.linux.memory_limit_in_bytes = 300 << 20
    node.runtime.UpdateContainerResources(update)
    assert container.wait().reason == "Completed"
    assert container.status.resources.linux.memory_limit_in_bytes == 300 << 20


def test_stop_asks_first_and_kills_after_the_grace_period(pod: Pod) -> None:
    trap = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    polite = pod.start("sh", "-c", trap)
    polite.wait_for("up")
    polite.stop(grace_s=10)
    assert polite.status.exit_code == 5
    assert polite.text().endswith("bye")
    deaf = pod.start("sh", "-c", "trap '' TERM; echo up; sleep 100 & sleep 100")
    deaf.wait_for("up")
    before = time.monotonic()
    deaf.stop(grace_s=1)
    assert 0.9 < time.monotonic() - before < 5
    assert (deaf.status.exit_code, deaf.status.reason) == (137, "Error")
    deaf.stop(grace_s=1)


def test_stop_signal_of_the_container(pod: Pod) -> None:
    trap = "trap 'exit 9' USR1; echo up; while :; do sleep 0.05; done"
    container = pod.start("sh", "-c", trap, change=lambda config: setattr(config, "stop_signal", cri.SIGUSR1))
    container.wait_for("up")
    container.stop(grace_s=10)
    assert container.status.exit_code == 9


def test_log_has_both_streams_and_goes_on_in_a_new_file_after_rotation(pod: Pod, node: Node) -> None:
    container = pod.start("sh", "-c", "echo out; echo err >&2; until [ -e /go ]; do sleep 0.05; done; printf end")
    container.wait_for("err")
    assert sorted(entry[1:] for entry in container.entries()) == [["stderr", "F", "err"], ["stdout", "F", "out"]]
    path = Path(container.status.log_path)
    path.rename(path.with_suffix(".old"))
    node.runtime.ReopenContainerLog(cri.ReopenContainerLogRequest(container_id=container.id))
    container.execute("touch", "/go")
    container.wait()
    assert [entry[1:] for entry in container.entries()] == [["stdout", "P", "end"]]


def test_exec_joins_the_container_as_its_user(pod: Pod) -> None:
    container = pod.start("sleep", "100", change=restricted)
    result = container.execute(
        "sh", "-c", "id -u; cat /proc/1/cmdline; grep CapBnd /proc/self/status; echo e >&2; exit 4"
    )
    assert result.exit_code == 4
    assert result.stdout.startswith(b"1234\nsleep\x00100")
    assert b"CapBnd:\t0000000000000000" in result.stdout
    assert result.stderr == b"e\n"
    with pytest.raises(grpc.RpcError, match="executable file not found"):
        container.execute("nonesuch")


def test_overdue_exec_leaves_no_process(pod: Pod) -> None:
    container = pod.start("sleep", "100")
    with pytest.raises(grpc.RpcError, match="timed out") as caught:
        container.execute("sh", "-c", "sleep 50 & sleep 50", timeout_s=1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # The first process of this container does not reap, so a killed one stays as a zombie.
    states = container.execute("sh", "-c", "cat /proc/[0-9]*/stat").stdout.decode().splitlines()
    alive = [state.split()[1] for state in states if state.split()[2] != "Z"]
    assert sorted(alive) == ["(sh)", "(sleep)"]


def test_exec_ends_with_its_command_though_a_child_holds_the_output(pod: Pod) -> None:
    container = pod.start("sleep", "100")
    assert container.execute("sh", "-c", "sleep 20 & echo done", timeout_s=10).stdout == b"done\n"


def test_pods_reach_each_other_and_their_loopback_is_their_own(pod: Pod, node: Node) -> None:
    serve = "import http.server as h; h.HTTPServer(('', 80), h.SimpleHTTPRequestHandler).serve_forever()"
    other = node.run_pod("other")
    server = other.start("python3", "-c", serve, change=restricted)
    fetch = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"
    eventually(lambda: server.execute("python3", "-c", fetch, "http://127.0.0.1").exit_code == 0)
    assert pod.output("python3", "-c", fetch, f"http://{other.status.network.ip}") == "200"
    assert "refused" in pod.output("python3", "-c", fetch, "http://127.0.0.1")
    request = "GET / HTTP/1.0\r\n\r\n"
    assert "200 OK" in node.inside("enter", "dial", other.id, "80", text=request)[1]
    assert "refused" in node.inside("enter", "dial", pod.id, "80", text=request)[2]
    other.remove()


def test_containers_of_a_pod_share_its_network_and_memory_files(pod: Pod) -> None:
    listen = "import socket; s = socket.create_server(('127.0.0.1', 8000)); open('/dev/shm/up', 'w'); s.accept()"
    pod.start("python3", "-c", listen)
    connect = """
import os, socket
while not os.path.exists("/dev/shm/up"):
    pass
socket.create_connection(("127.0.0.1", 8000))
"""
    assert pod.start("python3", "-c", connect).wait().exit_code == 0


def test_host_network_is_the_nodes(node: Node) -> None:
    def change(config: cri.PodSandboxConfig) -> None:
        config.linux.security_context.namespace_options.network = cri.NODE

    pod = node.run_pod("host", change)
    assert not pod.status.network.ip
    assert "10.244.0.1" in pod.output("python3", "-c", "print(open('/proc/net/fib_trie').read())")
    pod.remove()


def test_enter_runs_a_command_with_its_own_streams(pod: Pod, node: Node) -> None:
    container = pod.start("sleep", "100", change=restricted)
    assert node.inside("enter", "exec", container.id, "--", "sh", "-c", "cat; id -u; exit 6", text="in\n") == (
        6, "in\n1234\n", "",
    )  # fmt: skip
    code, _, error = node.inside("enter", "exec", container.id, "--", "nonesuch")
    assert code == 127
    assert "executable file not found" in error
    container.stop()
    assert "is not running" in node.inside("enter", "exec", container.id, "--", "true")[2]


def test_enter_hands_its_terminal_over(pod: Pod, node: Node) -> None:
    container = pod.start("sleep", "100")
    typed = "echo $TERM; stty echo < /dev/tty && echo ours; exit 7\r"
    code, said = node.inside("enter_terminal", container.id, "--tty", "--", "sh", text=typed)
    assert code == 7
    assert {"xterm", "ours"} <= set(said.split())


def test_own_image_is_its_environment(pod: Pod, node: Node) -> None:
    folder = Path(cri.__file__).parent.parent
    script = f"id -u; echo $FLAVOUR; test -e {folder / '__init__.py'} && echo there"
    assert pod.output(image="leeway:1.2.3", args=("more",)) == "entry more"
    assert pod.output("sh", "-c", script, image="leeway:1.2.3") == "65532\nown\nthere"
    spec = cri.ImageSpec(image="leeway:1.2.3")
    assert node.images.ImageStatus(cri.ImageStatusRequest(image=spec)).image.uid.value == 65532
    other = cri.ImageSpec(image="leeway:9")
    assert not node.images.ImageStatus(cri.ImageStatusRequest(image=other)).HasField("image")
    with pytest.raises(grpc.RpcError, match=r"version 1.2.3; use the tag 1.2.3"):
        node.images.PullImage(cri.PullImageRequest(image=other))


def test_container_without_command_says_why_it_cannot_be(pod: Pod) -> None:
    with pytest.raises(grpc.RpcError, match=r"image nginx:1: .* set command in the container"):
        pod.create(image="nginx:1")


def test_refused_fields_are_named(pod: Pod, node: Node) -> None:
    def change(config: cri.ContainerConfig) -> None:
        config.linux.security_context.privileged = config.tty = True

    with pytest.raises(grpc.RpcError, match=r"privileged: .*; stdin and tty"):
        pod.create("true", change=change)
    with pytest.raises(grpc.RpcError, match="hostPID"):
        node.run_pod("bad", lambda config: setattr(config.linux.security_context.namespace_options, "pid", cri.NODE))


def test_statistics_are_the_containers_own(pod: Pod, node: Node) -> None:
    burn = """
import time
x = bytearray(50 << 20)
open("/file", "wb").write(bytes(8 << 20))
while time.process_time() < 1:
    pass
print("burnt", flush=True)
time.sleep(60)
"""
    container = pod.start("python3", "-c", burn)
    container.wait_for("burnt")
    stats = node.runtime.ContainerStats(cri.ContainerStatsRequest(container_id=container.id)).stats
    assert 0.9e9 < stats.cpu.usage_core_nano_seconds.value < 3e9
    assert 50 << 20 < stats.memory.rss_bytes.value < 80 << 20
    assert stats.writable_layer.used_bytes.value >= 8 << 20
    of_pod = node.runtime.PodSandboxStats(cri.PodSandboxStatsRequest(pod_sandbox_id=pod.id)).stats.linux
    assert of_pod.memory.rss_bytes.value >= 50 << 20
    assert of_pod.process.process_count.value == 1
    assert of_pod.network.default_interface.name == "eth0"


def test_lists_are_filtered(pod: Pod, node: Node) -> None:
    container = pod.start("sleep", "100")
    pod.start("true").wait()
    running = cri.ContainerFilter(pod_sandbox_id=pod.id, state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
    listed = node.runtime.ListContainers(cri.ListContainersRequest(filter=running)).containers
    assert [each.id for each in listed] == [container.id]
    labelled = cri.PodSandboxFilter(label_selector={"app": "pod"})
    assert pod.id in [each.id for each in node.runtime.ListPodSandbox(cri.ListPodSandboxRequest(filter=labelled)).items]
    nothing = cri.PodSandboxFilter(label_selector={"app": "other"})
    assert not node.runtime.ListPodSandbox(cri.ListPodSandboxRequest(filter=nothing)).items


def test_removal_can_be_repeated_and_leaves_nothing(node: Node) -> None:
    before = node.inside("left")
    pod = node.run_pod("brief")
    container = pod.start("sh", "-c", "sleep 100 & setsid sleep 100 & sleep 100")
    pod.stop()
    pod.stop()
    assert pod.status.state == cri.SANDBOX_NOTREADY
    assert container.status.exit_code == 137
    pod.remove()
    pod.remove()
    container.remove()
    with pytest.raises(grpc.RpcError, match="not found"):
        _ = pod.status
    assert node.inside("left") == before
    records = list((node.root / "records").rglob("*.json"))
    assert not [path for path in records if pod.id in str(path) or container.id in str(path)]


def test_address_of_a_live_pod_is_given_to_no_other(node: Node) -> None:
    first, second = node.run_pod("first"), node.run_pod("second")
    assert first.status.network.ip != second.status.network.ip
    assert first.status.network.ip.startswith("10.244.")
    first.remove()
    second.remove()


def test_restarted_service_goes_on_with_what_runs(pod: Pod, node: Node) -> None:
    container = pod.start("sh", "-c", "until [ -e /go ]; do sleep 0.05; done; exit 7")
    node.inside("restart", "service")
    eventually(lambda: node.runtime.Version(cri.VersionRequest(), wait_for_ready=True))
    assert container.status.state == cri.CONTAINER_RUNNING
    assert pod.status.state == cri.SANDBOX_READY
    container.execute("touch", "/go")
    assert container.wait().exit_code == 7


def test_containers_end_with_the_keeper_and_are_reported_so(pod: Pod, node: Node) -> None:
    container = pod.start("sleep", "100")
    before = node.inside("left")[0]
    node.inside("restart", "keeper")
    assert container.status.exit_code == 137
    assert "keeper" in container.status.message
    assert node.inside("left")[0] == before - 1
    assert pod.output("echo", "again") == "again"
