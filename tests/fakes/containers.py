"""Stands in for docker: gives each container to bubblewrap, as far as cdd asks for it.

It shows that what cdd mounts and takes away holds programs in. It shows nothing about a real engine: its own seccomp
filter and cgroups, SELinux labels, or a server on another machine.
"""

import os
import resource
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_LIMITS = {
    "core": resource.RLIMIT_CORE,
    "cpu": resource.RLIMIT_CPU,
    "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}
_FLAGS = ("--rm", "--read-only")
_IMAGE = "cdd-sandbox:empty"


def install(folder: Path, *, bwrap: Path) -> Path:
    """Write an executable ``docker`` to ``folder``, which gives its containers to ``bwrap``."""
    program = folder / "docker"
    argv = [sys.executable, "-I", "-S", __file__, str(folder), str(bwrap)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
    program.chmod(0o755)
    return program


def _read_options(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options before the name of the image, which are removed from ``arguments`` with it."""
    while (option := arguments.pop(0)) != _IMAGE:
        yield option, "" if option in _FLAGS else arguments.pop(0)


def _run(arguments: list[str], *, folder: Path, bwrap: str) -> None:
    """Become a bubblewrap that runs the container."""
    mounts: dict[str, tuple[str, ...]] = {"/tmp": ("--tmpfs",)}
    argv = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    argv += ["--clearenv", "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/proc/sys", "/proc/sys"]
    last = []
    for option, value in _read_options(arguments):
        match option:
            case "--name":
                (folder / value).write_text(str(os.getpid()))
            case "--cap-drop":
                argv += ["--cap-drop", value]
            case "--network" if value == "none":
                argv += ["--unshare-net"]
            case "--tmpfs":
                mounts[value.partition(":")[0]] = ("--tmpfs",)
            case "--volume":
                source, shown, *mode = value.split(":")
                mounts[shown] = ("--ro-bind" if mode == ["ro"] else "--bind", source)
            case "--env":
                argv += ["--setenv", *value.split("=", 1)]
            case "--workdir":
                last += ["--chdir", value]
            case "--ulimit":
                name, most = value.split("=")
                resource.setrlimit(_LIMITS[name], (int(most), int(most)))
            case "--read-only":
                last += ["--remount-ro", "/"]
    # An engine mounts by depth too, whatever the order of the options.
    for shown in sorted(mounts, key=lambda path: path.count("/")):
        argv += [*mounts[shown], shown]
    os.execv(bwrap, [*argv, *last, "--", *arguments])


def main(folder: Path, bwrap: str, command: str, *arguments: str) -> None:
    """Do what the client of an engine does."""
    match command:
        case "version":
            sys.stdout.write("28.0\n")
        case "image" | "import":
            sys.stdout.write("[]\n")
        case "kill":
            os.kill(int((folder / arguments[0]).read_text()), signal.SIGKILL)
        case "run":
            _run([*arguments], folder=folder, bwrap=bwrap)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
