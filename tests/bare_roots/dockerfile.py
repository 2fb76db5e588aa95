"""Builds the image of a Dockerfile without docker, in folders that scripts/bare_root makes, and
runs its CMD.

    dockerfile.py SOURCE_DIR DOCKERFILE WORK_DIR NAME=VALUE…

Knows what ours uses: ARG, FROM debian:… [AS name], WORKDIR, COPY [--from=name], RUN, USER and CMD.
NAME=VALUE as --build-arg.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

RELEASES = {"trixie", "bookworm"}


class Stage:
    def __init__(self, script, release, folder):
        subprocess.run([script, "make", release, folder], check=True)
        self.script, self.folder = script, folder
        shutil.rmtree(folder / "lockstep")  # the image has what is copied
        (folder / "lockstep").mkdir()
        self.directory, self.user, self.arguments = "/", "root", {}

    def path(self, name):
        return self.folder / str(pathlib.PurePosixPath(self.directory) / name).lstrip("/")

    def run(self, command):
        settings = "".join(f"export {name}={value}; " for name, value in self.arguments.items())
        line = f"cd {self.directory} && {settings}{command}"
        words = ["sh", "-c", line] if self.user == "root" else ["su", self.user, "-c", line]
        return subprocess.run([self.script, "enter", self.folder, *words], check=True)


def copy(source, target, into_folder):
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        target = target / source.name if into_folder else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def build(root, dockerfile, work, given):
    script = root / "scripts" / "bare_root"
    stages, stage, outer = {}, None, {}
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, words = line.split(None, 1)
        print("==", line[:150], flush=True)
        if name == "ARG":
            key, _, value = words.partition("=")
            (stage.arguments if stage else outer)[key] = given.get(key, value)
        elif name == "FROM":
            for key, value in outer.items():
                words = words.replace("${" + key + "}", value)
            release, _, label = words.removeprefix("debian:").partition(" AS ")
            if release not in RELEASES:
                raise SystemExit(f"{dockerfile}: a base that cannot be made here: {words}")
            label = label or "last"
            stage = stages[label] = Stage(script, release, work / label)
        elif name == "WORKDIR":
            stage.directory = words
            stage.path(".").mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            words = words.split()
            origin = root
            if words[0].startswith("--from="):
                origin = stages[words.pop(0).removeprefix("--from=")].folder
            for source in words[:-1]:
                if source == ".":  # tracked files that the .dockerignore admits
                    names = [
                        line[1:] for line in dockerfile.with_name(
                            "Dockerfile.dockerignore").read_text().split() if line.startswith("!")
                    ]
                    files = subprocess.run(["git", "-C", root, "archive", "HEAD", *names],
                                           check=True, capture_output=True).stdout
                    subprocess.run(["tar", "-x", "-C", stage.path(words[-1])], input=files,
                                   check=True)
                else:
                    copy(origin / source.lstrip("/"), stage.path(words[-1]),
                         words[-1].endswith("/"))
        elif name == "RUN":
            stage.run(words)
        elif name == "USER":
            stage.user = words
        elif name == "CMD":
            stage.run(" ".join(json.loads(words)))
        else:
            raise SystemExit(f"{dockerfile}: an instruction that is not known here: {line}")
    return stage


def main():
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("skipped: needs root and debootstrap")
        sys.exit(77)
    root, dockerfile, work = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    shutil.rmtree(work, ignore_errors=True)
    image = build(root, dockerfile, work, dict(word.split("=", 1) for word in sys.argv[4:]))
    image.run(
        "lockstep train --checkpoint-dir none --model mlp --data synthetic:8x8x1,4,640 "
        "--global-batch 32 --epochs 1"
    )
    shutil.rmtree(work)


main()
