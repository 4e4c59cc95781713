"""Update modules/*/go.mod and go.sum after a change of pins.toml.

go finds what the programs need, and checks each sum with the checksum database as its client
is configured. Only this program changes the sums: a build refuses others.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bundle_pins import Build, Module, Pins, read_pins
from go_programs import copy_main, go_environment


def main() -> None:
    """Pin the modules named on the command line, or all."""
    pins = read_pins()
    for module in pins.modules:
        if not sys.argv[1:] or module.name in sys.argv[1:]:
            print(f"pin: {module.name}", file=sys.stderr)
            _pin(pins, module)


def _pin(pins: Pins, module: Module) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "go.mod").write_text(f"module hybridlab.test/bundle/{module.name}\n")
        (folder / "go.sum").write_text("".join(f"{line}\n" for line in module.sums))
        (folder / "go.mod").write_text(_go_mod(module, folder))
        for path in module.folder.glob("*.go"):
            shutil.copyfile(path, folder / path.name)
        if module.copies:
            theirs = _downloaded(module.requires[0], folder)
            copy_main(module, folder, Path(theirs["Dir"]))
        # not `go mod tidy`: it also needs the tests of all requirements
        for build in pins.builds:
            if build.module == module:
                _ask(build, folder)
        module.folder.mkdir(parents=True, exist_ok=True)
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(folder / name, module.folder / name)


def _ask(build: Build, folder: Path) -> None:
    """Let go record the versions and sums that ``build`` needs."""
    test = ["-test"] if build.test else []
    command = ["go", "list", "-mod=mod", "-deps", *test, f"-tags={build.tags}", *build.packages]
    quiet = subprocess.DEVNULL
    subprocess.run(command, cwd=folder, check=True, env=go_environment(build), stdout=quiet)


def _go_mod(module: Module, folder: Path) -> str:
    """Text of a go.mod before ``go mod tidy``."""
    theirs = [_their_go_mod(require, folder) for require in module.requires]
    version = max((their["Go"] for their in theirs), key=lambda v: [int(n) for n in v.split(".")])
    lines = [f"module hybridlab.test/bundle/{module.name}", "", f"go {version}", ""]
    lines += [
        f"godebug {d['Key']}={d['Value']}" for their in theirs for d in their["Godebug"] or ()
    ]
    lines += ["require {} {}".format(*require.split("@")) for require in module.requires]
    if module.staging:
        replaced = [r["Old"]["Path"] for their in theirs for r in their["Replace"] or ()]
        staged = sorted(path for path in set(replaced) if path.startswith("k8s.io/"))
        required = {
            r["Path"]
            for their in theirs
            for r in their["Require"] or ()
            if r["Version"] == "v0.0.0"
        }
        lines += [f"require {path} {module.staging}" for path in staged if path in required]
        lines += [f"replace {path} => {path} {module.staging}" for path in staged]
    return "\n".join(lines) + "\n"


def _their_go_mod(required: str, folder: Path) -> dict:
    """Return the required module's own go.mod, as ``go mod edit -json`` prints it."""
    document = _json(["go", "mod", "edit", "-json", _downloaded(required, folder)["GoMod"]], folder)
    return {"Godebug": None} | document


def _downloaded(required: str, folder: Path) -> dict:
    """The folder of the required module; its sum must match the go.sum in ``folder``, if any."""
    return _json(["go", "mod", "download", "-json", required], folder)


def _json(command: list[str], folder: Path) -> dict:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=folder)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
