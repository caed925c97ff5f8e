"""How the Python peers are measured: as bench_measure measures its contenders."""
import re
import statistics
import time


def measure(name, workload, run, keys, units=1):
    """The line that bench_measure prints."""
    seconds = float(keys.get("seconds", 1))
    for _ in range(3):
        run()
    begin = time.perf_counter()
    run()
    block = max(1, int(2e-3 / (time.perf_counter() - begin)))
    walls, cpus = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(walls) < 3:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(block):
            run()
        cpus.append((time.process_time() - cpu) / block / units)
        walls.append((time.perf_counter() - wall) / block / units)
    return (f"{name},{workload},{keys.get('threads', 1)},{min(walls):.6g},"
            f"{statistics.median(walls):.6g},{min(cpus):.6g}")


def resident(field):
    """A field of /proc/self/status in MiB."""
    with open("/proc/self/status") as file:
        return int(re.search(rf"{field}:\s+(\d+)", file.read()).group(1)) / 1024


def growth(name, workload, run, keys):
    before = resident("VmRSS")
    run()
    return f"{name},{workload},{keys.get('threads', 1)},{resident('VmHWM') - before:.1f}"


def gemm_speed(product):
    """GFLOP/s of a product of two 512 x 512 matrices, and the BLAS library that is loaded."""
    times = []
    for _ in range(20):
        begin = time.process_time()
        product()
        times.append(time.process_time() - begin)
    with open("/proc/self/maps") as file:
        libraries = re.findall(r"\S*/(lib\w*(?:blas|mkl)\w*[-.\w]*)", file.read())
    return f"{2 * 512**3 / min(times) / 1e9:.1f}", libraries[0] if libraries else "BLAS unknown"
