"""The real thing on three hosts: ``ray up``, jobs by ``ray job submit``, results fetched, ``ray down``.

A host is a network namespace with an address and an sshd of its own, its own processes, its own ``/tmp`` and its own
changes to the home folder; a fourth, the desk, is the user's machine. The cluster is what ``cluster.yaml`` says, except
for addresses, key, and how raysim is installed. Needs root, and says what else is missing (exit code 77).

    python tests/cluster/multi_host.py
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SKIPPED = 77
TOOLS = ("ip", "unshare", "nsenter", "mount", "sshd", "ssh", "ssh-keygen", "rsync", "hostname")
NET = "198.18.77"  # addresses set aside for testing between networks (RFC 2544)
HOSTS = ("head", "worker1", "worker2")
ADDRESSES = {"desk": f"{NET}.1", "head": f"{NET}.10", "worker1": f"{NET}.11", "worker2": f"{NET}.12"}
PORT = 18265
SETTINGS = ["training.rounds=4", "data.hospitals=40", "data.rows=4000", "tracking.uri=none", "strategy=chip"]
SETTINGS += ["resources.head_start=false"]  # every round crosses the network
SETTINGS += ["model=mlp", "model.hidden=[64,32]"]  # its sums are large enough to be added up on their nodes

HOST_SCRIPT = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/host /run/own /run/work
cp {work}/{name}/* {work}/key.pub {work}/key /run/host/
mount -t overlay overlay -o lowerdir={home},upperdir=/run/own,workdir=/run/work {home}
rm -rf {home}/.ray {home}/ray_bootstrap* {home}/runs
mkdir -p {home}/.cache/raysim
mount -t tmpfs tmpfs {home}/.cache/raysim
# A shell that starts here runs nothing of this machine's user: a version manager's stale lock held each for a minute.
for file in .bashrc .bash_profile .bash_login .profile; do : > {home}/$file; done
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp
mount -t tmpfs -o size=1g tmpfs /dev/shm
ip link set lo up
hostname {name}
touch {work}/{name}/ready
if [ {name} != desk ]; then $(command -v sshd) -D -e -f /run/host/sshd_config & fi
sleep infinity & wait
"""

SSHD_CONFIG = """
ListenAddress {address}
HostKey /run/host/host_key
AuthorizedKeysFile /run/host/key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
PidFile none
"""


def main() -> int:
    """Run everything; prints a line for each thing that was seen to be true."""
    if missing := _missing():
        print(f"skipped: {missing}")
        return SKIPPED
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="raysim-hosts-", dir="/var/tmp"))
    try:
        with _hosts(work) as hosts:
            try:
                _scenario(hosts, work)
            except (AssertionError, subprocess.TimeoutExpired):
                print(_logs(hosts["head"]), file=sys.stderr)
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"all as it should be, in {time.monotonic() - began:.0f} s")
    return 0


