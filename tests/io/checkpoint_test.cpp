// Checkpoints: a run goes on bit for bit, and a load that is refused changes nothing.
#include "softtape/io/checkpoint.hpp"

#include <bit>

#include "io/support.hpp"
#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/io/file.hpp"
#include "softtape/nn/dropout.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/schedule.hpp"
#include "softtape/version.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using io_test::bytes_of;
using io_test::cloned;
using io_test::put;
using io_test::same_state;
using test_support::Folder;

namespace {

// A run with everything that has a state: weights, dropout's stream, moments, a schedule, data
// that is drawn.
struct Run {
  explicit Run(std::uint64_t seed)
      : data(seed),
        linear(3, 2, data),
        dropout(0.5, data),
        adam(linear, {.lr = 0.1}),
        schedule(adam, Schedule::cosine(50)) {}

  double step() {
    const Tensor x = randn(data, {4, 3});
    const Tensor loss = mse_loss(dropout(linear(x)), ones({4, 2}));
    adam.zero_grad();
    loss.backward();
    adam.step();
    schedule.step();
    return loss.item();
  }
  std::vector<Part> parts() {
    return {{"model", linear},
            {"dropout", dropout},
            {"optimizer", adam},
            {"schedule", schedule},
            {"data", data}};
  }
  State state() {
    State all;
    for (const Part& part : parts()) {
      for (auto& [name, tensor] : cloned(part.object().state())) {
        all.emplace_back(part.name() + "." + name, tensor);
      }
    }
    return all;
  }

  Rng data;
  Linear linear;
  Dropout dropout;
  Adam adam;
  LrScheduler schedule;
};

// A part that takes anything, or nothing.
struct Picky : Stateful {
  State state() const override { return {{"x", scalar(1.0)}}; }
  void load_state(const State&) override {
    if (refuses) throw ValueError("[Picky] no");
    ++loads;
  }
  bool refuses = true;
  int loads = 0;
};

// The file with its tensors and metadata changed; the checksum is then wrong.
template <class F>
void edit(const std::string& path, F change) {
  SafeTensors file = load_safetensors(path);
  change(file);
  save_safetensors(path, file.tensors, file.metadata);
}

}  // namespace

TEST_CASE("checkpoint: CKP-001, a resumed run is the run, bit for bit") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const std::string path = folder / "run.st";
  Run straight(1);
  for (int i = 0; i < 5; ++i) straight.step();
  save_checkpoint(path, straight.parts());
  Run resumed(2);  // other weights, other streams
  resumed.step();
  load_checkpoint(path, resumed.parts());
  CHECK(same_state(resumed.state(), straight.state()));
  for (int i = 0; i < 5; ++i) CHECK(resumed.step() == straight.step());
  CHECK(same_state(resumed.state(), straight.state()));
  CHECK(resumed.adam.lr() == straight.adam.lr());
}

TEST_CASE("checkpoint: the same state gives the same file") {
  const Folder folder;
  Run run(1);
  run.step();
  save_checkpoint(folder / "a", run.parts(), {{"note", "x"}});
  Run copy(3);
  load_checkpoint(folder / "a", copy.parts());
  save_checkpoint(folder / "b", copy.parts(), {{"note", "x"}});
  CHECK(bytes_of(folder / "a") == bytes_of(folder / "b"));
}

TEST_CASE("checkpoint: what is in it can be looked at, and loaded in part") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const std::string path = folder / "run.st";
  Run run(1);
  run.step();
  save_checkpoint(path, run.parts(), {{"step", "1"}});
  const Checkpoint checkpoint = read_checkpoint(path);
  CHECK(checkpoint.parts ==
        std::vector<std::string>{"model", "dropout", "optimizer", "schedule", "data"});
  CHECK(checkpoint.metadata == Metadata{{"step", "1"}});
  CHECK(checkpoint.softtape_version == SOFTTAPE_VERSION_STRING);
  CHECK(same_state(checkpoint.tensors, run.state()));
  CHECK(same_state(checkpoint.part("optimizer"), run.adam.state()));
  CHECK_THROWS_SAYING(ValueError, "Checkpoint", "\"mod\"; there are [model,",
                      checkpoint.part("mod"));
  Run other(2);
  other.linear.load_state(checkpoint.part("model"));
  CHECK(same_state(other.linear.state(), run.linear.state()));
  // It is a safetensors file like any other.
  const SafeTensors file = load_safetensors(path);
  CHECK(file.tensors.front().first == "model.weight");
  CHECK(file.metadata.at("format") == "softtape checkpoint");
  CHECK(file.metadata.at("format_version") == "1");
}

