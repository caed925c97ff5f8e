// What `train_attention` looks at and leaves: probes, tables, figures, text.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"
#include "softtape/study/starvation.hpp"
#include "softtape/train/trainer.hpp"

namespace train_attention {

/// Attention of every block on the first held-out samples, and what reaches its scores.
std::vector<softtape::Starvation> probe_blocks(Model& model, const Data& data);
/// The same as numbers: "block0_entropy" and so on.
softtape::Metrics probe_metrics(const std::vector<softtape::Starvation>& blocks);

/// Makes the folder, with the options in it. Throws: IoError where it cannot be, or holds a run
/// that may not be replaced.
void begin_output(const Options& options, const std::string& options_text);
/// metrics.csv and metrics.jsonl, figures where asked for. Returns a remark, or nothing.
std::string write_output(const Options& options, const Data& data,
                         const softtape::History& history);
/// The evaluations, in the form asked for.
std::string evaluation_table(const Options& options, const softtape::History& history);

}  // namespace train_attention
