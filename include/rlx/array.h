// Shapes, with symbolic dims, and the host tensor.
#pragma once
#include <map>
#include <memory>

#include "rlx/base.h"

namespace rlx {

// ---------------------------------------------------------------------------------------------- shapes

/// Sizes that are known numbers.
using Extents = std::vector<std::int64_t>;
/// What each symbol stands for at a run.
using Bindings = std::map<std::string, std::int64_t, std::less<>>;

/// The size of an axis: a number, or an expression over symbols such as `batch` or `2*seq + 1`. Kept in a canonical
/// form (a polynomial over symbols, floor quotients, and min / max), so that equal expressions compare equal.
class Dim {
 public:
  constexpr Dim() = default;
  constexpr Dim(std::int64_t number) : number_(number) {}  // NOLINT: Shape{2, 3} is the point
  constexpr Dim(int number) : number_(number) {}           // NOLINT
  /// A symbol's name is a letter or '_' and then letters, digits, '_' or '.'. Throws UserError on another.
  static Dim symbol(std::string_view name);
  /// Parses what to_string prints: `batch`, `seq + 1`, `floor(seq, 2)`, `max(a, b)`. Throws UserError.
  static Dim parse(std::string_view text);

  bool is_number() const { return !terms_; }
  /// Throws UserError where the dim is symbolic.
  std::int64_t number() const;
  /// The value under `symbols`; throws UserError when one is missing or the result overflows.
  std::int64_t evaluate(const Bindings& symbols) const;
  void collect_symbols(std::vector<std::string>& into) const;
  /// Solves `this == value` for the one unbound symbol and binds it. False where that is not possible: no or several
  /// unbound symbols, not linear in it, or the solution is not whole or negative.
  bool solve(std::int64_t value, Bindings& symbols) const;
  std::string text() const;

  friend Dim operator+(const Dim&, const Dim&);
  friend Dim operator-(const Dim&, const Dim&);
  friend Dim operator*(const Dim&, const Dim&);
  friend bool operator==(const Dim&, const Dim&);
  friend Dim floor_div(const Dim&, const Dim&);
  friend Dim min(const Dim&, const Dim&);
  friend Dim max(const Dim&, const Dim&);

 private:
  struct Terms;
  std::int64_t number_ = 0;               // the value where terms_ is null
  std::shared_ptr<const Terms> terms_ = nullptr;
};
Dim floor_div(const Dim&, const Dim&);    // rounds to minus infinity; throws UserError on division by zero
Dim ceil_div(const Dim&, const Dim&);
Dim min(const Dim&, const Dim&);
Dim max(const Dim&, const Dim&);
inline Dim operator-(const Dim& d) { return Dim(0) - d; }

using Shape = std::vector<Dim>;
using Axes = std::vector<int>;

bool is_static(const Shape&);
/// The number of elements.
Dim count(const Shape&);
/// The number of elements. Throws UserError where it does not fit 63 bits.
std::int64_t count(const Extents&);
Shape to_shape(const Extents&);
/// Throws UserError where a dim is symbolic.
Extents to_extents(const Shape&);
Extents evaluate(const Shape&, const Bindings&);
std::string to_string(const Shape&);    // [2,seq + 1]
std::string to_string(const Extents&);  // [2,3]
/// NumPy's broadcasting. A symbolic dim broadcasts with 1 and with itself. Throws UserError.
Shape broadcast(const Shape& a, const Shape& b);
/// An axis in [-rank, rank) as one in [0, rank). Throws UserError that says so.
int normalize_axis(int axis, int rank);
Axes normalize_axes(const Axes& axes, int rank);  // and that none stands twice; sorted

/// What a node gives: the dtype and shape of its value.
struct Type {
  DType dtype = DType::Any;
  Shape shape;
  bool operator==(const Type&) const = default;
};
std::string to_string(const Type&);       // f32[2,3]
Type type_from_string(std::string_view);  // throws UserError

// ---------------------------------------------------------------------------------------------- arrays

/// A dense, row-major host tensor. A handle: copies share the bytes; `clone` makes its own. Owned memory is aligned to
/// 64 bytes and zeroed.
class Array {
 public:
  Array() = default;
  Array(DType, Extents shape);
  /// Throws UserError where the number of values is not the shape's.
  template <class T> Array(const std::vector<T>& values, Extents shape);
  /// Borrows `bytes`, which must outlive the array and every copy of it.
  static Array borrow(void* bytes, DType, Extents shape);
  /// Shares the bytes with whatever `owner` keeps alive (a mapped file).
  static Array share(std::shared_ptr<void> owner, void* bytes, DType, Extents shape);
  static Array scalar(double value, DType);
  /// NumPy's .npy, C or Fortran order. Throws UserError on a file that is not one, DeviceError where it cannot be read.
  static Array load_npy(const std::string& path);
  /// Atomic: writes a temporary file beside `path` and renames it.
  void save_npy(const std::string& path) const;

  DType dtype() const { return dtype_; }
  const Extents& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::size_t byte_size() const { return std::size_t(size_) * (dtype_ == DType::Any ? 0 : size_of(dtype_)); }
  Type type() const { return {dtype_, to_shape(shape_)}; }
  std::byte* bytes() const { return bytes_.get(); }
  /// The elements. Throws UserError where T is not the dtype's C++ type.
  template <class T> std::span<T> values() const {
    if (dtype_of<std::remove_const_t<T>>() != dtype_) wrong_type(dtype_of<std::remove_const_t<T>>());
    return {reinterpret_cast<T*>(bytes_.get()), std::size_t(size_)};
  }
  /// The elements converted; ints saturate, NaN becomes 0 there.
  template <class T> std::vector<T> to_vector() const;
  /// The i-th element in row-major order as a double.
  double at(std::int64_t i) const;
  Array clone() const;
  /// The same bytes in another shape of as many elements.
  Array reshaped(Extents shape) const;
  Array cast(DType) const;

 private:
  [[noreturn]] void wrong_type(DType wanted) const;

  DType dtype_ = DType::Any;
  Extents shape_;
  std::int64_t size_ = 0;
  std::shared_ptr<std::byte> bytes_;
};
/// Same dtype, shape and bytes.
bool identical(const Array&, const Array&);

template <class T> Array::Array(const std::vector<T>& values, Extents shape) : Array(dtype_of<T>(), std::move(shape)) {
  if (std::int64_t(values.size()) != size_)
    throw UserError("array: got " + std::to_string(values.size()) + " values for shape " + to_string(shape_));
  auto out = this->values<T>();
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
}

}  // namespace rlx