TEST_CASE("checkpoint: parts need names, and metadata keys of their own") {
  const Folder folder;
  const std::string path = folder / "x";
  Run run(1);
  CHECK_THROWS_SAYING(ValueError, "Part", "\"\"", Part("", run.linear));
  CHECK_THROWS_SAYING(ValueError, "Part", "\"a.b\"", Part("a.b", run.data));
  CHECK_THROWS_SAYING(ValueError, "save_checkpoint", "\"a\" is doubled",
                      save_checkpoint(path, {{"a", run.linear}, {"a", run.adam}}));
  CHECK_THROWS_SAYING(ValueError, "load_checkpoint", "\"a\" is doubled",
                      (save_checkpoint(path, {{"a", run.linear}}),
                       load_checkpoint(path, {{"a", run.linear}, {"a", run.adam}})));
  for (const char* key : {"format", "format_version", "softtape_version", "parts", "checksum"}) {
    CHECK_THROWS_SAYING(ValueError, "save_checkpoint", key,
                        save_checkpoint(path, {{"b", run.linear}}, {{key, "x"}}));
  }
  CHECK(read_checkpoint(path).parts.front() == "a");
  save_checkpoint(path, {});
  CHECK(load_checkpoint(path, {}).empty());
  CHECK(read_checkpoint(path).parts.empty());
}

TEST_CASE("checkpoint: missing and unknown parts") {
  const Folder folder;
  const std::string path = folder / "x";
  Run run(1), other(2);
  run.step();
  save_checkpoint(path, {{"model", run.linear}, {"optimizer", run.adam}});
  const State before = other.state();
  CHECK_THROWS_SAYING(ValueError, "load_checkpoint", "has a part \"optimizer\"",
                      load_checkpoint(path, {{"model", other.linear}}));
  CHECK_THROWS_SAYING(
      ValueError, "load_checkpoint", "has no part \"data\"; there are [model, optimizer]",
      load_checkpoint(path,
                      {{"model", other.linear}, {"optimizer", other.adam}, {"data", other.data}}));
  CHECK(same_state(other.state(), before));
  const auto left_alone =
      load_checkpoint(path, {{"model", other.linear}, {"data", other.data}}, {.strict = false});
  CHECK(left_alone == std::vector<std::string>{"data", "optimizer"});
  CHECK(same_state(other.linear.state(), run.linear.state()));
}

TEST_CASE("checkpoint: entries that are missing, unknown, of another shape or type") {
  const Folder folder;
  const std::string path = folder / "x";
  Rng rng(1);
  Linear saved(3, 2, rng), no_bias(3, 2, {.bias = false}, rng), wide(4, 2, rng), real(3, 2, rng);
  real.to(DType::float64);
  save_checkpoint(path, {{"net", saved}});
  const auto refused = [&]<class E>(E, Linear& model, bool strict, const std::string& words) {
    const State before = cloned(model.state());
    CHECK_THROWS_SAYING(E, "load_checkpoint", words,
                        load_checkpoint(path, {{"net", model}}, {.strict = strict}));
    CHECK(same_state(model.state(), before));
  };
  refused(ValueError(""), no_bias, true,
          "part \"net\": [load_state] names must be equal: missing [], unknown [bias]");
  for (const bool strict : {true, false}) {
    refused(ShapeError(""), wide, strict, "weight is (2, 4) here, (2, 3) there");
    refused(DtypeError(""), real, strict, "weight is float64 here, float32 there");
  }
  CHECK(load_checkpoint(path, {{"net", no_bias}}, {.strict = false}) ==
        std::vector<std::string>{"net.bias"});
  CHECK(test_support::same_bits(no_bias.weight.detach(), saved.weight.detach()));
  // The other way round: the file lacks what the model has.
  save_checkpoint(path, {{"net", no_bias}});
  const State before = cloned(real.state());
  refused(ValueError(""), saved, true, "missing [bias]");
  CHECK(load_checkpoint(path, {{"net", saved}}, {.strict = false}) ==
        std::vector<std::string>{"net.bias"});
  // Only modules know "not strict": a stream takes its whole state.
  save_checkpoint(path, {{"net", rng}});
  CHECK_THROWS_SAYING(ValueError, "load_checkpoint", "missing [weight, bias], unknown [state]",
                      load_checkpoint(path, {{"net", real}}));
  CHECK(same_state(real.state(), before));
  save_checkpoint(path, {{"net", saved}});
  CHECK_THROWS_SAYING(ValueError, "load_checkpoint", "a stream has one entry",
                      load_checkpoint(path, {{"net", rng}}, {.strict = false}));
}

TEST_CASE("checkpoint: when one part refuses, all others keep what they had") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const std::string path = folder / "x";
  Run run(1);
  Picky picky;
  const auto with_picky = [&picky](Run& r) {
    std::vector<Part> parts = r.parts();
    parts.emplace_back("picky", picky);
    return parts;
  };
  for (int i = 0; i < 3; ++i) run.step();
  save_checkpoint(path, with_picky(run));
  Run other(2);
  other.step();
  other.adam.set_lr(0.025);  // not what its schedule says
  const State before = other.state();
  CHECK_THROWS_SAYING(ValueError, "load_checkpoint", "part \"picky\": [Picky] no",
                      load_checkpoint(path, with_picky(other)));
  CHECK(same_state(other.state(), before));
  CHECK(other.adam.lr() == 0.025);
  picky.refuses = false;
  load_checkpoint(path, with_picky(other));
  CHECK(picky.loads == 1);
  CHECK(same_state(other.state(), run.state()));
}

