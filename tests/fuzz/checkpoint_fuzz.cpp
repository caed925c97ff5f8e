// Any bytes as a checkpoint: refused, with nothing changed, or loaded. Mutated bytes never have the
// right checksum, so each input is also tried with its checksum put right.
#include "fuzz/fuzz.hpp"
#include "io/parse.hpp"
#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/optim/adam.hpp"

using namespace softtape;

namespace {

// A model, its optimiser with moments, and a stream.
struct Run {
  Run() : rng(1), model(2, 1, rng), adam(model, {.lr = 0.1}) {
    sum(model(ones({1, 2}))).backward();
    adam.step();
  }
  std::vector<Part> parts() { return {{"model", model}, {"optimizer", adam}, {"rng", rng}}; }
  State state() {
    State all;
    for (const Part& part : parts()) {
      for (const auto& [name, tensor] : part.object().state()) {
        all.emplace_back(part.name() + "." + name, tensor.clone());
      }
    }
    return all;
  }
  Rng rng;
  Linear model;
  Adam adam;
};

// Loads what can be loaded, and checks that a refusal changed nothing.
void load(std::string_view bytes, bool strict) {
  static Run run;
  static const State first = run.state();
  static const Checkpoint good = detail::parse_checkpoint(fuzz::sample(), "[sample]");
  try {
    const Checkpoint checkpoint = detail::parse_checkpoint(bytes, "[fuzz]");
    detail::load_parts(checkpoint, run.parts(), {.strict = strict}, "[fuzz]");
    detail::load_parts(good, run.parts(), {}, "[sample]");
  } catch (const Error& error) {
    fuzz::require(std::string_view(error.what()).substr(0, 6) == "[fuzz]");
  }
  fuzz::require(fuzz::same(run.state(), first));
}

}  // namespace

const std::string& fuzz::sample() {
  static const std::string bytes = detail::checkpoint_bytes(Run().parts(), {{"note", "x"}});
  return bytes;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  load(bytes, true);
  try {
    SafeTensors file = detail::parse_safetensors(bytes, "[fuzz]");
    file.metadata["checksum"] = "";
    file.metadata["checksum"] = detail::checksum(file.tensors, file.metadata);
    load(detail::safetensors_bytes(file.tensors, file.metadata, "repaired"), size % 2 == 0);
  } catch (const IoError&) {
  }
  return 0;
}
