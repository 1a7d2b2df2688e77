// The devices of this process: the built-in ones, made at first use, and those that were registered.
#include <fmt/format.h>

#include <mutex>

#include "backends/backend.h"

namespace rlx {
namespace {

std::mutex mutex;

std::vector<std::unique_ptr<Backend>>& backends() {
  static std::vector<std::unique_ptr<Backend>> all = [] {
    std::vector<std::unique_ptr<Backend>> out;
    out.push_back(make_cpu_backend());
    out.push_back(make_reference_backend());
    out.push_back(make_null_backend());
    return out;
  }();
  return all;
}

}  // namespace

Backend* find_backend(std::string_view name) {
  std::lock_guard lock(mutex);
  for (auto& b : backends())
    if (b->name() == name) return b.get();
  return nullptr;
}

void register_backend(std::unique_ptr<Backend> backend) {
  if (find_backend(backend->name())) throw UserError(fmt::format("register_backend: there is a device \"{}\" already", backend->name()));
  std::lock_guard lock(mutex);
  backends().push_back(std::move(backend));
}

std::vector<std::string> backend_names() {
  std::lock_guard lock(mutex);
  std::vector<std::string> out;
  for (auto& b : backends()) out.push_back(b->name());
  return out;
}

}  // namespace rlx
