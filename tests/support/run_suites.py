"""Runs the test programs of one build folder and counts their cases.

    run_suites.py BUILD [--filter PATTERN] [--built] [--tally FILE]

The programs are those that meson knows; two run at a time. A program of meson suite `doctest`
counts by the cases in its last line, any other one by its exit code. One that crashes, hangs, leaks
or ends without that line counts as a failure of its own, so does a case that is skipped. To the
tally file goes one line `PASSED FAILED` for each program. Exit code 0 when something passed and
nothing failed, 3 when something failed and was counted.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

SUMMARY = re.compile(
    r"^\[doctest\] test cases: +(\d+) +\| +(\d+) passed +\| +(\d+) failed +\| +(\d+) skipped", re.M)
SHOWN_LINES = 120
AT_A_TIME = 2


def known_tests(build):
    output = subprocess.run(["meson", "introspect", "--tests", build],
                            check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def run(test, pattern):
    """Returns the exit code (None after a timeout), everything the program printed, and seconds."""
    start = time.monotonic()
    command = list(test["cmd"])
    if pattern is not None:
        command.append("--test-case=" + pattern)
    try:
        done = subprocess.run(command, env={**os.environ, **test["env"]}, cwd=test["workdir"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=test["timeout"] or None)
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = None, late.stdout or b""
    except OSError as error:
        code, output = 127, str(error).encode()
    return code, output.decode(errors="replace"), time.monotonic() - start


def count(test, code, output, filtered):
    """Returns passed, failed and a remark for what no test case stands for."""
    if not is_doctest(test):
        return (1, 0, "") if code == 0 else (0, 1, f"exit code {code}")
    if code is None:
        return 0, 1, f"no end after {test['timeout']} s"
    summary = SUMMARY.search(output)
    if summary is None:
        return 0, 1, f"died: signal {-code}" if code < 0 else f"died: exit code {code}"
    _, passed, failed, skipped = map(int, summary.groups())
    if code != 0 and failed == 0:
        return passed, 1, f"exit code {code} after its last case"
    if not filtered:
        if skipped > 0:
            return passed, failed + skipped, f"{skipped} skipped"
        if passed + failed == 0:
            return 0, 1, "holds no test case"
    return passed, failed, ""


def is_doctest(test):
    return any(suite.split(":")[-1] == "doctest" for suite in test["suite"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--filter", help="run only doctest cases whose name matches")
    parser.add_argument("--built", action="store_true", help="leave out programs that are not built")
    parser.add_argument("--tally", help="file to append the counts to")
    arguments = parser.parse_args()

    tests = known_tests(arguments.build)
    if arguments.filter is not None:
        tests = [test for test in tests if is_doctest(test)]
    if arguments.built:
        tests = [test for test in tests if os.path.exists(test["cmd"][0])]
    counts = []
    pool = ThreadPoolExecutor(AT_A_TIME)
    results = pool.map(lambda test: run(test, arguments.filter), tests)
    for test, (code, output, seconds) in zip(tests, results):
        passed, failed, remark = count(test, code, output, arguments.filter is not None)
        counts.append((passed, failed))
        if passed + failed > 0:
            print(f"  {'FAILED' if failed else 'ok':<6}  {test['name']}: {passed} passed, "
                  f"{failed} failed{', ' + remark if remark else ''} ({seconds:.1f} s)")
        if failed:
            print("\n".join(output.splitlines()[-SHOWN_LINES:]))
        sys.stdout.flush()
    if sum(passed + failed for passed, failed in counts) == 0:
        print("  FAILED  no test case ran")
        counts.append((0, 1))
    if arguments.tally:
        with open(arguments.tally, "a", encoding="utf-8") as tally:
            tally.writelines(f"{passed} {failed}\n" for passed, failed in counts)
    return 3 if any(failed for _, failed in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
