#!/usr/bin/env python3
"""Runs an example and compares what it prints with the output in its header comment.

    check_headers.py PROGRAM SOURCE.cpp [--write]

The output stands after a line `// Prints:`, indented by four spaces more than the comment. Line
breaks and runs of blanks do not count, so that long lines can be broken. A number may differ by one
unit of its last digit, or stay below 1e-10. After `// Prints, with other times:` numbers before
`ms` are not compared. --write puts the present output there instead.
Exit code 0 when they agree and the program ends with 0.
"""
import re
import subprocess
import sys
import textwrap

NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")
MARK = re.compile(r"^// Prints(, with other times)?:\n//\n((?://(?:     .*)?\n)*)", re.M)


def unit(number):
    """One unit of the last digit."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def same(a, b):
    if a == b:
        return True
    if not (NUMBER.fullmatch(a) and NUMBER.fullmatch(b)):
        return False
    x, y = float(a), float(b)
    return abs(x - y) <= 1.001 * max(unit(a), unit(b)) and ("." in a or "e" in a) or max(
        abs(x), abs(y)) < 1e-10 and x * y != 0


def tokens(text, times):
    if times:
        text = re.sub(r"[\d.]+(?= ms)", "some", text)
    return re.findall(NUMBER.pattern + r"|[A-Za-z_]+|\S", text)


def header(output):
    lines = []
    for line in output.rstrip("\n").split("\n"):
        indent = re.match(" *", line)[0]
        lines += textwrap.wrap(line, 92, subsequent_indent=indent + "    ", drop_whitespace=True,
                               break_on_hyphens=False) if len(line) > 92 else [line.rstrip()]
    return "".join(f"//     {line}".rstrip() + "\n" for line in lines)


def main():
    program, source = sys.argv[1:3]
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}:\n{done.stdout}")
    with open(source, encoding="utf-8") as file:
        text = file.read()
    found = MARK.search(text)
    if not found:
        sys.exit(f"{source}: no line `// Prints:` followed by an empty comment line")
    if "--write" in sys.argv:
        with open(source, "w", encoding="utf-8") as file:
            file.write(text[:found.start(2)] + header(done.stdout) + text[found.end(2):])
        return
    if text.count("\n") > 120:
        sys.exit(f"{source}: {text.count(chr(10))} lines; a lesson has at most 120")
    want = tokens(re.sub(r"^//", "", found[2], flags=re.M), found[1])
    got = tokens(done.stdout, found[1])
    for i, (a, b) in enumerate(zip(want + [""], got + [""])):
        if not same(a, b):
            print(f"{source}: the header says `{' '.join(want[max(0, i - 8):i + 4])}`")
            print(f"{program} prints `{' '.join(got[max(0, i - 8):i + 4])}`")
            sys.exit(1)
    print(f"{len(got)} words and numbers agree")


if __name__ == "__main__":
    main()
