#!/usr/bin/env python3
"""Turns README.md's C++ blocks into a doctest program, so that they compile and run.

    snippets.py README.md OUT.cpp

Each ```cpp block becomes a test case: a whole program through its main(), which must return 0, any
other block as a function body. Includes are dropped: the program has them all.
"""
import re
import sys

source, target = sys.argv[1:]
text = open(source, encoding="utf-8").read()
out = ["#include <doctest/doctest.h>", "#include <fmt/core.h>", "#include <softtape/eigen.hpp>",
       "#include <softtape/softtape.hpp>", "using namespace softtape;", ""]
count = 0
for match in re.finditer(r"^```cpp\n(.*?)^```$", text, re.M | re.S):
    line = text.count("\n", 0, match.start()) + 2
    block = "\n".join(l for l in match[1].split("\n") if not l.startswith("#include"))
    count += 1
    out += [f"namespace readme_{line} {{", f'#line {line} "README.md"']
    if "int main() {" in block:
        out += [block.replace("int main() {", "int program() {"),
                f'TEST_CASE("README.md line {line}") {{ CHECK(program() == 0); }}']
    else:
        out += [f'TEST_CASE("README.md line {line}") {{', block, "}"]
    out += ["}", ""]
if count == 0:
    sys.exit(f"{source} has no C++ blocks")
with open(target, "w", encoding="utf-8") as f:
    f.write("\n".join(out))
