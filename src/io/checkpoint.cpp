// Checkpoints: parts to one state and back, and the checksum over it.
#include "softtape/io/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/crc64.hpp"
#include "io/elements.hpp"
#include "io/parse.hpp"
#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"
#include "softtape/nn/module.hpp"
#include "softtape/version.hpp"

namespace softtape {

namespace {

constexpr const char* kFormat = "softtape checkpoint";
constexpr const char* kFormatVersion = "1";
constexpr const char* kOwnKeys[] = {"format", "format_version", "softtape_version", "parts",
                                    "checksum"};

class StreamState final : public Stateful {
 public:
  explicit StreamState(Rng& stream) : stream_(stream) {}
  State state() const override { return {{"state", rng_to_tensor(stream_)}}; }
  void load_state(const State& state) override {
    if (state.size() != 1 || state.front().first != "state") {
      throw ValueError(fmt::format("[load_state] a stream has one entry, \"state\": got {}{}",
                                   state.size(),
                                   state.empty() ? "" : fmt::format(", {}", state[0].first)));
    }
    stream_ = rng_from_tensor(state.front().second);
  }

 private:
  Rng& stream_;
};

void check_part_name(const std::string& name) {
  // A dot ends the part's name in "PART.ENTRY", and stands between names in the metadata.
  if (name.empty() || name.find('.') != std::string::npos) {
    throw ValueError(
        fmt::format("[Part] a name must be non-empty and without dots: got \"{}\"", name));
  }
}

const std::string* first_doubled(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::count(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) > 0) {
      return &names[i];
    }
  }
  return nullptr;
}

std::vector<std::string> names_of(const std::vector<Part>& parts, const char* op) {
  std::vector<std::string> names;
  for (const Part& part : parts) names.push_back(part.name());
  if (const std::string* doubled = first_doubled(names)) {
    throw ValueError(
        fmt::format("[{}] every part needs a name of its own: \"{}\" is doubled", op, *doubled));
  }
  return names;
}

// "model.optimizer" to its names; empty text is no name.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    names.emplace_back(text.substr(0, dot));
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Loads one part, and says in every refusal which part it was.
void load_part(const Part& part, const State& state, bool strict, const std::string& what,
               std::vector<std::string>& left_alone) {
  const auto told = [&](const Error& error) {
    return fmt::format("{}, part \"{}\": {}", what, part.name(), error.what());
  };
  try {
    auto* module = dynamic_cast<Module*>(&part.object());
    if (strict || !module) {
      part.object().load_state(state);
      return;
    }
    for (const std::string& name : module->load_state(state, false)) {
      left_alone.push_back(fmt::format("{}.{}", part.name(), name));
    }
  } catch (const ShapeError& error) {
    throw ShapeError(told(error));
  } catch (const DtypeError& error) {
    throw DtypeError(told(error));
  } catch (const ValueError& error) {
    throw ValueError(told(error));
  }
}

}  // namespace

Part::Part(std::string name, Stateful& object)
    : name_(std::move(name)), object_(std::shared_ptr<void>(), &object) {
  check_part_name(name_);
}

Part::Part(std::string name, Rng& stream)
    : name_(std::move(name)), object_(std::make_shared<StreamState>(stream)) {
  check_part_name(name_);
}

State Checkpoint::part(const std::string& name) const {
  if (!contains(parts, name)) {
    throw ValueError(fmt::format("[Checkpoint] no part has this name: \"{}\"; there are [{}]", name,
                                 fmt::join(parts, ", ")));
  }
  State state;
  for (const auto& [full, tensor] : tensors) {
    if (full.compare(0, name.size() + 1, name + ".") == 0) {
      state.emplace_back(full.substr(name.size() + 1), tensor);
    }
  }
  return state;
}

namespace detail {

// Covers all that the file says, however its header is laid out: every text is behind its length.
std::string checksum(const State& tensors, const Metadata& metadata) {
  Crc64 crc;
  const auto number = [&crc](std::uint64_t x) {
    for (int shift = 0; shift < 64; shift += 8) {
      const char byte = static_cast<char>(x >> shift & 0xff);
      crc.update({&byte, 1});
    }
  };
  const auto text = [&](std::string_view s) {
    number(s.size());
    crc.update(s);
  };
  number(metadata.size());
  for (const auto& [key, value] : metadata) {
    if (key == "checksum") continue;
    text(key);
    text(value);
  }
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    text(name);
    text(to_string(tensor.dtype()));
    number(static_cast<std::uint64_t>(tensor.rank()));
    for (const std::int64_t size : tensor.shape()) number(static_cast<std::uint64_t>(size));
    bytes.clear();
    encode(tensor, bytes);
    crc.update(bytes);
  }
  return fmt::format("crc64:{:016x}", crc.value());
}

