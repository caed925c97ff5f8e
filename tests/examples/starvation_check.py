#!/usr/bin/env python3
"""Runs starvation in short mode: tables, report, threads, laws, Ctrl-C, full disks, bad input.

    starvation_check.py PROGRAM
"""
import csv
import html
import io
import json
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

program = str(pathlib.Path(sys.argv[1]).resolve())
failures = []
SHORT = ["--dk", 8, "--lr", 3, "--steps", 20, "--seeds", 2]
INIT = ("dk,T,scale,init_gain,seed,entropy,max_p,effective_keys,jacobian_mean,jacobian_median,"
        "row_ds_median,target_ds_median,target_starved,dead_keys,dead_keys_relative,noise_scale,"
        "grad_wq,grad_wk,grad_wv")
CURVES = "task,dk,T,scale,remedy,init_gain,optimizer,lr,lr_qk,seed,step,loss,accuracy"
SUMMARY = ("task,dk,T,scale,remedy,init_gain,optimizer,lr,lr_qk,seeds,step,reached_90,"
           "steps_to_90_median,loss_mean,loss_sd,accuracy_mean")


def check(holds, words):
    if not holds:
        failures.append(words)
        print("FAILED", words)


def run(*arguments, **keywords):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, **keywords)


def expect(code, *arguments, **keywords):
    """Runs with an expected exit code; an error must be one line on stderr and nothing else."""
    done = run(*arguments, **keywords)
    name = " ".join(map(str, arguments))
    check(done.returncode == code, f"{name}: exit code {done.returncode}, not {code}: {done.stderr}")
    if code in (2, 3):
        one_line = done.stderr.startswith("starvation: ") and done.stderr.count("\n") == 1
        check(one_line, f"{name}: not one clear line: {done.stderr!r}")
    return done


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def header(path):
    return path.read_text(encoding="utf-8").split("\n", 1)[0]


def whole_run(folder):
    """All four parts, short: files, columns, progress, and a report that holds the same numbers."""
    text = folder / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog, caf\u00e9. " * 200, encoding="utf-8")
    out = folder / "whole"
    done = expect(0, *SHORT, "--text", text, "--out", out, "--threads", 2)
    for part in ("The lesson's numbers", "Before the first step", "Your grid", "Real text"):
        check(part in done.stdout, f"'{part}' on stdout")
    check("train 4/4 (100 %)" in done.stderr and "train" not in done.stdout.split("\n", 1)[0],
          "progress on stderr")
    check(header(out / "init.csv") == INIT, "columns of init.csv")
    check(header(out / "curves.csv") == CURVES, "columns of curves.csv")
    check(header(out / "summary.csv") == SUMMARY, "columns of summary.csv")
    curves = rows(out / "curves.csv")
    check({row["task"] for row in curves} == {"recall", "text"}, "both tasks in curves.csv")
    check({row["scale"] for row in curves} == {"inv_sqrt_dk", "none"}, "both scales")
    check([row["reference"] for row in rows(out / "text.csv")[:3]] ==
          ["uniform", "unigram", "bigram"] or
          {row["reference"] for row in rows(out / "text.csv")} >= {"uniform", "unigram", "bigram"},
          "reference lines of the text")
    told = json.loads((out / "run.json").read_text(encoding="utf-8"))
    for name in ("dk", "seeds", "version", "cpu_features", "wall_seconds", "command"):
        check(name in told, f"{name} in run.json")
    report(out)
    again = expect(3, *SHORT, "--only", "init", "--out", out)
    check("--force" in again.stderr, "says what to do about a run that is there")
    check(header(out / "curves.csv") == CURVES, "a refused run leaves the old one")
    expect(0, *SHORT, "--only", "init", "--out", out, "--force", "--no-report", "--quiet")
    check(not (out / "curves.csv").exists(), "a forced run leaves nothing of the old one")
    check(not list(out.glob("*.tmp*")), "no temporary file")


