// What a device gives to the rest of RLX.
#pragma once
#include "rlx/session.h"

namespace rlx {

/// Memory of a device that holds one tensor of a dtype and shape that stay. Executables of the same backend share it.
class DeviceTensor {
 public:
  DeviceTensor(DType dtype, Extents shape) : dtype_(dtype), shape_(std::move(shape)) {}
  virtual ~DeviceTensor() = default;
  DType dtype() const { return dtype_; }
  const Extents& shape() const { return shape_; }
  Type type() const { return {dtype_, to_shape(shape_)}; }
  /// From the host. The value has the tensor's type.
  virtual void upload(const Array& value) = 0;
  /// To the host: a copy.
  virtual Array read() const = 0;

 private:
  DType dtype_;
  Extents shape_;
};
using DeviceTensorPtr = std::shared_ptr<DeviceTensor>;

/// A graph compiled by a backend. Names, values and types come checked: every leaf is bound or fed when it runs.
class Executable {
 public:
  virtual ~Executable() = default;
  /// The tensor, of the same backend, is the value of a param or an input from now on; an update writes it in place.
  virtual void bind(const std::string& leaf, DeviceTensorPtr tensor) = 0;
  /// Runs once, applies the updates, and gives the outputs that are asked for.
  virtual std::vector<Array> run(const ArrayMap& inputs, std::span<const int> outputs, const Bindings& symbols) = 0;
  /// An output of the last run, whether it was asked for or not; good until the next run. Null where there was none, or
  /// where the output is a bound tensor's own memory and that was written since.
  virtual DeviceTensorPtr result(int output) = 0;
  virtual std::string report() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) = 0;
  /// Zeros.
  virtual DeviceTensorPtr make_tensor(DType dtype, Extents shape) = 0;
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
