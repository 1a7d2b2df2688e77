// Elementwise ops and reductions become row programs. A node joins a program that computes or loads one of its operands
// over the same rows and columns, as long as everything else it needs is ready before that program.
#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/planner.h"
#include "ops/eval.h"

namespace rlx::cpu {
namespace {

constexpr std::size_t kMostCode = 400;  // instructions of one program

std::string load_key(Node n, const Extents& laid) { return fmt::format("{} {}", n.id(), to_string(laid)); }
std::int64_t last_of(const Extents& shape) { return shape.empty() ? 1 : shape.back(); }
Extents with_last_one(Extents shape) {
  if (!shape.empty()) shape.back() = 1;
  return shape;
}
bool is_scalar_constant(Node n) { return n.is(constant_op) && n.attrs<ConstantAttrs>().value.size() == 1; }

bool is_total(const Extents& shape, const Axes& axes) {
  for (int d = 0; d < int(shape.size()); ++d)
    if (shape[std::size_t(d)] != 1 && std::ranges::find(axes, d) == axes.end()) return false;
  return true;
}
Axes axes_of(Node n) { return normalize_axes(n.attrs<ReduceAttrs>().axes, n.input(0).rank()); }

std::optional<Reduction> reduction_of(Node n) {
  if (n.is(ops::sum) || n.is(ops::mean)) return Reduction::Sum;
  if (n.is(ops::max) || n.is(ops::any)) return Reduction::Max;
  if (n.is(ops::min) || n.is(ops::all)) return Reduction::Min;
  if (n.is(ops::prod)) return Reduction::Prod;
  return {};
}

// Whether the op's values are whole numbers that fit i8: then a cast to i8 changes nothing.
bool is_small_integer(Node n) {
  if (!n.is(ops::minimum) && !n.is(ops::maximum) && !n.is(ops::clamp)) return false;
  bool rounded = false;
  for (Node walk = n; !rounded && (walk.is(ops::minimum) || walk.is(ops::maximum) || walk.is(ops::clamp));) {
    for (auto& in : walk.inputs())
      if (is_scalar_constant(in) && std::abs(in.attrs<ConstantAttrs>().value.at(0)) > 128) return false;
    walk = is_scalar_constant(walk.input(0)) ? walk.input(1) : walk.input(0);
    rounded = walk.is(ops::round);
  }
  return rounded;
}

// A chain of magnitudes over a cast of what row programs load.
bool is_f64_of_narrow(Node n) {
  while (n.is(ops::abs) && n.dtype() == DType::F64) n = n.input(0);
  return n.is(ops::cast) && n.dtype() == DType::F64 && is_row_dtype(n.input(0).dtype());
}

// Integers that f32 holds exactly.
bool is_small_constant(Node n) {
  if (!is_int(n.dtype())) return false;
  while (n.is(ops::reshape) || n.is(ops::expand) || n.is(ops::transpose)) n = n.input(0);
  if (n.is(ops::iota)) return is_static(n.shape()) && n.dim(n.attrs<IotaAttrs>().axis).number() <= 1 << 24;
  if (!n.is(constant_op)) return false;
  auto& value = n.attrs<ConstantAttrs>().value;
  for (std::int64_t i = 0; i < value.size(); ++i)
    if (std::abs(value.at(i)) > 1 << 24) return false;
  return true;
}

// A comparison of integers with small constants (labels with class numbers, positions with lengths): as f32 it gives
// the same, since rounding the other operand keeps its side of every number up to 2^24.
bool is_small_comparison(Node n) {
  if (n.op().dtypes != DTypes::Compare) return false;
  bool small = false;
  for (auto& in : n.inputs()) {
    if (in.dtype() != DType::I64 && in.dtype() != DType::I32) return false;
    small |= is_small_constant(in);
  }
  return small;
}

}  // namespace

// ---------------------------------------------------------------------------------------------- what can be fused

bool Planner::is_row_op(Node n) const {
  if (n.op().kind != Kind::Elementwise) return false;
  if (is_small_comparison(n)) return true;
  for (auto& in : n.inputs())
    if (!is_row_dtype(in.dtype()) && !(n.is(ops::cast) && (in.dtype() == DType::I8 || in.dtype() == DType::U8 || in.dtype() == DType::I32))) return false;
  if (n.is(ops::cast)) return is_row_dtype(n.dtype()) || (n.dtype() == DType::I8 && is_row_dtype(n.input(0).dtype()));
  if (!is_row_dtype(n.dtype())) return false;
  if (n.is(ops::where)) return true;
  if (int id = unary_id(n.op()); id >= 0) return row_kernels().unary[id] != nullptr;
  if (int id = binary_id(n.op()); id >= 0) return row_kernels().binary[id].vv != nullptr;
  return false;
}

bool Planner::fits(const Group& g, const Extents& shape) const {
  std::int64_t n = count(shape);
  if (n == g.rows * g.columns && (g.columns == 1 || last_of(shape) == g.columns)) return true;
  return n == g.rows && g.columns != 1;
}

// Whether a value of the group is, at each row and column of a node of `shape`, the element that broadcasting picks.
bool Planner::aligned(Node operand, const Extents& shape) const {
  auto& own = nodes_[std::size_t(operand.id())].shape;
  return own == shape || (own.size() == shape.size() && own == with_last_one(shape));
}

// The latest program that n can join, or null.
Group* Planner::find_group(Node n) {
  auto& state = at(n);
  const Nodes& operands = n.inputs();
  auto ready_outside = [&](Node m) { return at(m).group >= 0 ? at(m).group + 1 : at(m).ready; };
  for (int i = int(groups_.size()) - 1; i >= 0; --i) {
    Group* g = groups_[std::size_t(i)].get();
    bool possible = true, joins = false;
    for (auto& m : operands) {
      if (is_scalar_constant(m)) continue;
      bool inside = g && at(m).group == i && aligned(m, state.shape);
      if (!inside && ready_outside(m) > i) possible = false;
      joins |= inside || (g && g->loaded.contains(load_key(m, state.shape)));
    }
    if (!possible) {
      bool hopeless = std::ranges::any_of(operands, [&](Node m) { return !is_scalar_constant(m) && at(m).ready > i; });
      if (hopeless) return nullptr;
      continue;
    }
    if (g && joins && g->open && g->kept == state.kept && fits(*g, state.shape) && g->code.size() < kMostCode) return g;
  }
  return nullptr;
}

Group& Planner::new_group(std::int64_t rows, std::int64_t columns, bool kept) {
  int index = add_step({});
  groups_[std::size_t(index)] = std::make_unique<Group>();
  Group& g = *groups_[std::size_t(index)];
  g.index = index, g.rows = rows, g.columns = columns, g.kept = kept;
  return g;
}

// ---------------------------------------------------------------------------------------------- emitting

int Planner::emit(Group& g, Instr instr, Space space) {
  g.registers.push_back(space);
  instr.dst = int(g.registers.size()) - 1;
  g.code.push_back(instr);
  return instr.dst;
}

int Planner::constant(Group& g, float value) {
  std::string key = fmt::format("constant {:a}", value);
  if (auto it = g.loaded.find(key); it != g.loaded.end()) return it->second;
  return g.loaded[key] = emit(g, {.op = Instr::Op::Constant, .number = value}, Space::Scalar);
}

int Planner::load(Group& g, const View& view, DType dtype, const Extents& shape) {
  View laid = broadcast_view(view, shape);
  bool one_a_row = g.columns != 1 && count(shape) == g.rows && !(count(shape) == g.rows * g.columns && last_of(shape) == g.columns);
  if (one_a_row || (g.columns == 1 && last_of(shape) != 1)) laid.shape.push_back(1), laid.strides.push_back(0);
  g.loads.push_back(make_access(laid, dtype));
  g.reads.insert(view.buffer);
  return emit(g, {.op = Instr::Op::Load, .id = int(g.loads.size()) - 1}, g.loads.back().space());
}

int Planner::operand(Group& g, Node m, const Extents& shape) {
  if (is_scalar_constant(m)) return constant(g, float(m.attrs<ConstantAttrs>().value.at(0)));
  if (at(m).group == g.index && aligned(m, shape)) return g.register_of.at(m.id());
  std::string key = load_key(m, shape);
  if (auto it = g.loaded.find(key); it != g.loaded.end()) return it->second;
  auto [view, dtype] = row_memory(m);
  return g.loaded[key] = load(g, view, dtype, shape);
}

int Planner::emit_cast(Group& g, Node n, int in) {
  Space space = g.registers[std::size_t(in)];
  auto binary = [&](const OpDef& op, int a, float number) {
    return emit(g, {.op = Instr::Op::Binary, .id = binary_id(op), .src = {a, constant(g, number)}}, space);
  };
  if (n.dtype() == DType::Bool) return binary(ops::not_equal, in, 0);
  if (n.dtype() == DType::I8) {
    if (is_small_integer(n.input(0))) return in;
    int known = emit(g, {.op = Instr::Op::Binary, .id = binary_id(ops::equal), .src = {in, in}}, space);
    int value = emit(g, {.op = Instr::Op::Select, .src = {known, in, constant(g, 0)}}, space);
    value = emit(g, {.op = Instr::Op::Unary, .id = unary_id(ops::trunc), .src = {value}}, space);
    return binary(ops::minimum, binary(ops::maximum, value, -128), 127);
  }
  if ((n.dtype() == DType::BF16 || n.dtype() == DType::F16) && n.input(0).dtype() != n.dtype())
    return emit(g, {.op = Instr::Op::Round, .src = {in}, .dtype = n.dtype()}, space);
  return in;
}

int Planner::emit_op(Group& g, Node n, const std::vector<int>& in) {
  if (n.is(ops::cast)) return emit_cast(g, n, in[0]);
  Space space = Space::Scalar;
  Instr instr;
  for (std::size_t i = 0; i < in.size(); ++i) {
    space = join(space, g.registers[std::size_t(in[i])]);
    instr.src[i] = in[i];
  }
  instr.op = n.is(ops::where) ? Instr::Op::Select : in.size() == 1 ? Instr::Op::Unary : Instr::Op::Binary;
  instr.id = n.is(ops::where) ? 0 : in.size() == 1 ? unary_id(n.op()) : binary_id(n.op());
  int out = emit(g, instr, space);
  bool half = n.dtype() == DType::BF16 || n.dtype() == DType::F16;
  return half && options_.strict_rounding ? emit(g, {.op = Instr::Op::Round, .src = {out}, .dtype = n.dtype()}, space) : out;
}

void Planner::define(Group& g, Node n, int reg) {
  g.register_of[n.id()] = reg;
  at(n).group = at(n).ready = g.index;
  if (g.name.size() < 60) g.name += (g.name.empty() ? "" : " ") + std::string(n.op().name);
}

bool Planner::alias_in_group(Node n) {
  Node in = n.input(0);
  auto& state = at(n);
  if (at(in).group < 0 || at(in).kept != state.kept) return false;
  Group& g = *groups_[std::size_t(at(in).group)];
  auto& from = at(in).shape;
  auto is_full = [&](const Extents& s) { return count(s) == g.rows * g.columns && (g.columns == 1 || last_of(s) == g.columns); };
  bool same_form = is_full(from) == is_full(state.shape) && fits(g, from) && fits(g, state.shape) && count(from) == count(state.shape);
  bool repeated = n.is(ops::expand) && is_full(state.shape) && from == with_last_one(state.shape);
  bool kept_form = n.is(ops::reshape) || n.is(ops::stop_gradient) || (n.is(ops::expand) && from == state.shape);
  if (!(repeated || (kept_form && same_form))) return false;
  g.register_of[n.id()] = g.register_of.at(in.id());
  state.group = state.ready = g.index;
  return true;
}

// ---------------------------------------------------------------------------------------------- elementwise

// Part of a sum in f64 over all of a narrower tensor: its cast, and magnitudes on the way, which are exact in f32 too.
bool Planner::is_deferred(Node n) const {
  auto& users = nodes_[std::size_t(n.id())].users;
  bool exact = n.is(ops::abs) || (n.is(ops::cast) && n.dtype() == DType::F64);
  if (!exact || users.empty() || std::ranges::any_of(graph_.outputs(), [&](Node out) { return same(out, n); })) return false;
  if (n.dtype() == DType::F64 ? !is_f64_of_narrow(n) : !is_row_dtype(n.dtype())) return false;
  return std::ranges::all_of(users, [&](int user) {
    Node u = node(user);
    bool summed = n.dtype() == DType::F64 && (u.is(ops::sum) || u.is(ops::mean)) && is_total(nodes_[std::size_t(n.id())].shape, axes_of(u));
    return summed || (u.dtype() == DType::F64 && is_deferred(u));
  });
}

// A 16-bit value that is rounded from f32 sums, as f32: the sums.
bool Planner::plan_widening(Node n) {
  if (!n.is(ops::cast) || n.dtype() != DType::F32 || !at(n.input(0)).wide) return false;
  if (at(n).concat >= 0 || !at(n).layout.empty()) return false;
  at(n).memory = at(n.input(0)).wide;
  at(n).ready = at(n.input(0)).ready;
  return true;
}

bool Planner::plan_row_op(Node n) {
  auto& state = at(n);
  if (plan_widening(n)) return true;
  if (is_deferred(n)) return true;
  if (!is_row_op(n)) return false;
  // What other programs hold must stand in memory first, since that may take a copy.
  Group* g = find_group(n);
  std::size_t before = steps_.size();
  for (auto& m : n.inputs())
    if (!is_scalar_constant(m) && !(g && at(m).group == g->index && aligned(m, state.shape))) row_memory(m);
  if (!g || steps_.size() > before) g = &new_group(count(state.shape) / std::max<std::int64_t>(1, last_of(state.shape)), last_of(state.shape), state.kept);
  std::vector<int> in;
  for (auto& m : n.inputs()) in.push_back(operand(*g, m, state.shape));
  define(*g, n, emit_op(*g, n, in));
  return true;
}

// ---------------------------------------------------------------------------------------------- reductions

bool Planner::plan_reduction(Node n) {
  auto kind = reduction_of(n);
  if (!kind) return false;
  Node x = n.input(0);
  bool deferred = x.dtype() == DType::F64 && is_deferred(x);
  auto& shape = at(x).shape;
  if (!deferred && !is_row_dtype(x.dtype())) return false;
  Axes axes = axes_of(n);
  // One row of moderate length stays in the program that made it.
  bool one_row = axes == Axes{x.rank() - 1} && last_of(shape) <= 1 << 16;
  if (*kind == Reduction::Sum && is_total(shape, axes) && (deferred || !one_row) && plan_total(n, x)) return true;
  if (deferred) throw InternalError("a deferred sum was not planned: " + n.text());
  bool leading = !axes.empty() && axes.back() == int(axes.size()) - 1 && int(axes.size()) < x.rank();
  if (*kind == Reduction::Sum && leading && plan_column_reduction(n, x, axes)) return true;
  return plan_row_reduction(n, x, axes);
}

// Everything to one number. In f64 it is a program of its own, whose order is that of base/sum.h.
bool Planner::plan_total(Node n, Node x) {
  auto& shape = at(x).shape;
  bool canonical = x.dtype() == DType::F64;
  Group* g = nullptr;
  if (!canonical && at(x).group >= 0 && groups_[std::size_t(at(x).group)]->kept == at(n).kept) {
    g = groups_[std::size_t(at(x).group)].get();
    if (count(shape) != g->rows * g->columns) g = nullptr;
  }
  int reg = -1;
  if (g) {
    reg = g->register_of.at(x.id());
  } else {
    Nodes chain;  // cast(abs(w)) of a sum in f64: emitted here and nowhere else
    Node source = x;
    while (canonical && is_deferred(source)) chain.push_back(source), source = source.input(0);
    auto [view, dtype] = canonical ? std::pair{memory(source), source.dtype()} : row_memory(source);
    if (canonical && !view.is_contiguous()) view = copied(view, dtype, at(source).kept);
    g = &new_group(count(shape) / std::max<std::int64_t>(1, last_of(shape)), last_of(shape), at(n).kept);
    g->open = !canonical;
    reg = load(*g, view, dtype, shape);
    for (auto it = chain.rbegin(); it != chain.rend(); ++it)
      if (it->is(ops::abs)) reg = emit_op(*g, *it, {reg});
  }
  View out = storage(n);
  g->accumulators.push_back({.all = true, .buffer = out.buffer, .dtype = n.dtype(), .divisor = n.is(ops::mean) ? double(count(shape)) : 1});
  g->code.push_back({.op = Instr::Op::SumAll, .id = int(g->accumulators.size()) - 1, .src = {reg}});
  g->writes.insert(out.buffer);
  g->name += " " + std::string(n.op().name) + "_all";
  at(n).ready = g->index + 1;
  return true;
}

// Over the first axes: one number a column.
bool Planner::plan_column_reduction(Node n, Node x, const Axes& axes) {
  auto& shape = at(x).shape;
  std::int64_t rows = 1, columns = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) (d < axes.size() ? rows : columns) *= shape[d];
  Group* g = at(x).group >= 0 ? groups_[std::size_t(at(x).group)].get() : nullptr;
  if (g && !(g->kept == at(n).kept && g->rows == rows && g->columns == columns && columns == last_of(shape) && columns != 1)) g = nullptr;
  int reg = -1;
  if (g) {
    reg = g->register_of.at(x.id());
  } else {
    auto [view, dtype] = row_memory(x);
    auto flat = reshape_view(view, {rows, columns});
    if (!flat) flat = reshape_view(copied(view, dtype, at(x).kept), {rows, columns});
    g = &new_group(rows, columns, at(n).kept);
    reg = load(*g, *flat, dtype, {rows, columns});
  }
  View out = storage(n);
  if (!out.is_contiguous()) throw InternalError("a column sum needs its own memory: " + n.text());
  g->accumulators.push_back({.all = false, .buffer = out.buffer, .dtype = n.dtype(), .divisor = n.is(ops::mean) ? double(rows) : 1});
  g->code.push_back({.op = Instr::Op::SumRows, .id = int(g->accumulators.size()) - 1, .src = {reg}});
  g->writes.insert(out.buffer);
  g->name += " " + std::string(n.op().name) + "_rows";
  at(n).ready = g->index + 1;
  return true;
}