def report(out):
    page = (out / "report.html").read_text(encoding="utf-8")
    check(page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>"), "a page")
    for pattern in (r'(?:src|href)\s*=\s*"(?!#|data:)[^"]', r"@import", r"url\((?!#|['\"]?#)", r"<script"):
        check(not re.search(pattern, page), f"nothing in the page asks for more: {pattern}")
    shown = {html.unescape(value) for value in re.findall(r'data-value="([^"]*)"', page)}
    for row in rows(out / "summary.csv"):
        if row["task"] == "recall" and row["step"] == "20":
            for name in ("loss_mean", "loss_sd", "accuracy_mean"):
                check(row[name] in shown, f"{name} {row[name]} of summary.csv stands in the page")
    for row in rows(out / "lesson.csv"):
        check(row["value"] in shown, f"{row['quantity']} {row['value']} stands in the page")


def same_numbers(folder):
    """Threads change nothing, nor does the order of runs."""
    expect(0, *SHORT, "--only", "init,train", "--threads", 1, "--out", folder / "one", "--no-report",
           "--remedies", "qk_norm,soft_cap,learned,inv_dk,small_init")
    expect(0, *SHORT, "--only", "init,train", "--threads", 3, "--out", folder / "three", "--no-report",
           "--remedies", "qk_norm,soft_cap,learned,inv_dk,small_init")
    for name in ("init.csv", "curves.csv", "summary.csv", "keys.csv", "ends.csv", "attribution.csv"):
        same = (folder / "one" / name).read_bytes() == (folder / "three" / name).read_bytes()
        check(same, f"{name} at 1 and 3 threads")


def formats(folder):
    def no_constants(name):
        raise ValueError(f"{name} is not JSON")

    done = expect(0, *SHORT, "--only", "train", "--format", "csv", "--out", folder / "csv",
                  "--no-report", "--no-progress")
    check(done.stderr == "", "no progress when it is not wanted")
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    check(done.stdout.split("\n", 1)[0] == SUMMARY and len(table) == 2, "CSV on stdout")
    # At this rate runs become non-finite, which JSON cannot say.
    done = expect(0, "--dk", 8, "--lr", "1e300", "--steps", 20, "--seeds", 1, "--only", "train",
                  "--format", "json", "--out", folder / "json", "--no-report", "--no-progress")
    table = json.loads(done.stdout, parse_constant=no_constants)
    check(all(row["loss_mean"] is None and row["status"] == "non-finite" for row in table),
          "JSON on stdout, null for NaN")
    done = expect(0, "--only", "lesson", "--out", folder / "quiet", "--quiet")
    check(done.stdout == "" and done.stderr == "", "--quiet is quiet")


def bad_input(folder):
    for words in ("--only nope", "--dk -1", "--dk 0", "--dk x", "--seq 64", "--seq 40 --keys 39",
                  "--lr nan", "--lr -3", "--lr inf", "--lr 0", "--lr-qk nan", "--init-gain 0",
                  "--scales sqrt", "--remedies hope", "--optimizer lion", "--seeds 0", "--seeds -1",
                  "--seed-list -1", "--seeds 2 --seed-list 1", "--steps 0", "--eval-every 0",
                  "--steps 99999999999999999999", "--batch 0", "--values 1", "--keys 0",
                  "--threads 0", "--dtype float16", "--format xml", "--unknown", "extra"):
        expect(2, *words.split(), "--out", folder / "bad")
    check(not (folder / "bad").exists(), "a refused command line leaves nothing")
    (folder / "file").write_text("x")
    expect(3, "--only", "lesson", "--out", folder / "file")
    expect(3, "--only", "lesson", "--out", "/proc/none")
    expect(3, "--only", "lesson", "--out", "")
    for content in (b"", b"abc\xff", None):
        path = folder / "text"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        expect(3, "--only", "text", "--text", path, "--out", folder / "text-out", "--force")
    expect(0, "--only", "lesson", "--out", folder / "kept", "--quiet", "--no-report")
    expect(3, *SHORT, "--text", folder / "nowhere", "--out", folder / "kept", "--force")
    check((folder / "kept" / "lesson.csv").exists(), "a text that is not there costs no old run")
    (folder / "text").write_text("too short")
    expect(2, "--only", "text", "--text", folder / "text", "--out", folder / "text-out", "--force")
    check(run("--version").stdout.startswith("starvation (softtape "), "version")
    check("--remedies" in run("--help").stdout, "help")


def full_disk(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, "--only", "lesson", "--out", folder / "stdout"], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    check(done.returncode == 3 and done.stderr.count("\n") == 1, f"full stdout: {done}")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    out = folder / "limited"
    expect(3, *SHORT, "--only", "init,train", "--out", out, "--no-report", "--no-progress",
           preexec_fn=limit)
    check(all(path.stat().st_size <= 2000 and ".tmp" not in path.name for path in out.iterdir()),
          "no half-written file")


def interrupted(folder):
    """Ctrl-C once a run is done: what was finished is there, the exit code is 130."""
    out = folder / "stopped"
    process = subprocess.Popen([program, "--only", "train", "--dk", "4", "--steps", "2000", "--seeds",
                                "500", "--out", str(out), "--threads", "2", "--no-report"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               # A shell's background jobs inherit that SIGINT is ignored.
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while True:  # a line every few seconds says how many are done
        line = process.stderr.readline()
        if not line or int(re.match(r"train (\d+)/", line).group(1)) > 0:
            break
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    check(process.returncode == 130, f"exit code {process.returncode} after Ctrl-C: {errors}")
    check("interrupted" in errors, "says so")
    told = json.loads((out / "run.json").read_text(encoding="utf-8"))
    check(told["interrupted"] is True, "run.json knows")
    check(len(rows(out / "curves.csv")) > 0, "finished runs are kept")


def main():
    for part in (whole_run, same_numbers, formats, bad_input, full_disk, interrupted):
        with tempfile.TemporaryDirectory() as folder:
            part(pathlib.Path(folder))
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
