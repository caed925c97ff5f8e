"""NumPy's numbers for the generated tasks: writes tasks_golden.hpp (stdout)."""
import numpy as np


def rows(name, values):
    body = ", ".join(str(int(v)) for v in np.asarray(values).ravel())
    print(f"inline const std::vector<std::int64_t> {name} = {{{body}}};")


print("// Made by tasks_golden.py with NumPy", np.__version__)
print("// clang-format off")
print("#pragma once\n\n#include <cstdint>\n#include <vector>\n\nnamespace golden::tasks {\n")

# Associative recall: seed 3, length 5, 9 keys, 4 values, two batches of 3 and 2 one after the other.
rng = np.random.default_rng(3)
keys, values, slots = [], [], []
for _ in range(5):
    keys.append(rng.permutation(9)[:5])
    values.append(rng.integers(0, 4, 5))
    slots.append(rng.integers(0, 5))
rows("recall_keys", keys)
rows("recall_values", values)
rows("recall_slot", slots)
rows("recall_query", [k[s] for k, s in zip(keys, slots)])
rows("recall_target", [v[s] for v, s in zip(values, slots)])

# Copy: seed 4, 3 symbols out of 5, batch 2.
rng = np.random.default_rng(4)
x, y = [], []
for _ in range(2):
    s = rng.integers(0, 5, 3)
    x.append(np.concatenate([s, [5], s[:-1]]))
    y.append(np.concatenate([[-1] * 3, s]))
rows("copy_x", x)
rows("copy_y", y)

# Induction: seed 5, blocks of 3 out of 12, batch 2.
rng = np.random.default_rng(5)
x, y = [], []
for _ in range(2):
    s = np.tile(rng.permutation(12)[:3], 2)
    x.append(s[:-1])
    y.append(np.where(np.arange(1, 6) > 3, s[1:], -1))
rows("induction_x", x)
rows("induction_y", y)
print("\n}  // namespace golden::tasks")