// The program that computes x, or has loaded it, with whole rows of it at hand, or null.
Group* Planner::group_with_rows_of(Node x, bool kept, int least) {
  auto& shape = at(x).shape;
  auto usable = [&](Group* g) {
    return g && g->open && g->kept == kept && g->columns == last_of(shape) && count(shape) == g->rows * g->columns && g->code.size() < kMostCode;
  };
  for (int i = int(groups_.size()) - 1; i >= least; --i) {
    Group* g = groups_[std::size_t(i)].get();
    if (usable(g) && (at(x).group == i || g->loaded.contains(load_key(x, shape)))) return g;
  }
  return nullptr;
}
int Planner::row_operand(Group& g, Node x) {
  return at(x).group == g.index ? g.register_of.at(x.id()) : g.loaded.at(load_key(x, at(x).shape));
}

// One column of each row, by index: how a loss picks the label's logit.
bool Planner::plan_take(Node n) {
  if (!n.is(ops::gather_elements)) return false;
  Node x = n.input(0), index = n.input(1);
  auto& attrs = n.attrs<GatherElementsAttrs>();
  auto& shape = at(x).shape;
  bool rows = normalize_axis(attrs.axis, x.rank()) == x.rank() - 1 && at(index).shape == with_last_one(shape);
  bool small = (index.dtype() == DType::I32 || index.dtype() == DType::I64) && last_of(shape) <= 1 << 24;
  if (!rows || !small || !is_row_dtype(x.dtype())) return false;
  memory(index);
  Group* g = group_with_rows_of(x, at(n).kept, at(index).ready);
  if (!g) {
    row_memory(x);
    g = &new_group(count(shape) / last_of(shape), last_of(shape), at(n).kept);
    operand(*g, x, shape);
  }
  int column = load(*g, memory(index), index.dtype(), at(index).shape);
  g->places.push_back(n.text() + (n.origins().empty() ? "" : ", " + n.origins().front()));
  Instr take{.op = Instr::Op::TakeColumn, .id = int(g->places.size()) - 1, .src = {row_operand(*g, x), column}, .number = attrs.wrap ? 1.0f : 0.0f};
  define(*g, n, emit(*g, take, g->columns == 1 ? Space::Full : Space::Row));
  return true;
}

