// The command line, and the only file that sees CLI11.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "options.hpp"
#include "softtape/version.hpp"

namespace train_attention {

Parsed parse(int argc, char** argv) {
  Parsed parsed;
  Options& o = parsed.options;
  CLI::App app(
      "Trains a small Transformer on a generated task or on a text, and keeps its numbers.");
  app.option_defaults()->always_capture_default();
  // CLI11 reads a number that is too large as the largest one: each has a limit.
  constexpr std::int64_t kLargest = 1 << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const CLI::Range size(std::int64_t{1}, kLargest, "SIZE"),
      size_or_0(std::int64_t{0}, kLargest, "SIZE");
  const CLI::Range count(std::int64_t{1}, kMost, "COUNT"),
      count_or_0(std::int64_t{0}, kMost, "COUNT");
  const auto choice = [](std::initializer_list<std::string> names) {
    return CLI::IsMember(std::vector<std::string>(names));
  };

  const char* data = "Data";
  auto* task = app.add_option("--task", o.task, "recall, copy or induction")
                   ->check(choice({"recall", "copy", "induction"}))
                   ->group(data);
  auto* text = app.add_option("--text", o.text, "A UTF-8 file: a character model of it")
                   ->excludes(task)
                   ->group(data);
  app.add_option("--length", o.length, "Pairs, or symbols, of a sample")->check(size)->group(data);
  app.add_option("--keys", o.keys, "Key symbols of recall")->check(size)->group(data);
  app.add_option("--values", o.values, "Value symbols of recall")->check(size)->group(data);
  app.add_option("--vocab", o.vocab, "Symbols of copy and induction")->check(size)->group(data);
  app.add_option("--context", o.context, "Characters that a text model sees")
      ->check(size)
      ->group(data);
  app.add_option("--validation", o.validation, "Share of the text that is held out")->group(data);

  const char* model = "Model";
  app.add_option("--layers", o.layers, "Transformer blocks")
      ->check(CLI::Range(1, 1000, "COUNT"))
      ->group(model);
  app.add_option("--heads", o.heads, "Heads of a block")->check(size)->group(model);
  app.add_option("--d-model", o.d_model, "Width of the model")->check(size)->group(model);
  app.add_option("--dk", o.dk, "Width of a head's queries and keys; 0: d-model / heads")
      ->check(size_or_0)
      ->group(model);
  app.add_option("--dv", o.dv, "Width of a head's values; 0: d-model / heads")
      ->check(size_or_0)
      ->group(model);
  app.add_option("--mlp", o.mlp, "Hidden width of the feed-forward part; 0: 4 d-model")
      ->check(size_or_0)
      ->group(model);
  app.add_option(
         "--scale", o.scale,
         "inv_sqrt_dk, none, inv_dk, dk_quarter, learned (from 1/sqrt(dk) on, a scale for each "
         "block) or a number")
      ->group(model);
  app.add_option("--mask", o.mask, "causal, window (causal, the last --window keys) or none")
      ->check(choice({"causal", "window", "none"}))
      ->group(model);
  app.add_option("--window", o.window, "Keys that --mask window shows")->check(size)->group(model);
  app.add_option("--positions", o.positions, "learned, sinusoidal, rope, alibi or none")
      ->check(choice({"learned", "sinusoidal", "rope", "alibi", "none"}))
      ->group(model);
  app.add_option("--norm", o.norm, "Place of the norms: pre or post")
      ->check(choice({"pre", "post"}))
      ->group(model);
  app.add_option("--dropout", o.dropout, "Probability")->group(model);

  const char* training = "Training";
  app.add_option("--optimizer", o.optimizer, "sgd, adam or adamw")
      ->check(choice({"sgd", "adam", "adamw"}))
      ->group(training);
  app.add_option("--lr", o.lr, "Learning rate")->group(training);
  app.add_option("--momentum", o.momentum, "Of sgd")->group(training);
  app.add_option("--weight-decay", o.weight_decay, "Per update")->group(training);
  app.add_option("--schedule", o.schedule,
                 "constant, cosine (to 0 at --steps) or step (a tenth at 3/4)")
      ->check(choice({"constant", "cosine", "step"}))
      ->group(training);
  app.add_option("--warmup", o.warmup, "Updates of linear warm-up")
      ->check(count_or_0)
      ->group(training);
  app.add_option("--clip", o.clip, "Limit of the gradients' joint norm")->group(training);
  app.add_option("--batch", o.batch, "Samples of a batch")->check(size)->group(training);
  app.add_option("--steps", o.steps, "Updates")->check(count)->group(training);
  app.add_option("--accumulate", o.accumulate, "Batches of an update")
      ->check(size)
      ->group(training);
  app.add_option("--eval-every", o.eval_every, "Updates between evaluations")
      ->check(count)
      ->group(training);
  app.add_option("--eval-samples", o.eval_samples, "Samples, or text windows, of an evaluation")
      ->check(size)
      ->group(training);
  app.add_option("--probe-every", o.probe_every, "Updates between attention probes; 0: none")
      ->check(count_or_0)
      ->group(training);
  app.add_option("--patience", o.patience,
                 "Evaluations without gain before it stops; 0: never stops")
      ->check(count_or_0)
      ->group(training);
  app.add_option("--seed", o.seed, "Of weights, data and drops")
      ->check(count_or_0)
      ->group(training);
  app.add_option("--dtype", o.dtype, "float32 or float64")
      ->check(choice({"float32", "float64"}))
      ->group(training);
  app.add_option("--threads", o.threads, "Inside one op; results do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->group(training);
  app.add_option("--resume", o.resume, "A checkpoint, last.st or best.st, to go on from")
      ->group(training);
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "Updates between checkpoints; 0: at the end")
      ->check(count_or_0)
      ->group(training);

  const char* sampling = "Sampling";
  app.add_option("--generate", o.generate, "Characters to draw from a text model at the end")
      ->needs(text)
      ->check(count_or_0)
      ->group(sampling);
  app.add_option("--prompt", o.prompt, "What they go on from")->group(sampling);
  app.add_option("--temperature", o.temperature, "0 takes the likeliest")->group(sampling);
  app.add_option("--top-k", o.top_k, "Only among so many; 0: all")
      ->check(count_or_0)
      ->group(sampling);

  const char* output = "Output";
  bool no_progress = false, no_figures = false;
  app.add_option("--out", o.out, "Folder for metrics, checkpoints and figures")->group(output);
  app.add_flag("--force", o.force, "Replace a run that is there")->group(output);
  app.add_option("--format", o.format,
                 "Of the table on stdout: text, csv or json (an array of objects)")
      ->check(choice({"text", "csv", "json"}))
      ->group(output);
  app.add_flag("--quiet", o.quiet, "Nothing on stdout")->group(output);
  app.add_flag("--no-progress", no_progress, "Nothing on stderr but errors")->group(output);
  app.add_flag("--no-figures", no_figures, "No pictures")->group(output);
  app.set_version_flag("--version",
                       fmt::format("train_attention (softtape {})", SOFTTAPE_VERSION_STRING));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      parsed.exit = app.exit(error);
    } else {
      fmt::print(stderr, "train_attention: {}; --help shows the options\n", error.what());
      parsed.exit = 2;
    }
    return parsed;
  }
  parsed.text = app.config_to_str(true);
  if (text->count() > 0) o.task = "text";
  o.progress = !no_progress;
  o.figures = !no_figures;
  return parsed;
}

}  // namespace train_attention
