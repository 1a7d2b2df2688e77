// The case table: a row or a few for each op. The tests multiply it: values by dtype, gradients against central
// differences, bodies against rules, text, empty and scalar shapes; backends against the reference.
#pragma once
#include <functional>

#include "ops/eval.h"
#include "rlx/ops.h"

namespace rlx {

/// What an input of a case holds.
enum class Fill {
  Value,     // of the dtype the case runs in, even in [low, high]
  Distinct,  // the same, but no two equal: evenly spaced, shuffled
  Index,     // i64 in [low, high)
  Bool,
  Seed,  // an i64 scalar
  Code,  // u8 in [low, high)
};
struct CaseInput {
  Extents shape;
  double low = -2, high = 2;
  Fill fill = Fill::Value;
};

/// The dtypes of the values that an op takes.
enum class Over { Float, Number, Int, IntBool, Bool, All, Fixed };  // Fixed: the case has no Value input

enum class Gradient {
  None,
  Checked,  // against central differences
  Rule,     // not the derivative: straight-through and the like
};

struct OpCase {
  std::string op;  // its name in the table
  std::vector<CaseInput> inputs;
  Node (*build)(const Nodes& n, Graph graph);
  Over over = Over::Float;
  Gradient gradient = Gradient::Checked;
  /// Of floats: how far a result may lie from the f64 evaluation's, in units of the dtype's epsilon times
  /// max(1, |value|). 0: it is that value rounded once, to the bit.
  double error = 0;
  /// Of gradients in narrower floats, in units of epsilon times max(1, the largest).
  double gradient_error = 16;
  std::string variant = {};

  std::string name() const { return variant.empty() ? op : op + "/" + variant; }
};

const std::vector<OpCase>& op_cases();

/// The dtypes that a case runs in.
std::vector<DType> case_dtypes(const OpCase& c);
/// The same values for every dtype, rounded to it.
std::vector<Array> case_values(const OpCase& c, DType dtype);
/// A graph with inputs x0, x1 … of those types; its output is the case's.
Graph case_graph(const OpCase& c, DType dtype);
Feeds case_feeds(const std::vector<Array>& values);
double epsilon(DType dtype);

}  // namespace rlx
