// What the bodies of the neural network composites share.
#pragma once
#include "ops/define.h"

namespace rlx {

/// f16 and bf16 as f32, in which sums, exponentials and norms are taken; f32 and f64 as they are. Throws UserError on
/// what is not a float.
Node widen(Node x);
Node to_dtype(Node x, DType dtype);
/// The part [start, start + size) of the last axis.
Node part_of_last(Node x, Dim start, Dim size);
/// Whether NumPy would repeat `from` to `to`.
bool broadcasts_to(const Shape& from, const Shape& to);
/// The nodes up to the last that is one: how a builder packs optional inputs.
Nodes given(std::initializer_list<Node> inputs);

}  // namespace rlx
