// train_attention: trains a small Transformer on a generated task or a text, with checkpoints that
// resume bit for bit.
//
// This file is the program from start to end; options.hpp, data.hpp, model.hpp and output.hpp are
// its parts. Results go to stdout and to files, progress to stderr. Exit codes: 0 all well,
// 2 usage, 3 files, 4 diverged, 130 interrupted.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>

#include "output.hpp"
#include "softtape/base/dtype.hpp"
#include "softtape/base/error.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/nn/generate.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/train/interrupt.hpp"

namespace train_attention {
namespace {

using namespace softtape;

enum Exit { kUsage = 2, kFiles = 3 };

// Text that goes on from the prompt, or from a line's beginning.
std::string sampled_text(const Options& o, const Data& data, Model& model, Rng& rng) {
  auto prompt = data.text->encode(o.prompt);
  if (prompt.empty()) prompt = {0};  // the first symbol: in most texts the end of a line
  model.layers.eval();
  const auto ids = generate([&](const Tensor& x) { return model.layers(x); }, prompt,
                            {.tokens = o.generate,
                             .temperature = o.temperature,
                             .top_k = o.top_k,
                             .context = data.context},
                            rng);
  return data.text->decode(ids);
}

void check_sampling(const Options& o, const Data& data) {
  if (o.generate == 0) return;
  data.text->encode(o.prompt);
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) {
    throw ValueError(
        fmt::format("--temperature must be finite and not negative: {}", o.temperature));
  }
  if (o.top_k < 0) throw ValueError(fmt::format("--top-k must not be negative: {}", o.top_k));
}

void resume(Trainer& trainer, const std::string& path) {
  try {
    trainer.resume(path);
  } catch (const Error& error) {
    throw IoError(fmt::format("--resume '{}': {}", path, error.what()));
  }
}

int run(const Options& o, const std::string& options_text) {
  std::optional<InterruptGuard> signals(std::in_place);
  const DefaultDtype dtype(o.dtype == "float64" ? DType::float64 : DType::float32);
  set_num_threads(o.threads);

  std::vector<Rng> streams = Rng(static_cast<std::uint64_t>(o.seed)).spawn(4);
  Rng &weights = streams[0], &evaluation = streams[1], &training = streams[2],
      &sampling = streams[3];
  const Data data = make_data(o, evaluation);
  const auto model = make_model(o, data, weights);
  const auto optimizer = make_optimizer(o, *model);
  check_sampling(o, data);

  const auto predict = [&](const TokenBatch& batch) {
    const Tensor logits = model->layers(batch.x);
    return std::pair(logits, cross_entropy(logits, batch.y, {.ignore_index = kIgnore}));
  };
  TrainerOptions options{.steps = o.steps,
                         .accumulate = o.accumulate,
                         .clip_norm = o.clip,
                         .schedule = make_schedule(o),
                         .evaluate_every = o.eval_every,
                         .patience = o.patience,
                         .parts = {{"model", model->layers}, {"training", training}},
                         .checkpoint_every = o.checkpoint_every};
  options.progress.enabled = o.progress;
  options.last_checkpoint = (std::filesystem::path(o.out) / "last.st").string();
  options.best_checkpoint = (std::filesystem::path(o.out) / "best.st").string();
  options.evaluate = [&](std::int64_t) -> Metrics {
    const auto found = predict(data.held_out);
    return {{"val_loss", found.second.item()},
            {"accuracy", accuracy(found.first, data.held_out.y, kIgnore)}};
  };
  if (o.probe_every != 0) {
    options.probe_every = o.probe_every;
    options.probe = [&](std::int64_t) { return probe_metrics(probe_blocks(*model, data)); };
  }
  Trainer trainer(
      *optimizer, [&](std::int64_t) { return predict(data.sample(o.batch, training)).second; },
      options);
  data.sample(o.batch, evaluation);  // refuses a bad batch before anything is written

  if (!o.resume.empty()) resume(trainer, o.resume);
  begin_output(o, options_text);
  const TrainResult result = trainer.run();
  const std::string remark = write_output(o, data, trainer.history());

  signals.reset();  // nothing is left that a signal could lose

  const bool ended_well = result.exit_code() == 0;
  if (!o.quiet) fmt::print("{}", evaluation_table(o, trainer.history()));
  if (o.quiet || o.format != "text") {
    if (!ended_well) fmt::print(stderr, "train_attention: {}\n", result.report);
  } else {
    for (const auto& [name, value] : data.references) fmt::print("{} {:.4g}\n", name, value);
    if (o.probe_every != 0 && ended_well) {
      const auto blocks = probe_blocks(*model, data);
      for (std::size_t i = 0; i < blocks.size(); ++i) fmt::print("block {}\n{}\n", i, blocks[i]);
    }
    fmt::print("{}\n", result.report);
    if (result.best_step >= 0) {
      fmt::print("best held-out loss {:.4g}, after {} updates\n", result.best, result.best_step);
    }
    if (!remark.empty()) fmt::print("{}\n", remark);
  }
  if (o.generate > 0 && ended_well && !o.quiet) {
    fmt::print("{}\n", sampled_text(o, data, *model, sampling));
  }
  return result.exit_code();
}

int complain(int exit, const char* what) {
  std::fprintf(stderr, "train_attention: %s\n", what);
  return exit;
}

}  // namespace
}  // namespace train_attention

int main(int argc, char** argv) {
  using namespace train_attention;
  try {
    const Parsed parsed = parse(argc, argv);
    const int exit = parsed.exit >= 0 ? parsed.exit : run(parsed.options, parsed.text);
    if (std::fflush(stdout) != 0) return complain(kFiles, "stdout cannot be written");
    return exit;
  } catch (const softtape::IoError& error) {
    return complain(kFiles, error.what());
  } catch (const softtape::Error& error) {
    return complain(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return complain(kUsage, "these sizes need more memory than there is");
  } catch (const std::exception& error) {  // of the file system, or of printing to a full disk
    return complain(kFiles, error.what());
  }
}
