// One row defines an op. The built-in rows are listed in src/ops/ops.def; a user's op is the same struct, registered
// at run time.
#pragma once
#include <concepts>

#include "rlx/attrs.h"
#include "rlx/graph.h"

namespace rlx {

enum class Kind : std::uint8_t { Leaf, Elementwise, Reduce, Movement, Contract, Index, Random, Pool, Quant, Composite };

/// What goes into an elementwise or reduce op, and so what comes out.
enum class DTypes : std::uint8_t {
  Any,        // whatever: the promoted dtype
  Number,     // integers and floats: the promoted dtype
  Float,      // floats
  Int,        // integers and bool
  Compare,    // whatever; gives bool
  Logic,      // bool
  Predicate,  // a float; gives bool
  Select,     // a bool, then whatever
};

/// In what precision an op may compute: what auto_mixed_precision goes by (docs/mixed_precision.md).
enum class AmpClass : std::uint8_t {
  ByKind,       // in a row: the usual one of its kind
  Compute,      // products: in 16 bits, with f32 sums
  Reduction,    // what needs f32's digits or range: sums, norms, losses, softmax, exponentials, powers
  Elementwise,  // as its operands come
  Movement,     // as its operand comes
  Boundary,     // keeps the dtypes it was made with: leaves, casts, random numbers, quantisation
};
std::span<const std::string_view> enum_names(AmpClass);

using Coords = std::vector<std::int64_t>;

struct TypeArgs {
  std::span<const Type> in;
  const Attrs& attrs;
  const OpDef& op;
};
/// What a reference evaluation gets: values with all sizes known.
struct EvalArgs {
  std::span<const Array> in;
  const Attrs& attrs;
  DType dtype;             // of the output
  const Extents& shape;    // of the output
  const Bindings& symbols;
  const OpDef& op;
};
struct BodyArgs {
  std::span<const Node> in;
  const Attrs& attrs;
  const OpDef& op;
};
/// What a gradient rule gets: a (or x), b, c are the inputs; y the output; dy its cotangent.
struct GradArgs {
  std::span<const Node> in;
  Node x, a, b, c, y, dy;
  const Attrs& attrs;
  const OpDef& op;
};

/// A column that holds code: a function or a captureless lambda. It remembers that it was given, because under
/// -fsanitize=undefined g++ 12 can't compare a template function's address with null at compile time.
template <class Signature> class Column;
template <class R, class... A> class Column<R(A...)> {
 public:
  using Function = R (*)(A...);
  constexpr Column() = default;
  constexpr Column(std::nullptr_t) {}
  template <class F>
    requires std::convertible_to<F, Function>
  constexpr Column(F f) : function_(f), given_(true) {}
  constexpr operator Function() const { return function_; }  // a call has no frame of its own
  constexpr explicit operator bool() const { return given_; }

 private:
  Function function_ = nullptr;
  bool given_ = false;
};

/// The scalar formula of an elementwise op (of a reduce: how two elements combine) at each type it is computed in.
struct Formula {
  Column<double(const double*)> f64 = {};
  Column<std::int64_t(const std::int64_t*)> i64 = {};
  Column<std::uint64_t(const std::uint64_t*)> u64 = {};
};

/// A composite's body: a lambda with the op's own parameters, (Node x, const AxisAttrs& attrs), or with BodyArgs.
class Body : public Column<Node(const BodyArgs&)> {
 public:
  constexpr Body() = default;
  template <class F>
    requires std::is_empty_v<F>
  constexpr Body(F) : Column(from(&F::operator())) {}

