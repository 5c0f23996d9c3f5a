"""`make install`: the program with its engines in one folder, which needs neither the checkout nor what was fetched for it,
and may be moved.

What is right: the answers are those of the program that was built; files are opened in the folder and in the system's only,
by what the dynamic linker itself says of them (LD_DEBUG)."""
import json
import os
import re
import shutil
import subprocess

import libcli
from libcli import BUILD, EXACT, FOLDER, case, main, modeld, refused

PREFIX = os.path.join(FOLDER, "prefix")
MOVED = os.path.join(FOLDER, "moved elsewhere")
RUN = ("run", "-m", EXACT, "-p", "installed", "--raw", "-n", "6", "--temp", "0")
ENGINES = [e["name"] for e in json.loads(modeld("doctor", "--json").out)["engines"]]
BUILT = {name: modeld(*RUN, "--engine", name).out for name in ENGINES}

subprocess.run(["cmake", "--install", BUILD, "--prefix", PREFIX], check=True, stdout=subprocess.DEVNULL)


def installed(prefix, *args, **more):
    built = libcli.MODELD
    libcli.MODELD = prefix + "/bin/modeld"
    try:
        return modeld(*args, **more)
    finally:
        libcli.MODELD = built


def stands_alone(prefix):
    """All that is loaded or looked for is in the folder, or the system's."""
    for name in ENGINES:
        r = installed(prefix, *RUN, "--engine", name, env={"LD_DEBUG": "libs"})
        assert r.code == 0 and r.out == BUILT[name] != b"", (name, r)
        paths = set(re.findall(r"(?:calling init: |trying file=)(/.*)", r.err))
        ours = [p for p in paths if p.startswith(prefix + "/")]
        assert any(("openvino" if name == "openvino" else "llama") in p for p in ours), (name, paths)
        for path in paths - set(ours):
            assert re.match(r"(/usr)?/lib", path), (name, path)


@case
def it_stands_alone():
    stands_alone(PREFIX)
    found = json.loads(installed(PREFIX, "doctor", "--json").out)["engines"]
    assert [(e["name"], e["works"]) for e in found] == [(name, True) for name in ENGINES], found


@case
def no_file_of_it_names_a_folder_to_look_in():
    """What the linker is told: $ORIGIN and what stands beside it."""
    for folder, _, names in os.walk(PREFIX):
        for name in names:
            said = subprocess.run(["readelf", "-d", os.path.join(folder, name)], capture_output=True).stdout.decode()
            for path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", said):
                assert all(p.startswith("$ORIGIN") for p in path.split(":") if p), (name, path)


@case
def licences_come_along():
    for name in ["LICENSE", "LICENSE.yyjson"] + (["openvino"] if "openvino" in ENGINES else []):
        assert os.path.exists(PREFIX + "/share/doc/modeld/" + name), name


@case
def it_may_be_moved():
    os.rename(PREFIX, MOVED)
    stands_alone(MOVED)
    if "openvino" in ENGINES:
        os.remove(MOVED + "/lib/modeld/libopenvino_gguf_frontend.so.2641")
        r = installed(MOVED, *RUN, "--engine", "openvino")
        refused(r, 1, "cannot be loaded", "libopenvino_gguf_frontend.so.2641", "use the engine 'llama'")
        assert installed(MOVED, *RUN).out == BUILT["llama"]
    shutil.rmtree(MOVED)


main()
