// A saved graph: its text and a safetensors file of its params.
#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "ops/eval.h"
#include "rlx/files.h"

namespace rlx {
namespace {

void check_params(const SavedGraph& saved, const std::string& path) {
  Nodes leaves = saved.graph.params();
  Bindings symbols;
  for (auto& leaf : leaves) {
    auto it = saved.params.find(leaf.name());
    if (it == saved.params.end()) throw UserError(fmt::format("{}: the param \"{}\" {} has no value", path, leaf.name(), to_string(leaf.type())));
    try {
      bind_leaf(leaf, it->second, symbols);
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}: {}", path, e.what()));
    }
  }
  for (auto& [name, value] : saved.params) {
    Node leaf = saved.graph.find_leaf(name);
    if (!leaf || !leaf.is(param_op)) throw UserError(fmt::format("{}: there is a value \"{}\", but the graph has no such param", path, name));
  }
}

}  // namespace

void save_graph(const SavedGraph& saved, const std::string& path) {
  check_params(saved, path);
  if (!saved.params.empty()) save_safetensors(path + ".safetensors", saved.params);
  write_file_atomic(path, saved.graph.text());
}

SavedGraph load_graph(const std::string& path) {
  SavedGraph out;
  try {
    out.graph = Graph::parse(read_file(path));
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", path, e.what()));
  }
  if (!out.graph.params().empty()) out.params = load_safetensors(path + ".safetensors").tensors;
  check_params(out, path);
  return out;
}

}  // namespace rlx
