"""Python's numbers for CharText: writes char_text_golden.hpp (stdout)."""
import numpy as np

TEXT = "αβγ abc, caba; αγ 😀 cab bca!\n" * 7
CONTEXT = 6


def rows(name, values):
    body = ", ".join(str(int(v)) for v in np.asarray(values).ravel())
    print(f"inline const std::vector<std::int64_t> {name} = {{{body}}};")


symbols = sorted(set(TEXT))
ids = np.array([symbols.index(c) for c in TEXT])
train = int(len(ids) * (1 - 0.1))


def windows(starts):
    at = np.asarray(starts)[:, None] + np.arange(CONTEXT)
    return ids[at], ids[at + 1]


starts = np.random.default_rng(8).integers(0, train - CONTEXT, 4)
x, y = windows(starts)
places = len(ids) - train - CONTEXT
vx, vy = windows(train + np.array([0, (places - 1) // 3, 2 * (places - 1) // 3, places - 1]))

counts = np.bincount(ids[:train], minlength=len(symbols))
pairs = np.zeros((len(symbols),) * 2)
np.add.at(pairs, (ids[:train - 1], ids[1:train]), 1)
unigram = (counts + 0.1) / (counts + 0.1).sum()
bigram = (pairs + 0.1) / (pairs + 0.1).sum(1, keepdims=True)

print("// Made by char_text_golden.py with NumPy", np.__version__)
print("// clang-format off")
print("#pragma once\n\n#include <cstdint>\n#include <vector>\n\nnamespace golden::char_text {\n")
print("// " + TEXT[:TEXT.index("\n")] + ", seven times, each line ending in a line feed.")
print(f"inline constexpr std::int64_t size = {len(ids)}, train_size = {train};")
rows("batch_x", x)
rows("batch_y", y)
rows("validation_x", vx)
rows("validation_y", vy)
rows("counts", counts)
print(f"inline constexpr double unigram = {-np.log(unigram[vy]).mean()!r};")
print(f"inline constexpr double bigram = {-np.log(bigram[vx, vy]).mean()!r};")
print("\n}  // namespace golden::char_text")
