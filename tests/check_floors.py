"""Fails where an include runs upwards: a file may use its own floor and those below it, no others.

    check_floors.py [ROOT] [--self-test]

Reads include/softtape/FLOOR/ and src/FLOOR/. Besides the floors it holds three rules about what a
user's program sees: public headers include neither private ones nor Eigen, and nothing includes
softtape.hpp or eigen.hpp, which are for users.
"""

import argparse
import pathlib
import re
import sys
import tempfile

# From the bottom up. A new floor is one name here.
FLOORS = ["base", "graph", "ops", "attention", "nn", "optim", "study", "io", "train", "report"]

# Headers that belong to no floor; eigen.hpp is where Eigen types meet tensors.
BELOW_ALL_FLOORS = {"version.hpp"}
FOR_USERS = {"softtape.hpp", "eigen.hpp"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SOURCES = {".hpp", ".cpp", ".inc", ".h"}


def included_files(root, path):
    """Yields (name as written, file it means) for each include that means one of ours."""
    for mark, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        places = [root / "include", root / "src"]
        if mark == '"':
            places.insert(0, path.parent)
        if name == "softtape/version.hpp":
            yield name, root / "include" / name  # made by the build
            continue
        for place in places:
            file = (place / name).resolve()
            if file.is_file():
                yield name, file
                break


def split(root, path):
    """Returns (is public, floor folder or None, file name)."""
    public = path.is_relative_to(root / "include" / "softtape")
    base = root / "include" / "softtape" if public else root / "src"
    parts = path.relative_to(base).parts
    return public, parts[0] if len(parts) > 1 else None, parts[-1]


def problems(root):
    """Returns the number of files read and a list of complaints."""
    root = root.resolve()
    files = sorted(path for top in ("include/softtape", "src") for path in (root / top).rglob("*")
                   if path.suffix in SOURCES)
    found = []
    for path in files:
        shown = path.relative_to(root)
        public, floor, name = split(root, path)
        if floor is not None and floor not in FLOORS:
            found.append(f"{shown}: '{floor}' is not in the list of floors")
            continue
        if floor is None and not (public and name in FOR_USERS):
            found.append(f"{shown}: belongs into the folder of a floor")
            continue
        if public and name != "eigen.hpp" and re.search(r"#\s*include\s*<(Eigen|unsupported/Eigen)/",
                                                        path.read_text(encoding="utf-8")):
            found.append(f"{shown}: a public header must not include Eigen")
        for written, target in included_files(root, path):
            if not (target.is_relative_to(root / "include") or
                    target.is_relative_to(root / "src")):
                found.append(f"{shown}: includes {written}, which is not part of the library")
                continue
            target_public, target_floor, target_name = split(root, target)
            if public and not target_public:
                found.append(f"{shown}: a public header must not include the private {written}")
            if target_floor is None:
                if target_name in FOR_USERS and (floor is not None or target_name == "eigen.hpp"):
                    found.append(f"{shown}: includes {written}, which is for users only")
                elif target_name not in FOR_USERS | BELOW_ALL_FLOORS:
                    found.append(f"{shown}: includes {written}, which belongs to no floor")
            elif target_floor not in FLOORS:
                found.append(f"{shown}: includes {written}, which is on no known floor")
            elif floor is not None and FLOORS.index(target_floor) > FLOORS.index(floor):
                found.append(f"{shown}: '{floor}' must not include {written} from the higher floor "
                             f"'{target_floor}'")
    return len(files), found


def self_test():
    """Plants one breach of each rule in a small tree and returns those that were missed."""
    tree = {
        "include/softtape/softtape.hpp": '#include "softtape/ops/good.hpp"\n',
        "include/softtape/eigen.hpp": "#include <Eigen/Core>\n#include <softtape/base/good.hpp>\n",
        "include/softtape/base/good.hpp": "#include <vector>\n#include <softtape/version.hpp>\n",
        "include/softtape/ops/good.hpp": '#include "softtape/base/good.hpp"\n',
        "src/graph/good.hpp": "#include <Eigen/Core>\n#include <softtape/base/good.hpp>\n",
        "src/ops/good.cpp": '#include "softtape/ops/good.hpp"\n#include "graph/good.hpp"\n',
    }
    breaches = {
        "include/softtape/base/up.hpp": '#include "softtape/ops/good.hpp"\n',
        "include/softtape/ops/private.hpp": '#include "graph/good.hpp"\n',
        "include/softtape/ops/eigen_inside.hpp": "#  include <Eigen/Dense>\n",
        "src/base/up.cpp": '#include "graph/good.hpp"\n',
        "src/base/relative.cpp": '#include "../graph/good.hpp"\n',
        "src/graph/umbrella.cpp": "#include <softtape/softtape.hpp>\n",
        "src/lost.cpp": "int lost;\n",
        "src/attic/unknown_floor.cpp": "int unknown;\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()

        def write(name, text):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")

        for name, text in tree.items():
            write(name, text)
        missed = [f"false alarm: {problem}" for problem in problems(root)[1]]
        for name, text in breaches.items():
            write(name, text)
            if not any(problem.startswith(name + ":") for problem in problems(root)[1]):
                missed.append(f"not noticed: {name}")
            (root / name).unlink()
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true", help="check the checker instead")
    arguments = parser.parse_args()
    if arguments.self_test:
        complaints = self_test()
    else:
        count, complaints = problems(arguments.root)
        if count == 0:
            complaints.append(f"no source file under {arguments.root}")
        print(f"{count} files read")
    print("\n".join(complaints) if complaints else "nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
