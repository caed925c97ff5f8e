#!/usr/bin/env python3
"""Associative recall in plain NumPy: writes recall_golden.csv, which the experiment suite compares.

    python3 recall_golden.py > recall_golden.csv        (about 5 minutes)

Nothing here comes from softtape. One head, Wq and Wk of 32 key symbols, Wv of 16 value symbols, 16
pairs in a sample; streams weights, evaluation, training = SeedSequence(seed).spawn(3). Each line is
one run: seed, dk, scale, lr, steps to 90 %, the statistics before the first step, then loss and
accuracy at STEPS. The numbers in the repository came from NumPy 1.24.2.
"""

import numpy as np

LENGTH, KEYS, VALUES, BATCH, EVALUATION = 16, 32, 16, 32, 1024
STEPS = [*range(0, 101, 10), 200, 300, 400, 500]
STATISTICS = ["entropy", "max_p", "jacobian_mean", "jacobian_median", "row_ds_median",
              "target_ds_median", "target_starved", "dead_keys", "gWq", "gWk", "gWv"]


def draw(rng, count):
    rows = []
    for _ in range(count):
        keys = rng.permutation(KEYS)[:LENGTH]
        values = rng.integers(0, VALUES, LENGTH)
        rows.append((keys, values, rng.integers(0, LENGTH)))
    keys, values, slot = (np.array(column) for column in zip(*rows))
    return keys, values, slot


class Head:
    def __init__(self, rng, dk, scale):
        self.wq = rng.standard_normal((KEYS, dk))
        self.wk = rng.standard_normal((KEYS, dk))
        self.wv = rng.normal(0, VALUES ** -0.5, (VALUES, VALUES))
        self.scale = dk ** -0.5 if scale == "scaled" else 1.0

    def forward(self, data):
        keys, values, slot = data
        rows = np.arange(len(slot))
        self.query, self.target = keys[rows, slot], values[rows, slot]
        self.q, self.k, self.v = self.wq[self.query], self.wk[keys], self.wv[values]
        scores = self.scale * np.einsum("bd,btd->bt", self.q, self.k)
        self.p = np.exp(scores - scores.max(axis=1)[:, None])
        self.p /= self.p.sum(axis=1)[:, None]
        logits = np.einsum("bt,btv->bv", self.p, self.v)
        top = logits.max(axis=1)
        self.log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        self.logits = logits
        loss = (self.log_sum - logits[rows, self.target]).mean()
        return loss, (logits.argmax(axis=1) == self.target).mean()

    def backward(self, data, samples):
        """Gradients of the sum over samples divided by `samples`; also those of the scores."""
        keys, values, slot = data
        rows = np.arange(len(slot))
        glogits = np.exp(self.logits - self.log_sum[:, None])
        glogits[rows, self.target] -= 1
        glogits /= samples
        gp = np.einsum("bv,btv->bt", glogits, self.v)
        # Centred on the winner, whose entry would cancel otherwise (rows of J sum to 0).
        gp = gp - gp[rows, self.p.argmax(axis=1)][:, None]
        gs = self.p * (gp - (self.p * gp).sum(axis=1)[:, None])
        gwq, gwk, gwv = (np.zeros_like(w) for w in (self.wq, self.wk, self.wv))
        np.add.at(gwq, self.query, self.scale * np.einsum("bt,btd->bd", gs, self.k))
        np.add.at(gwk, keys, self.scale * gs[:, :, None] * self.q[:, None, :])
        np.add.at(gwv, values, self.p[:, :, None] * glogits[:, None, :])
        return (gwq, gwk, gwv), gs


def jacobian_norm(p):
    other = 1 - np.eye(p.shape[1])
    return np.sqrt((p ** 2 * ((p @ other) ** 2 + (p ** 2) @ other)).sum(axis=1))


def statistics(head, data):
    head.forward(data)
    gradients, gs = head.backward(data, 1)
    p, slot = head.p, data[2]
    logs = np.log(np.where(p > 0, p, 1))
    target = np.abs(gs[np.arange(len(slot)), slot])
    jacobian = jacobian_norm(p)
    return [-(p * logs).sum(axis=1).mean(), p.max(axis=1).mean(), jacobian.mean(),
            np.median(jacobian), np.median(np.linalg.norm(gs, axis=1)), np.median(target),
            (target < 1e-6).mean(), (np.abs(gs) < 1e-6).mean(),
            *(np.linalg.norm(g) / len(slot) for g in gradients)]


def run(seed, dk, scale, lr):
    weights, evaluation, training = map(np.random.default_rng,
                                        np.random.SeedSequence(seed).spawn(3))
    head = Head(weights, dk, scale)
    fixed = draw(evaluation, EVALUATION)
    line = [seed, dk, scale, lr, -1, *map(float, statistics(head, fixed))]
    for step in range(STEPS[-1] + 1):
        if step % 10 == 0:
            loss, accuracy = head.forward(fixed)
            if accuracy >= 0.9 and line[4] < 0:
                line[4] = step
            if step in STEPS:
                line += [float(loss), float(accuracy)]
        data = draw(training, BATCH)
        head.forward(data)
        gradients, _ = head.backward(data, BATCH)
        for w, g in zip((head.wq, head.wk, head.wv), gradients):
            w -= lr * g
    return line


def main():
    names = [f"{what}_{step}" for step in STEPS for what in ("loss", "accuracy")]
    print(",".join(["seed", "dk", "scale", "lr", "steps_to_90", *STATISTICS, *names]))
    for dk in (16, 64, 256):
        for scale in ("scaled", "unscaled"):
            for lr in (3, 10, 30):
                for seed in range(7):
                    print(",".join(map(str, run(seed, dk, scale, lr))), flush=True)


if __name__ == "__main__":
    main()
