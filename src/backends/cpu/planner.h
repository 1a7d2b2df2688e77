// The state of planning, shared by the files that plan one kind of step each.
#pragma once
#include <map>
#include <set>

#include "backends/cpu/plan.h"
#include "backends/cpu/row_program.h"
#include "rlx/ops.h"

namespace rlx::cpu {

using rlx::to_string;  // beside that of the instruction sets

/// A row program in the making: the nodes it computes and, for each value it needs, a register.
struct Group {
  int index = -1;                        // its place among the steps
  std::int64_t rows = 0, columns = 0;
  bool kept = false;
  bool open = true;
  std::vector<Instr> code;
  std::vector<Access> loads;
  std::vector<Space> registers;
  std::vector<Accumulator> accumulators;
  std::vector<std::string> places;       // what an error of a TakeColumn says of its node
  std::map<int, int> register_of;        // node → register
  std::map<std::string, int> loaded;     // what is loaded already
  std::set<int> reads, writes;
  std::vector<std::pair<std::size_t, int>> stores_after;  // after that instruction, the node's value goes to memory
  std::vector<std::pair<int, Access>> extra_stores;  // registers that no node stands for
  std::string name;
};

class Planner {
 public:
  Planner(const Graph& graph, const Bindings& symbols, const CompileOptions& options);
  Plan plan();

 private:
  struct NodeState {
    Extents shape;
    bool live = false, kept = false;
    int ready = 0;                       // the first step that can use the value
    int group = -1;                      // of an in-group value
    std::optional<View> memory;          // where it stands, once asked for
    std::optional<View> wide;            // of 16 bits: the f32 sums that it is rounded from, where a call made them
    std::optional<View> exact;           // of 16 bits: its value as f32, once asked for
    int concat = -1;                     // the concat whose buffer it is computed into, and from where
    std::int64_t concat_start = 0;
    Axes layout;                         // memory order of its axes, outermost first, where not the usual
    std::vector<int> users;
  };
  NodeState& at(Node n) { return nodes_[std::size_t(n.id())]; }
  Node node(int id) const { return graph_.node(id); }

  // planner.cpp
  void prepare();
  void choose_layouts();
  void choose_concat_places();
  void plan_node(Node n);
  void finish_groups();
  void assign_memory(Plan& plan);
  void place_updates(Plan& plan);
  int new_buffer(DType dtype, std::int64_t elements, bool kept);
  /// Allocates the memory that a node's value is computed into.
  View storage(Node n);
  /// Where the node's value stands in memory; makes it stand there.
  View memory(Node n);
  /// The same, side by side in row-major order.
  View contiguous_memory(Node n);
  /// What a row program reads: the sums that a 16-bit value is rounded from where it may (fused chains keep f32).
  std::pair<View, DType> row_memory(Node n);
  /// A float as f32 in memory: what calls that have no 16-bit form take.
  View f32_memory(Node n);
  View contiguous_f32_memory(Node n);
  /// The f32 memory that a call computes a node's value in. `finish_f32` rounds it where the node has 16 bits: at once,
  /// or when somebody wants them.
  View f32_storage(Node n);
  void finish_f32(Node n, const View& sums);
  /// A view of n's shape and memory order over a new buffer.
  View laid_out(Node n, DType dtype);
  View copied(const View& view, DType dtype, bool kept);
  /// Adds a step behind all that exist; it may read what is ready.
  int add_step(Step step);
  void plan_leaf(Node n);
  void plan_movement(Node n);
  void plan_concat(Node n);
  void plan_pad(Node n);
  void plan_interpreted(Node n);

  // plan_rows.cpp
  bool plan_widening(Node n);
  bool plan_row_op(Node n);
  bool plan_reduction(Node n);
  bool is_row_op(Node n) const;
  Group* find_group(Node n);
  /// A node that a sum in f64 computes itself.
  bool is_deferred(Node n) const;
  Group& new_group(std::int64_t rows, std::int64_t columns, bool kept);
  bool fits(const Group& g, const Extents& shape) const;
  bool aligned(Node operand, const Extents& shape) const;
  int operand(Group& g, Node operand, const Extents& shape);
  int load(Group& g, const View& view, DType dtype, const Extents& shape);
  int constant(Group& g, float value);
  int emit(Group& g, Instr instr, Space space);
  int emit_op(Group& g, Node n, const std::vector<int>& in);
  int emit_cast(Group& g, Node n, int in);
  void define(Group& g, Node n, int reg);
  bool plan_total(Node n, Node x);
  bool plan_row_reduction(Node n, Node x, const Axes& axes);
  bool plan_column_reduction(Node n, Node x, const Axes& axes);
  Group* group_with_rows_of(Node x, bool kept, int least);
  int row_operand(Group& g, Node x);
  bool plan_take(Node n);
  bool alias_in_group(Node n);
  Access store_access(const Group& g, View view, DType dtype) const;
  void finish_group(Group& g);

  // plan_calls.cpp
  View product_operand(Node m, DType dtype);
  void convert(const View& from, DType from_dtype, const View& to, DType to_dtype, bool kept);
  void add_product(Node n, DType dtype, View a, View b, const Extents& batch);
  bool plan_matmul(Node n);
  bool plan_dot_general(Node n);
  bool plan_conv(Node n);

  // plan_index.cpp
  bool plan_gather(Node n);
  bool plan_scatter(Node n);

  // plan_quant.cpp
  bool plan_scale(Node n);
  bool plan_quantize(Node n);
  bool plan_dequantize(Node n);
  bool plan_quant(Node n);

  // plan_pool.cpp
  bool plan_pool(Node n);
  bool plan_scatter_elements(Node n);

  const Graph& graph_;
  const Bindings& symbols_;
  const CompileOptions& options_;
  std::vector<NodeState> nodes_;
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Group>> groups_;  // by step; null where the step is another
};

/// A dtype that row programs load and store.
inline bool is_row_dtype(DType d) { return d == DType::F32 || d == DType::BF16 || d == DType::F16 || d == DType::Bool; }
std::string label_of(Node n);

}  // namespace rlx::cpu
