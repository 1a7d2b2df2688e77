// What a device gives to the rest of RLX.
#pragma once
#include "rlx/session.h"

namespace rlx {

/// A graph compiled by a backend. Values come checked: every param and input has the leaf's dtype and a shape that fits.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual void set_param(const std::string& name, const Array& value) = 0;
  /// A copy of what the param holds now.
  virtual Array param(const std::string& name) const = 0;
  /// Runs once, applies the updates, and gives the outputs that are asked for.
  virtual std::vector<Array> run(const ArrayMap& inputs, std::span<const int> outputs, const Bindings& symbols) = 0;
  virtual std::string report() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) = 0;
};

/// Throws UserError where the name is taken.
void register_backend(std::unique_ptr<Backend> backend);
/// Or null.
Backend* find_backend(std::string_view name);
std::vector<std::string> backend_names();

std::unique_ptr<Backend> make_reference_backend();
std::unique_ptr<Backend> make_null_backend();
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace rlx