 private:
  template <class P> static decltype(auto) pick(const BodyArgs& args, [[maybe_unused]] std::size_t i) {
    if constexpr (std::same_as<P, Node>) return Node(args.in[i]);
    else return args.attrs.as<std::remove_cvref_t<P>>();
  }
  template <class F, class Indices, class... P> struct Unpack;
  template <class F, std::size_t... i, class... P> struct Unpack<F, std::index_sequence<i...>, P...> {
    static Node call(const BodyArgs& args) { return F{}(pick<P>(args, i)...); }
  };
  template <class F> static constexpr Function from(Node (F::*)(const BodyArgs&) const) {
    return [](const BodyArgs& args) { return F{}(args); };
  }
  template <class F, class... P> static constexpr Function from(Node (F::*)(P...) const) {
    return Unpack<F, std::index_sequence_for<P...>, P...>::call;
  }
};

/// One row defines an op. Which columns its kind needs is said once, in `missing_column`.
struct OpDef {
  // What a caller sees.
  std::string_view name = {};
  Kind kind = Kind::Leaf;
  int min_inputs = 0, max_inputs = 0;             // max -1: any number
  std::string_view signature = {};                // (Node x, int axis)
  const AttrsInfo* attrs = &kAttrsInfo<NoAttrs>;
  std::string_view doc = {};
  // What it does.
  DTypes dtypes = DTypes::Number;
  bool commutative = false;
  bool backward = false;                          // composite: a part of a gradient, which lower_backward_ops expands
  bool codes = false;                             // gives codes that stand for floats: their cotangent is that of the values, an f32
  double ulp = 0;                                 // error bound of its evaluation in units of the last place
  AmpClass amp = AmpClass::ByKind;                // see amp_class
  Column<Type(const TypeArgs&)> infer = {};       // elementwise and reduce have one per kind, composites their body
  Body body = {};                                 // composite: its meaning in other ops
  Formula formula = {};                           // elementwise; of a reduce, how two elements combine
  double init = 0;                                // of a reduce
  Column<void(Coords& from, const Coords& at, std::span<const Extents> in, const EvalArgs&)> source = {};  // movement of one input:
                                                  // where the element at `at` comes from
  Column<Array(const EvalArgs&)> eval = {};       // the reference value; elementwise, reduce and movement have one per kind
  Column<Nodes(const GradArgs&)> grad = {};       // the cotangent of each input; a composite may leave it to its body
  std::string_view formula_text = {}, grad_text = {};
  const void* user = nullptr;                     // what a user's functions need; lives as long as the process
};

/// The op's own class, or the usual one of its kind. A composite that doesn't say is a boundary.
constexpr AmpClass amp_class(const OpDef& op) {
  if (op.amp != AmpClass::ByKind) return op.amp;
  switch (op.kind) {
    case Kind::Contract: return AmpClass::Compute;
    case Kind::Reduce: return AmpClass::Reduction;
    case Kind::Elementwise: return AmpClass::Elementwise;
    case Kind::Movement:
    case Kind::Index:
    case Kind::Pool: return AmpClass::Movement;
    case Kind::Leaf:
    case Kind::Random:
    case Kind::Quant:
    case Kind::Composite: break;
  }
  return AmpClass::Boundary;
}

/// The first column that a row's kind needs and the row lacks, or null. The compiler runs it on our rows,
/// register_op on a user's.
constexpr const char* missing_column(const OpDef& op) {
  if (op.name.empty() || op.doc.empty()) return "name or doc";
  if (op.kind == Kind::Leaf) return nullptr;
  if (op.max_inputs == 0 && op.kind != Kind::Movement && op.kind != Kind::Random) return "inputs";
  if (op.kind == Kind::Composite) return op.body ? nullptr : "body";
  if (!op.grad) return "grad";
  if (op.kind == Kind::Elementwise) return op.formula.f64 || op.formula.i64 ? nullptr : "formula";
  if (op.kind == Kind::Reduce) return op.formula.f64 || op.formula.i64 || op.eval ? nullptr : "formula or eval";
  if (!op.infer) return "infer";
  if (op.kind == Kind::Movement) return op.source || op.eval ? nullptr : "source or eval";
  return op.eval ? nullptr : "eval";
}

std::span<const OpDef* const> builtin_ops();
/// Built in or registered, or null.
const OpDef* find_op(std::string_view name);
/// Throws UserError where a column is missing or the name is taken.
const OpDef& register_op(OpDef row);
extern const OpDef input_op, param_op, constant_op, any_op;

template <class T> const T& Node::attrs() const { return attrs().template as<T>(); }

}  // namespace rlx
