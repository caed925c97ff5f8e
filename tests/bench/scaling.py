"""compare --scaling: time and memory of W2 and W4 against one size at a time.

Each point is a process of its own. A point is skipped when the one before it says that it would
last longer than the limit, or need more memory than there is. Exponents are slopes of log(time) and
log(memory) against log(size) over the upper half of the points.
"""
import csv
import math
import os
import shutil
import subprocess

LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
# name, contender, workload, varied key, its values, other keys, MiB per value^2 kept
SERIES = [
    ("W4 fused", "softtape", "W4", "tokens", LENGTHS, {}, 0),
    ("W4 composed", "softtape-composed", "W4", "tokens", LENGTHS, {}, 8 * 6 * 4 / 2**20),
    ("W2 fused", "softtape", "W2", "tokens", LENGTHS, {"batch": 1}, 0),
    ("W2 composed", "softtape-composed", "W2", "tokens", LENGTHS, {"batch": 1}, 6 * 4 / 2**20),
    ("W2", "softtape", "W2", "head", [8, 16, 32, 64, 128, 256, 512, 1024], {}, 0),
    ("W2", "softtape", "W2", "batch", [1, 2, 4, 8, 16, 32, 64, 128, 256], {}, 0),
    ("W2", "softtape", "W2", "threads", [1, 2, 4], {}, 0),
    ("W4", "softtape", "W4", "threads", [1, 2, 4], {}, 0),
]
LABELS = {"tokens": "sequence length T", "head": "head width dk", "batch": "sequences in a batch",
          "threads": "threads"}


def point(measure, contender, workload, keys):
    command = [measure, contender, workload, *(f"{k}={v}" for k, v in keys.items())]

    def fields(*more):
        done = subprocess.run([*command, *more], capture_output=True, text=True)
        return done.stdout.strip().split(",") if done.returncode == 0 else None

    timed, grown = fields("seconds=0.3", "rounds=1000000"), fields("memory=1")
    if not timed or not grown:
        return None
    return {"seconds": float(timed[3]), "cpu_seconds": float(timed[5]), "mib": float(grown[3])}


def slope(rows, key):
    upper = [r for r in rows[len(rows) // 2:] if r[key] > 0]
    if len(upper) < 2:
        return math.nan
    x = [math.log(r["value"]) for r in upper]
    y = [math.log(r[key]) for r in upper]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return (sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) /
            sum((a - mean_x) ** 2 for a in x))


def run(measure, folder, limit, available_mib, quick):
    rows = []
    for name, contender, workload, key, values, keys, square_mib in SERIES:
        series = []
        for value in values:
            if key == "threads" and value > (os.cpu_count() or 1):
                print(f"  {name} {key}={value}: skipped, more than the CPUs here")
                break
            if quick and key == "tokens" and value > 1024:
                print(f"  {name} {key}={value}: skipped by --quick")
                break
            if square_mib * value * value > 0.7 * available_mib:
                print(f"  {name} {key}={value}: skipped, would need about "
                      f"{square_mib * value * value:.0f} MiB")
                break
            # Three units, and quadratic growth from the last point.
            if series and 16 * series[-1]["seconds"] > limit and key != "threads":
                print(f"  {name} {key}={value}: skipped, would take more than {limit:g} s")
                break
            found = point(measure, contender, workload, {**keys, key: value})
            if not found:
                print(f"  {name} {key}={value}: failed")
                break
            series.append({"series": name, "varied": key, "value": value, **found})
            print(f"  {name:12} {key}={value:<6} {found['seconds'] * 1e3:12.4g} ms"
                  f"{found['mib']:10.1f} MiB", flush=True)
        rows += series
        if key != "threads":
            print(f"{name}: time ~ {LABELS[key]}^{slope(series, 'seconds'):.2f}, "
                  f"memory ~ ^{slope(series, 'mib'):.2f} (upper half of the points)")
    path = folder / "scaling.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{path}")
    draw(rows, folder)


def draw(rows, folder):
    """scaling.gp beside the CSV; and scaling.svg where gnuplot is installed."""
    panels = []
    for key, quantity, label in (("tokens", "seconds", "seconds"), ("tokens", "mib", "MiB"),
                                 ("head", "seconds", "seconds"), ("batch", "seconds", "seconds")):
        plots, blocks = [], []
        for name in dict.fromkeys(r["series"] for r in rows if r["varied"] == key):
            points = [f"{r['value']} {r[quantity]}" for r in rows
                      if (r["series"], r["varied"]) == (name, key) and r[quantity] > 0]
            block = f"$d{len(panels)}_{len(blocks)}"
            blocks.append(f"{block} << E\n" + "\n".join(points) + "\nE\n")
            plots.append(f'{block} with linespoints title "{name}"')
        if plots:
            panels.append("".join(blocks) + f'set xlabel "{LABELS[key]}"\nset ylabel "{label}"\n' +
                          "plot " + ", ".join(plots) + "\n")
    script = ("set terminal svg size 900,700 dynamic font 'sans-serif,12'\nset logscale xy\n"
              "set format x '%g'\nset format y '%g'\nset key left top\nset grid\n"
              "set multiplot layout 2,2\n" + "".join(panels) + "unset multiplot\n")
    (folder / "scaling.gp").write_text(script)
    if not shutil.which("gnuplot"):
        print(f"gnuplot is not installed: {folder / 'scaling.gp'} is not drawn")
        return
    with open(folder / "scaling.svg", "wb") as file:
        subprocess.run(["gnuplot", "scaling.gp"], cwd=folder, stdout=file, check=True)
    print(folder / "scaling.svg")
