// From a graph with known sizes to the steps that compute it: views instead of movement, elementwise chains fused into
// row programs, library calls, and the interpreter for the rest; then one arena for everything that lives in between.
#pragma once
#include <functional>

#include "rlx/session.h"

namespace rlx::cpu {

struct Buffer {
  // Next: the value that a param has after the run. Kept: what depends only on params that stay.
  enum class Place : std::uint8_t { Arena, Leaf, Next, Constant, Kept };
  Place place = Place::Arena;
  DType dtype = DType::F32;
  std::int64_t elements = 0;
  std::string leaf;               // of an input or param, or of the param to be updated
  Array constant;
  int first = -1, last = -1;      // the steps between which it lives, in the arena
  std::size_t offset = 0;         // in the arena or the kept memory
  std::size_t bytes() const { return std::size_t(elements) * size_of(dtype); }
};

struct Step {
  std::string name;
  std::vector<int> reads, writes;  // buffers
  bool kept = false;               // depends on params only: runs when one has changed
  bool interpreted = false;
  std::function<void(std::byte* const* buffers)> run;
};

/// Where an output stands after the steps have run.
struct Result {
  int buffer = -1;
  DType dtype = DType::F32;
  std::int64_t offset = 0;
  Extents shape, strides;
};

struct Plan {
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<Result> results;     // one an output of the graph
  std::size_t arena_bytes = 0, kept_bytes = 0;
  std::size_t peak_bytes = 0;      // the most that lives at one step: what no arena can be smaller than
};

/// The composites that have a kernel of their own.
bool is_claimed(Node n);
/// Nothing that reads a param which the options update is kept.
Plan make_plan(const Graph& graph, const Bindings& symbols, const CompileOptions& options);

/// Copies a strided window to another of the same shape, in parallel where it is large.
void copy_strided(const std::byte* from, const Extents& from_strides, std::byte* to, const Extents& to_strides, const Extents& shape, std::size_t width);

}  // namespace rlx::cpu
