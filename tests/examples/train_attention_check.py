#!/usr/bin/env python3
"""Runs train_attention in short mode: what it prints and leaves, resume, Ctrl-C, bad input.

    train_attention_check.py PROGRAM TEXT
"""
import csv
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

program, text = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
failures = []


def check(holds, words):
    if not holds:
        failures.append(words)
        print("FAILED", words)


def run(*arguments, **keywords):
    command = [program, "--eval-samples", "32", "--eval-every", "10", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **keywords)


def expect(code, *arguments, **keywords):
    """Runs with an expected exit code; an error must be one line on stderr and nothing else."""
    done = run(*arguments, **keywords)
    name = " ".join(map(str, arguments))
    check(done.returncode == code, f"{name}: exit code {done.returncode}, not {code}: {done.stderr}")
    if code in (2, 3):
        one_line = done.stderr.startswith("train_attention: ") and done.stderr.count("\n") == 1
        check(one_line and not done.stdout, f"{name}: not one clear line: {done.stderr!r}")
    return done


def no_constants(name):
    raise ValueError(f"{name} is not JSON")


def strict_rows(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=no_constants) for line in lines]


def results(folder):
    """A short run: its table, its files, and that progress stays on stderr."""
    done = expect(0, "--steps", 20, "--probe-every", 10, "--out", folder / "recall")
    header = done.stdout.splitlines()[0].split()
    check(header == ["step", "val_loss", "accuracy"], f"header {header}")
    check("finished after 20 updates" in done.stdout, "no report on stdout")
    check("uniform 2.773" in done.stdout, "the uniform loss over 16 values is ln 16")
    check("dead keys" in done.stdout, "no probe on stdout")
    check("train 20/20 (100 %)" in done.stderr and "\r" not in done.stderr, "progress on stderr")
    rows = list(csv.DictReader((folder / "recall/metrics.csv").open(encoding="utf-8")))
    steps = [int(row["step"]) for row in rows if row["metric"] == "val_loss"]
    check(steps == [0, 10, 20], f"evaluations at {steps}")
    check(sum(row["metric"] == "loss" for row in rows) == 20, "a loss for every update")
    check(any(row["metric"] == "block0_dead_keys" for row in rows), "probes in the metrics")
    same = [(row["step"], row["metric"]) for row in rows]
    lines = strict_rows(folder / "recall/metrics.jsonl")
    check([(str(line["step"]), line["metric"]) for line in lines] == same, "JSON lines as in CSV")
    for name in ("last.st", "best.st", "options.toml", "loss.dat", "loss.gp", "probes.gp"):
        check((folder / "recall" / name).stat().st_size > 0, f"{name} is there")
    expect(3, "--steps", 2, "--out", folder / "recall")  # holds a run
    expect(0, "--steps", 2, "--force", "--out", folder / "recall", "--no-figures")


def same_bits(folder):
    """Resumed, or on two threads: the same bytes."""
    common = ["--dropout", "0.1", "--task", "induction", "--layers", 2, "--heads", 2, "--no-figures",
              "--no-progress"]
    expect(0, *common, "--steps", 20, "--out", folder / "straight")
    expect(0, *common, "--steps", 10, "--out", folder / "half")
    expect(0, *common, "--steps", 20, "--out", folder / "resumed", "--resume", folder / "half/last.st")
    expect(0, *common, "--steps", 20, "--out", folder / "threads", "--threads", 2)
    for other in ("resumed", "threads"):
        for name in ("last.st", "metrics.csv"):
            same = (folder / "straight" / name).read_bytes() == (folder / other / name).read_bytes()
            check(same, f"{other}/{name} differs from the straight run's")
    expect(3, "--resume", folder / "half/last.st", "--d-model", 32, *common[2:], "--out", folder / "x")
    expect(3, "--resume", text, "--out", folder / "x")
    check(not (folder / "x").exists(), "a refused resume leaves nothing")