// Over the last axes, or over any others once they are moved there: one number a row.
bool Planner::plan_row_reduction(Node n, Node x, const Axes& axes) {
  auto& shape = at(x).shape;
  if (axes.empty()) return false;
  Instr instr{.op = Instr::Op::ReduceRow, .id = int(*reduction_of(n)), .number = 1};
  bool last_only = axes.size() == 1 && axes[0] == x.rank() - 1;
  Group* g = last_only ? group_with_rows_of(x, at(n).kept, 0) : nullptr;
  if (g) {
    instr.src[0] = row_operand(*g, x);
  } else {
    auto [view, dtype] = row_memory(x);
    View moved{view.buffer, view.offset, {}, {}};
    std::int64_t columns = 1;
    for (int d = 0; d < x.rank(); ++d)
      if (!std::ranges::binary_search(axes, d)) moved.shape.push_back(shape[std::size_t(d)]), moved.strides.push_back(view.strides[std::size_t(d)]);
    Extents kept = moved.shape;
    for (int d : axes) {
      moved.shape.push_back(shape[std::size_t(d)]), moved.strides.push_back(view.strides[std::size_t(d)]);
      columns *= shape[std::size_t(d)];
    }
    std::int64_t rows = count(kept);
    kept.push_back(columns);
    auto flat = reshape_view(moved, kept);
    if (!flat) flat = reshape_view(copied(moved, dtype, at(x).kept), kept);
    g = &new_group(rows, columns, at(n).kept);
    if (last_only) {  // others that read the same value may join
      g->loaded[load_key(x, shape)] = instr.src[0] = load(*g, *flat, dtype, kept);
    } else {
      instr.src[0] = load(*g, *flat, dtype, kept);
    }
  }
  if (n.is(ops::mean)) instr.number = float(g->columns);
  int reg = emit(*g, instr, g->columns == 1 ? g->registers[std::size_t(instr.src[0])] : Space::Row);
  define(*g, n, reg);
  return true;
}