std::string checkpoint_bytes(const std::vector<Part>& parts, const Metadata& metadata) {
  constexpr const char* kOp = "save_checkpoint";
  const std::vector<std::string> names = names_of(parts, kOp);
  for (const char* key : kOwnKeys) {
    if (metadata.count(key) > 0) {
      throw ValueError(fmt::format("[{}] this key is the format's own: \"{}\"", kOp, key));
    }
  }
  State tensors;
  for (const Part& part : parts) {
    for (auto& [name, tensor] : part.object().state()) {
      if (!tensor.defined()) {
        throw GraphError(fmt::format("[{}] undefined tensor: \"{}.{}\"", kOp, part.name(), name));
      }
      tensors.emplace_back(fmt::format("{}.{}", part.name(), name), std::move(tensor));
    }
  }
  Metadata all = metadata;
  all.merge(Metadata{{"format", kFormat},
                     {"format_version", kFormatVersion},
                     {"softtape_version", SOFTTAPE_VERSION_STRING},
                     {"parts", fmt::format("{}", fmt::join(names, "."))},
                     {"checksum", ""}});
  all["checksum"] = checksum(tensors, all);
  return safetensors_bytes(tensors, all, kOp);
}

Checkpoint parse_checkpoint(std::string_view bytes, const std::string& what) {
  SafeTensors file = parse_safetensors(bytes, what);
  Metadata& metadata = file.metadata;
  for (const char* key : kOwnKeys) {
    if (metadata.count(key) == 0 || metadata["format"] != kFormat) {
      throw IoError(fmt::format(
          "{}: not a checkpoint of softtape; load_safetensors reads any tensors", what));
    }
  }
  if (metadata["format_version"] != kFormatVersion) {
    throw IoError(fmt::format(
        "{}: this softtape reads checkpoints of version {}: it is of version {}, by softtape {}",
        what, kFormatVersion, metadata["format_version"], metadata["softtape_version"]));
  }
  if (metadata["checksum"] != checksum(file.tensors, metadata)) {
    throw IoError(
        fmt::format("{}: damaged or changed: its content does not match its checksum", what));
  }
  Checkpoint checkpoint{std::move(file.tensors), split(metadata["parts"]), std::move(metadata), ""};
  checkpoint.softtape_version = checkpoint.metadata["softtape_version"];
  for (const char* key : kOwnKeys) checkpoint.metadata.erase(key);
  const auto has_part = [&](const auto& entry) {
    const std::size_t dot = entry.first.find('.');
    return dot != std::string::npos && contains(checkpoint.parts, entry.first.substr(0, dot));
  };
  if (first_doubled(checkpoint.parts) ||
      !std::all_of(checkpoint.tensors.begin(), checkpoint.tensors.end(), has_part)) {
    throw IoError(fmt::format("{}: its tensors do not match its list of parts", what));
  }
  return checkpoint;
}

std::vector<std::string> load_parts(const Checkpoint& checkpoint, const std::vector<Part>& parts,
                                    LoadOptions options, const std::string& what) {
  const std::vector<std::string> asked = names_of(parts, "load_checkpoint");
  std::vector<std::string> left_alone;
  for (const std::string& name : asked) {
    if (!contains(checkpoint.parts, name)) left_alone.push_back(name);
  }
  if (options.strict && !left_alone.empty()) {
    throw ValueError(fmt::format("{}: has no part \"{}\"; there are [{}]", what, left_alone.front(),
                                 fmt::join(checkpoint.parts, ", ")));
  }
  for (const std::string& name : checkpoint.parts) {
    if (contains(asked, name)) continue;
    left_alone.push_back(name);
    if (options.strict) {
      throw ValueError(fmt::format(
          "{}: has a part \"{}\" that was not asked for; {{.strict = false}} leaves it out", what,
          name));
    }
  }

  struct Load {
    const Part& part;
    State fresh, old;
  };
  std::vector<Load> loads;
  for (const Part& part : parts) {
    if (!contains(checkpoint.parts, part.name())) continue;
    State old;
    for (const auto& [name, tensor] : part.object().state()) {
      old.emplace_back(name, tensor.detach().clone());
    }
    loads.push_back({part, checkpoint.part(part.name()), std::move(old)});
  }
  std::size_t done = 0;
  try {
    for (const Load& load : loads) {
      load_part(load.part, load.fresh, options.strict, what, left_alone);
      ++done;
    }
  } catch (...) {
    // In reverse: a scheduler sets its optimiser's rates, which the optimiser then puts right.
    while (done-- > 0) loads[done].part.object().load_state(loads[done].old);
    throw;
  }
  return left_alone;
}

}  // namespace detail

void save_checkpoint(const std::string& path, const std::vector<Part>& parts,
                     const Metadata& metadata) {
  write_file(path, detail::checkpoint_bytes(parts, metadata));
}

std::vector<std::string> load_checkpoint(const std::string& path, const std::vector<Part>& parts,
                                         LoadOptions options) {
  const std::string what = fmt::format("[load_checkpoint] '{}'", path);
  return detail::load_parts(detail::parse_checkpoint(read_file(path), what), parts, options, what);
}

Checkpoint read_checkpoint(const std::string& path) {
  return detail::parse_checkpoint(read_file(path), fmt::format("[read_checkpoint] '{}'", path));
}

}  // namespace softtape