def texts(folder):
    """A character model, its reference lines, and text drawn from it."""
    common = ["--text", text, "--context", 16, "--d-model", 32, "--no-figures", "--no-progress"]
    done = expect(0, *common, "--steps", 10, "--generate", 40, "--prompt", "The ", "--out",
                  folder / "text")
    check(all(f"\n{name} " in done.stdout for name in ("uniform", "unigram", "bigram")), "references")
    sampled = done.stdout[done.stdout.index("\nThe ") + 1:-1]
    check(len(sampled) == 44, f"4 characters and 40 more: {sampled!r}")
    again = expect(0, *common, "--steps", 10, "--generate", 40, "--prompt", "The ", "--force",
                   "--format", "csv", "--out", folder / "text")
    check(again.stdout.startswith("step,val_loss,accuracy\n0,"), "CSV on stdout")
    check(again.stdout.endswith(sampled + "\n"), "the same seed draws the same text")
    expect(2, *common, "--generate", 9, "--prompt", "\u2603", "--out", folder / "x")
    short = folder / "short.txt"
    for content, code in ((b"", 3), (b"abc\xff", 3), (b"abc", 2)):
        short.write_bytes(content)
        expect(code, "--text", short, "--out", folder / "x")
    expect(3, "--text", folder / "missing.txt", "--out", folder / "x")


def variety(folder):
    """Every choice once."""
    for i, words in enumerate((
            "--task copy --scale none --mask window --window 4 --positions rope --optimizer sgd",
            "--task copy --scale learned --positions alibi --norm post --heads 4 --optimizer adam",
            "--scale dk_quarter --dk 8 --dv 4 --heads 3 --positions none --schedule cosine --warmup 2",
            "--scale 0.3 --mask none --positions sinusoidal --schedule step --clip 0.5 --mlp 16",
            "--scale inv_dk --dtype float64 --accumulate 2 --patience 1 --checkpoint-every 1")):
        done = expect(0, *words.split(), "--steps", 4, "--out", folder / str(i), "--no-figures",
                      "--no-progress", "--format", "json")
        table = json.loads(done.stdout, parse_constant=no_constants)
        steps = [list(row) == ["step", "val_loss", "accuracy"] and row["step"] for row in table]
        check(steps == [0, 4], f"{words}: evaluations in the JSON array at {steps}")


def bad_input(folder):
    for words in ("--task nope", "--dk -1", "--d-model -4", "--length 40", "--lr nan", "--lr x",
                  "--steps 0", "--batch 0", "--layers 0", "--heads 0", "--heads 3", "--dropout 2",
                  "--clip 0", "--scale foo", "--scale nan", "--mask window --window 0", "--seed -1",
                  "--steps 99999999999999999999", "--eval-samples 0", "--probe-every -1",
                  "--task induction --vocab 20", "--generate 5", "--threads 0", "--unknown", "extra",
                  "--positions rope --dk 3", "--task copy --text README.md"):
        expect(2, *words.split(), "--out", folder / "bad")
    check(not (folder / "bad").exists(), "a refused run leaves nothing")
    (folder / "file").write_text("x")
    expect(3, "--steps", 1, "--out", folder / "file")
    expect(3, "--steps", 1, "--out", "/proc/none")
    full = subprocess.run([program, "--steps", "1", "--no-progress", "--no-figures", "--out",
                           folder / "full"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE)
    check(full.returncode == 3 and full.stderr.count(b"\n") == 1, f"full stdout: {full}")
    check(run("--version").stdout.startswith("train_attention (softtape "), "version")
    told = " ".join(run("--help").stdout.split())
    for words in ("--resume", "json (an array of objects)", "learned (from 1/sqrt(dk) on"):
        check(words in told, f"help on {words}")


def diverging(folder):
    done = expect(4, "--optimizer", "sgd", "--lr", "1e30", "--steps", 50, "--out", folder / "nan",
                  "--no-figures", "--no-progress")
    check("diverged at step" in done.stdout, "says that it diverged")
    lines = strict_rows(folder / "nan/metrics.jsonl")
    check(any(line["value"] is None for line in lines), "the loss that is none is null")


def interrupted(folder):
    """Ctrl-C once it trains: 130, a checkpoint, and a run that goes on from it."""
    started = subprocess.Popen([program, "--steps", "100000000", "--out", folder / "cut"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    first = started.stderr.readline()  # a line of progress: it trains
    check(first.startswith("train "), f"progress: {first!r}")
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate(timeout=120)
    check(started.returncode == 130, f"interrupted: exit code {started.returncode}")
    check("interrupted after" in out, f"says that it was interrupted: {out!r}")
    check((folder / "cut/metrics.csv").exists(), "what was measured is kept")
    done = expect(0, "--steps", 1, "--out", folder / "cut2", "--resume", folder / "cut/last.st")
    check("finished after" in done.stdout, "goes on")


for part in (results, same_bits, texts, variety, bad_input, diverging, interrupted):
    with tempfile.TemporaryDirectory() as folder:
        part(pathlib.Path(folder))
print("failed" if failures else "all well")
sys.exit(1 if failures else 0)