TEST_CASE("checkpoint: foreign files, later formats and edits are refused") {
  const Folder folder;
  const std::string path = folder / "x";
  Rng rng(1);
  Linear model(2, 2, rng);
  const State before = cloned(model.state());
  const std::vector<Part> parts{{"m", model}, {"r", rng}};
  const auto refused = [&](const std::string& words, auto change) {
    save_checkpoint(path, parts, {{"note", "mine"}});
    edit(path, change);
    CHECK_THROWS_SAYING(IoError, "load_checkpoint", words, load_checkpoint(path, parts));
    CHECK_THROWS_SAYING(IoError, "read_checkpoint", words, read_checkpoint(path));
  };
  refused("not a checkpoint", [](SafeTensors& f) { f.metadata.clear(); });
  refused("not a checkpoint", [](SafeTensors& f) { f.metadata["format"] = "pt"; });
  refused("not a checkpoint", [](SafeTensors& f) { f.metadata.erase("checksum"); });
  refused("it is of version 2", [](SafeTensors& f) { f.metadata["format_version"] = "2"; });
  const std::string changed = "does not match its checksum";
  refused(changed, [](SafeTensors& f) { f.metadata["note"] = "yours"; });
  refused(changed, [](SafeTensors& f) { f.metadata["more"] = ""; });
  refused(changed, [](SafeTensors& f) { f.metadata.erase("note"); });
  refused(changed, [](SafeTensors& f) { f.metadata["parts"] = "n"; });
  refused(changed, [](SafeTensors& f) { f.metadata["softtape_version"] = "9.9.9"; });
  refused(changed, [](SafeTensors& f) { f.tensors.pop_back(); });
  refused(changed, [](SafeTensors& f) { f.tensors.back().first = "m.bios"; });
  refused(changed, [](SafeTensors& f) { std::swap(f.tensors[0], f.tensors[1]); });
  refused(changed, [](SafeTensors& f) { f.tensors[0].second = ones({2, 2}); });
  refused(changed, [](SafeTensors& f) {
    const auto numbers = f.tensors[1].second.to_vector<float>();
    f.tensors[1].second = tensor(numbers, {2, 1});
  });
  refused(changed, [](SafeTensors& f) {  // the same bytes as another type
    std::vector<double> numbers;
    for (const std::int64_t x : f.tensors[2].second.data<std::int64_t>()) {
      numbers.push_back(std::bit_cast<double>(x));
    }
    f.tensors[2].second = tensor(numbers, {.dtype = DType::float64});
  });
  CHECK(same_state(model.state(), before));
}

TEST_CASE("checkpoint: CKP-003, any damage is an error or changes nothing") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const std::string path = folder / "x.st";
  Rng rng(1), other_rng(2);
  Linear saved(2, 1, rng), model(2, 1, other_rng);
  save_checkpoint(path, {{"model", saved}, {"rng", rng}}, {{"note", "a"}});
  const State want = cloned(saved.state());
  const RngState want_rng = rng.state();
  const std::string good = bytes_of(path);
  const State before = cloned(model.state());
  const RngState before_rng = other_rng.state();
  int errors = 0;
  io_test::for_each_damage(
      good, [&](const std::string& what, const std::string& bad, std::size_t, bool cut) {
        put(path, bad);
        try {
          load_checkpoint(path, {{"model", model}, {"rng", other_rng}});
          CHECK_MESSAGE((!cut && same_state(model.state(), want) && other_rng.state() == want_rng),
                        what);
          model.load_state(before);
          other_rng.set_state(before_rng);
        } catch (const IoError&) {
          ++errors;
        }
        if (!same_state(model.state(), before) || other_rng.state() != before_rng) FAIL(what);
      });
  // All but other blanks.
  CHECK(errors > static_cast<int>(4 * good.size() - 30));
  put(path, good);
  load_checkpoint(path, {{"model", model}, {"rng", other_rng}});
  CHECK(same_state(model.state(), want));
}

TEST_CASE("checkpoint: CKP-003, a missing file, a folder, a random file, no room") {
  const Folder folder;
  Rng rng(1);
  Linear model(2, 2, rng);
  const std::vector<Part> parts{{"m", model}};
  const State before = cloned(model.state());
  CHECK_THROWS_SAYING(IoError, "read_file", "No such file", load_checkpoint(folder / "no", parts));
  CHECK_THROWS_SAYING(IoError, "read_file", "directory", load_checkpoint(folder.path(), parts));
  for (int i = 0; i < 20; ++i) {
    std::string noise;
    for (int k = 0; k < 500; ++k) noise += static_cast<char>(rng.integers(0, 256));
    put(folder / "noise", noise);
    CHECK_THROWS_SAYING(IoError, "load_checkpoint", "noise",
                        load_checkpoint(folder / "noise", parts));
  }
  CHECK_THROWS_AS(save_checkpoint(folder / "no/x", parts), IoError);
  CHECK_THROWS_AS(save_checkpoint(folder.path(), parts), IoError);
  CHECK(same_state(model.state(), before));
  CHECK(folder.entries() == 1);
}
