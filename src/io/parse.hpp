// The readers of files, on bytes in memory: what load_... calls on a whole file, and fuzzers on
// anything. `what` begins every message: "[load_npy] 'x.npy'".
#pragma once

#include <string>
#include <string_view>

#include "softtape/io/checkpoint.hpp"
#include "softtape/io/safetensors.hpp"

namespace softtape::detail {

Tensor parse_npy(std::string_view bytes, const std::string& what);
std::string npy_bytes(const Tensor& tensor);

SafeTensors parse_safetensors(std::string_view bytes, const std::string& what);
std::string safetensors_bytes(const State& tensors, const Metadata& metadata, const char* op);

/// What a checkpoint's metadata holds under "checksum"; that key itself counts only as there.
std::string checksum(const State& tensors, const Metadata& metadata);
Checkpoint parse_checkpoint(std::string_view bytes, const std::string& what);
std::string checkpoint_bytes(const std::vector<Part>& parts, const Metadata& metadata);
std::vector<std::string> load_parts(const Checkpoint& checkpoint, const std::vector<Part>& parts,
                                    LoadOptions options, const std::string& what);

}  // namespace softtape::detail