// ---------------------------------------------------------------------------------------------- the end

Access Planner::store_access(const Group& g, View view, DType dtype) const {
  bool full = count(view.shape) == g.rows * g.columns && (g.columns == 1 || last_of(view.shape) == g.columns);
  if (!full || (g.columns == 1 && last_of(view.shape) != 1)) view.shape.push_back(1), view.strides.push_back(0);
  return make_access(view, dtype);
}

void Planner::finish_group(Group& g) {
  auto program = std::make_shared<RowProgram>();
  program->name = g.name;
  program->rows = g.rows, program->columns = g.columns;
  program->loads = g.loads, program->registers = g.registers, program->accumulators = g.accumulators, program->places = g.places;
  std::ranges::stable_sort(g.stores_after, {}, [](auto& s) { return s.first; });
  auto store = g.stores_after.begin();
  for (std::size_t i = 0; i <= g.code.size(); ++i) {
    for (; store != g.stores_after.end() && store->first == i; ++store) {
      Node n = node(store->second);
      program->stores.push_back(store_access(g, storage(n), n.dtype()));
      program->code.push_back({.op = Instr::Op::Store, .id = int(program->stores.size()) - 1, .src = {g.register_of.at(n.id())}});
    }
    if (i < g.code.size()) program->code.push_back(g.code[i]);
  }
  for (auto& [reg, access] : g.extra_stores) {
    program->stores.push_back(access);
    program->code.push_back({.op = Instr::Op::Store, .id = int(program->stores.size()) - 1, .src = {reg}});
  }
  program->finish();
  Step& step = steps_[std::size_t(g.index)];
  std::size_t stored = program->stores.size();
  step.name = fmt::format("rows {}x{}: {} ({} ops, {} loads, {} stores)", g.rows, g.columns, g.name, program->code.size() - g.loads.size() - stored, g.loads.size(), stored);
  step.reads.assign(g.reads.begin(), g.reads.end());
  step.writes.assign(g.writes.begin(), g.writes.end());
  step.kept = g.kept;
  step.run = [program](std::byte* const* buffers) { program->run(buffers); };
}

}  // namespace rlx::cpu
