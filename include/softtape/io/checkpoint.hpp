// Checkpoints: everything a run needs to go on bit for bit, in one file.
//
//   save_checkpoint("run.st", {{"model", model}, {"optimizer", adam}, {"rng", rng}});
//   load_checkpoint("run.st", {{"model", model}, {"optimizer", adam}, {"rng", rng}});
//   model.load_state(read_checkpoint("run.st").part("model"));  // the weights alone
//
// A checkpoint is a safetensors file: tensor "PART.ENTRY" is entry ENTRY of part PART's state, and
// the metadata holds the format and its version, the names of the parts, and a checksum over all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "softtape/io/safetensors.hpp"
#include "softtape/nn/state.hpp"

namespace softtape {

/// One named piece of a checkpoint. It refers to its object, which must outlive it.
class SOFTTAPE_API Part {
 public:
  /// A model, an optimiser, a scheduler, or any other Stateful.
  /// Throws (both): ValueError for a name that is empty or holds a dot.
  Part(std::string name, Stateful& object);
  /// A random stream; its one entry is "state".
  Part(std::string name, Rng& stream);

  const std::string& name() const { return name_; }
  Stateful& object() const { return *object_; }

 private:
  std::string name_;
  std::shared_ptr<Stateful> object_;  // owns only the wrapper of a stream
};

/// What a checkpoint file holds, for inspection.
struct SOFTTAPE_API Checkpoint {
  State tensors;                   ///< under their full names, "PART.ENTRY"
  std::vector<std::string> parts;  ///< in the order in which they were saved
  Metadata metadata;               ///< what save_checkpoint was given
  std::string softtape_version;    ///< of the library that wrote it: "0.1.0"

  /// The state of one part, names without "PART.": what its load_state takes.
  /// Throws: ValueError when there is no such part.
  State part(const std::string& name) const;
};

struct LoadOptions {
  /// Whether the parts, and the names inside them, must be those of the file.
  bool strict = true;
};

/// Writes the state of all parts, whole or not at all: a reader, or a run killed half-way, finds
/// the old file or the new one.
/// `metadata` is the caller's own; the keys "format", "format_version", "softtape_version", "parts"
/// and "checksum" are taken.
/// Throws: ValueError for a part named twice, a taken key or text that is not UTF-8; IoError when
/// the file cannot be written.
SOFTTAPE_API void save_checkpoint(const std::string& path, const std::vector<Part>& parts,
                                  const Metadata& metadata = {});

/// Brings all parts back, in the order given. All or nothing: where one part refuses its state,
/// those before it get their old one back.
/// Not strict: parts, and entries of a Module, that are only on one side are left alone, and their
/// names are returned. What is on both sides must fit all the same.
/// Throws: IoError for a file that is missing, foreign, cut, changed, or of a later format;
/// ValueError naming a missing, unknown or doubled part or entry; ShapeError or DtypeError naming
/// the entry that does not fit.
SOFTTAPE_API std::vector<std::string> load_checkpoint(const std::string& path,
                                                      const std::vector<Part>& parts,
                                                      LoadOptions options = {});

/// Reads a checkpoint without an object to put it into. Throws: IoError as load_checkpoint does.
SOFTTAPE_API Checkpoint read_checkpoint(const std::string& path);

}  // namespace softtape