def _missing() -> str:
    """Why hosts cannot be made here, or nothing."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if absent := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"not installed: {', '.join(absent)} (Debian: iproute2 util-linux openssh-server rsync hostname)"
    addresses = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True).stdout
    if f" {NET}." in addresses:
        return f"addresses {NET}.* are in use"
    # What the hosts are made of, tried out.
    trial = (
        "mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b && "
        f"mount -t overlay overlay -o lowerdir={Path.home()},upperdir=/mnt/a,workdir=/mnt/b {Path.home()}"
    )
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--uts", "bash", "-c", trial],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return f"namespaces are not permitted ({' '.join((done.stderr or done.stdout).split())[:200]})"
    return ""


class Host:
    """A running host: commands run inside it."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid

    def command(self, arguments: Sequence[str], **environment: str) -> list[str]:
        """``arguments`` as a command line that runs inside."""
        settings = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
        settings["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        settings |= {"HOME": str(Path.home()), "TERM": "dumb"} | environment
        entry = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--uts", f"--wdns={ROOT}"]
        return [*entry, "env", "-i", *(f"{key}={value}" for key, value in settings.items()), *arguments]

    def run(
        self, *arguments: str, seconds: float = 600, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            self.command(arguments, **environment), capture_output=True, text=True, timeout=seconds, errors="replace"
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}$ {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def processes(self, name: str) -> list[str]:
        """Lines of ``ps`` on this host that contain ``name``."""
        return [line for line in self.run("ps", "-eo", "pid,args").stdout.splitlines() if name in line]


@contextlib.contextmanager
def _hosts(work: Path) -> Iterator[dict[str, Host]]:
    """Hosts on one switch; everything is gone afterwards."""
    bridge = f"rsim{os.getpid() % 10_000}"
    spaces = {name: f"{bridge}-{name}" for name in ADDRESSES}
    processes: list[subprocess.Popen[bytes]] = []
    # A terminated script must clean up as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _shell(f"ssh-keygen -q -t ed25519 -N '' -f {work}/key")
    try:
        _shell(f"ip link add {bridge} type bridge && ip link set {bridge} up")
        for i, (name, space) in enumerate(spaces.items()):
            inside = f"ip -n {space}"
            _shell(
                f"ip netns add {space} && ip link add {bridge}v{i} type veth peer name eth0 netns {space} && "
                f"ip link set {bridge}v{i} master {bridge} up && {inside} address add {ADDRESSES[name]}/24 dev eth0 && "
                f"{inside} link set eth0 up && {inside} route add default via {ADDRESSES['desk'][:-1]}254"
            )
            folder = work / name
            folder.mkdir()
            _shell(f"ssh-keygen -q -t ed25519 -N '' -f {folder}/host_key")
            (folder / "sshd_config").write_text(SSHD_CONFIG.format(address=ADDRESSES[name]))
            script = HOST_SCRIPT.format(work=work, name=name, home=Path.home())
            isolated = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "bash", "-c", script]
            log = (work / f"{name}.log").open("wb")
            processes.append(subprocess.Popen(["ip", "netns", "exec", space, *isolated], stdout=log, stderr=log))
        hosts = {name: _entered(name, process, work) for name, process in zip(ADDRESSES, processes, strict=True)}
        yield hosts
    finally:
        # Each host's first process takes all others with it.
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        for i, space in enumerate(spaces.values()):
            _shell(f"ip link delete {bridge}v{i} 2>/dev/null; ip netns delete {space} 2>/dev/null || true")
        _shell(f"ip link delete {bridge} 2>/dev/null || true")


def _entered(name: str, process: subprocess.Popen[bytes], work: Path) -> Host:
    for _ in range(6000):
        if process.poll() is not None:
            raise AssertionError(f"{name} did not start: {(work / f'{name}.log').read_text()}")
        if (work / name / "ready").exists():
            # The first process inside is the only child of unshare, which is what `ip` has become.
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return Host(name, int(children[0]))
        time.sleep(0.1)
    raise AssertionError(f"{name} was not ready after 10 minutes: {(work / f'{name}.log').read_text()}")


def _logs(head: Host) -> str:
    """The end of what the autoscaler wrote, which starts the workers."""
    return head.run("bash", "-c", "tail -n 60 /tmp/ray/session_latest/logs/monitor.*", check=False).stdout


def _shell(line: str) -> None:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{line}\n{done.stderr}")


def derived(work: Path) -> dict[str, Any]:
    """``cluster.yaml`` for these hosts: addresses, key, and raysim installed by a link to what is installed here."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    config["provider"] |= {"head_ip": ADDRESSES["head"], "worker_ips": [ADDRESSES[name] for name in HOSTS[1:]]}
    config["auth"] = {"ssh_user": "root", "ssh_private_key": "/run/host/key"}
    commands = [line for line in config["setup_commands"] if "python3 -m venv" not in line and "pip" not in line]
    config["setup_commands"] = [*commands, f"ln -sfn {Path(sys.executable).parents[1]} ~/raysim/.venv"]
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        config[key][-1] += " --object-store-memory=200000000"
    # Workers end when the head has been gone for a minute; that minute is not what is tested.
    worker = config["worker_start_ray_commands"]
    worker[-1] = f"export RAY_gcs_rpc_server_reconnect_timeout_s=5; {worker[-1]}"
    return config


def _scenario(hosts: dict[str, Host], work: Path) -> None:
    desk, head = hosts["desk"], hosts["head"]
    config = work / "cluster.yaml"
    config.write_text(yaml.safe_dump(derived(work)))
    desk.run("ray", "get-auth-token", "--generate")
    began = time.monotonic()
    desk.run("ray", "up", str(config), "--yes", "--no-config-cache", "--disable-usage-stats")
    _wait_for_nodes(head, len(HOSTS))
    _say(f"ray up: {len(HOSTS)} hosts joined, {time.monotonic() - began:.0f} s")
    _listens_on_loopback(head)
    dashboard = subprocess.Popen(
        desk.command(["ray", "dashboard", str(config), "--port", str(PORT), "--remote-port", "8265"]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _jobs(hosts, work, config)
    finally:
        dashboard.kill()
        dashboard.wait()
    desk.run("ray", "down", str(config), "--yes")
    for _ in range(600):
        if not any(left := [name for name in HOSTS if hosts[name].processes("raylet/raylet")]):
            break
        time.sleep(0.5)
    assert not left, f"a raylet is left on {left}"
    _say("ray down: no raylet is left on any host")


def _jobs(hosts: dict[str, Host], work: Path, config: Path) -> None:
    desk, head = hosts["desk"], hosts["head"]
    refused = desk.run("ray", "job", "list", "--address", f"http://127.0.0.1:{PORT}", check=False, RAY_AUTH_TOKEN="no")
    assert refused.returncode, "the dashboard took a wrong token"
    alone = work / "alone"
    desk.run("raysim", *_run(alone), "--in-process")

    _submit(desk, _run("~/runs/shipped"), says="6 actors on 3 nodes")
    listed = json.loads(desk.run("ray", "list", "actors", "--format=json", *_dashboard()).stdout)
    homes = {actor["node_id"] for actor in listed if actor["class_name"] == "HospitalActor"}
    assert len(homes) == len(HOSTS), listed
    desk.run("ray", "rsync-down", str(config), "~/runs/shipped/", f"{work}/shipped/")
    _say(f"hospitals on {len(homes)} nodes, rows shipped: {_compared(alone, work / 'shipped')}")

    adding = ["ray", "list", "tasks", "--format=json", "--filter", "name=HospitalActor.added", *_dashboard()]
    sums = len(json.loads(desk.run(*adding).stdout))
    assert sums, "no actor has added up the sums of its node"
    _say(f"sums added up on their nodes {sums} times")

    cache = f"RAYSIM_CACHE={work}/cache"
    _submit(desk, _run("~/runs/shared", "resources.data=shared"), cache, says="on 3 nodes")
    desk.run("ray", "rsync-down", str(config), "~/runs/shared/", f"{work}/shared/")
    _say(f"rows read from a shared folder: {_compared(alone, work / 'shared')}")

    _refused(head, "shared data that workers cannot read", "resources.data: shared, but", "resources.data=shared")
    _refused(head, "more CPUs than any node has", "resources.cpus_per_actor", "resources.cpus_per_actor=5")
    _refused(head, "a wrong token", "refuses this machine's token", RAY_AUTH_TOKEN="0" * 32)
    shutil.copy(ROOT / "raysim" / "core" / "registry.py", work / "registry.py")
    with (work / "registry.py").open("a") as file:
        file.write("# another version\n")
    hosts["worker2"].run("mount", "--bind", f"{work}/registry.py", str(ROOT / "raysim" / "core" / "registry.py"))
    _refused(head, "other code on one node", f"on node {ADDRESSES['worker2']}")


def _run(out: Path | str, *settings: str) -> list[str]:
    options = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    return ["run", str(ROOT / "experiments" / "chip_paper.yaml"), *options, "--out", str(out)]


def _dashboard() -> list[str]:
    return ["--address", f"http://127.0.0.1:{PORT}"]


def _submit(desk: Host, arguments: list[str], *settings: str, says: str) -> None:
    line = " ".join([*settings, "raysim", *arguments])
    done = desk.run("ray", "job", "submit", *_dashboard(), "--", "bash", "-c", f"cd ~ && {line}")
    assert says in done.stdout, done.stdout


def _refused(head: Host, what: str, message: str, *settings: str, **environment: str) -> None:
    """A run on the cluster that must end with exit code 2 and, after lines of progress, one that says why."""
    began = time.monotonic()
    address = f"{ADDRESSES['head']}:6379"
    done = head.run("raysim", *_run("/tmp/refused", *settings), check=False, RAY_ADDRESS=address, **environment)
    seconds = time.monotonic() - began
    assert done.returncode == 2, done.stdout + done.stderr
    *progress, said = done.stderr.strip().splitlines()
    assert not any(line.startswith(("raysim: ", "Traceback", " ")) for line in progress), done.stderr
    assert said.startswith("raysim: "), done.stderr
    assert message in said, done.stderr
    _say(f"{what}: refused in {seconds:.0f} s: {said}")


def _wait_for_nodes(head: Host, count: int) -> None:
    program = (
        "import time, ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR')\n"
        f"while sum(node['Alive'] for node in ray.nodes()) < {count}: time.sleep(0.5)"
    )
    head.run("python", "-c", program, seconds=600)


def _listens_on_loopback(head: Host) -> None:
    """The dashboard must not be reached from another host."""
    sockets = head.run("ss", "-Hltn").stdout.splitlines()
    listening = [line.split()[3] for line in sockets if line.split()[3].endswith(":8265")]
    assert listening == ["127.0.0.1:8265"], sockets


def _compared(one: Path, other: Path) -> str:
    """Raises unless two runs' models and figures are equal to 1e-6; says how large the largest difference is."""
    import numpy as np
    from safetensors.numpy import load_file

    models, theirs = load_file(one / "models.safetensors"), load_file(other / "models.safetensors")
    assert models.keys() == theirs.keys()
    worst = max(float(np.abs(models[name] - theirs[name]).max()) for name in models)
    for name in ("rounds.csv", "hospitals.csv"):
        ours, others = (list(csv.DictReader((folder / name).open())) for folder in (one, other))
        assert len(ours) == len(others)
        for row, second in zip(ours, others, strict=True):
            for column in row.keys() - {"seconds"}:
                with contextlib.suppress(ValueError):
                    worst = max(worst, abs(float(row[column] or 0) - float(second[column] or 0)))
    assert worst <= 1e-6, worst
    return f"{len(models)} tensors and two tables as on one machine, largest difference {worst:g}"


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
