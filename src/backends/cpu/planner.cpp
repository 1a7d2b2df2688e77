#include "backends/cpu/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "ops/eval.h"

namespace rlx::cpu {

std::string label_of(Node n) { return n.name().empty() ? fmt::format("{} %{}", n.op().name, n.id()) : fmt::format("{} \"{}\"", n.op().name, n.name()); }

Planner::Planner(const Graph& graph, const Bindings& symbols, const CompileOptions& options)
    : graph_(graph), symbols_(symbols), options_(options), nodes_(std::size_t(graph.size())) {}

Plan Planner::plan() {
  prepare();
  choose_layouts();
  choose_concat_places();
  for (int id = 0; id < graph_.size(); ++id)
    if (nodes_[std::size_t(id)].live) plan_node(node(id));
  Plan plan;
  for (auto& out : graph_.outputs()) {
    View v = memory(out);
    plan.results.push_back({v.buffer, out.dtype(), v.offset, v.shape, v.strides});
  }
  finish_groups();
  place_updates(plan);
  assign_memory(plan);
  return plan;
}

// Sizes, what is needed at all, and what depends on params that stay as they are.
void Planner::prepare() {
  for (auto& out : graph_.outputs()) at(out).live = true;
  for (int id = graph_.size() - 1; id >= 0; --id)
    if (nodes_[std::size_t(id)].live)
      for (auto& in : node(id).inputs()) at(in).live = true, at(in).users.push_back(id);
  for (int id = 0; id < graph_.size(); ++id) {
    Node n = node(id);
    auto& state = nodes_[std::size_t(id)];
    if (!state.live) continue;
    state.shape = evaluate(n.shape(), symbols_);
    if (n.is(constant_op)) state.kept = true;
    else if (n.is(param_op)) state.kept = std::ranges::find(options_.updates, n.name(), &Update::param) == options_.updates.end();
    else state.kept = n.op().kind != Kind::Random && !n.is(input_op) && std::ranges::all_of(n.inputs(), [&](Node in) { return at(in).kept; });
  }
}

// A transpose that is then reshaped is free where its source was written in the transposed order to begin with.
void Planner::choose_layouts() {
  for (int id = 0; id < graph_.size(); ++id) {
    Node n = node(id);
    if (!at(n).live || !n.is(ops::reshape) || !n.input(0).is(ops::transpose)) continue;
    Node t = n.input(0), x = t.input(0);
    bool computed = x.is(ops::matmul) || x.op().kind == Kind::Elementwise;
    auto& perm = t.attrs<PermAttrs>().perm;
    bool keeps_last = !perm.empty() && perm.back() == int(perm.size()) - 1;
    if (!computed || x.is(ops::stop_gradient) || !keeps_last || !at(x).layout.empty()) continue;
    View usual = contiguous_view(0, at(x).shape);
    auto moved = move_view(t, usual, at(t).shape, symbols_);
    if (!moved || reshape_view(*moved, at(n).shape)) continue;
    at(x).layout = perm;
  }
}

void Planner::choose_concat_places() {
  for (int id = 0; id < graph_.size(); ++id) {
    Node n = node(id);
    if (!at(n).live || !n.is(ops::concat)) continue;
    int axis = normalize_axis(n.attrs<AxisAttrs>().axis, n.rank());
    std::int64_t start = 0;
    for (auto& in : n.inputs()) {
      auto& state = at(in);
      bool computed = in.op().kind == Kind::Elementwise && !in.is(ops::stop_gradient);
      bool once = std::ranges::count(n.inputs(), in.id(), [](Node m) { return m.id(); }) == 1;
      if (computed && once && state.concat < 0 && state.layout.empty() && state.kept == at(n).kept) state.concat = id, state.concat_start = start;
      start += state.shape[std::size_t(axis)];
    }
  }
}

void Planner::plan_node(Node n) {
  if (n.op().kind == Kind::Leaf) return plan_leaf(n);
  auto& state = at(n);
  for (auto& in : n.inputs()) state.ready = std::max(state.ready, at(in).ready);
  bool empty = count(state.shape) == 0 || std::ranges::any_of(n.inputs(), [&](Node in) { return count(at(in).shape) == 0; });
  if (!empty) {
    if (n.op().kind == Kind::Movement || n.is(ops::stop_gradient)) return plan_movement(n);
    if (plan_row_op(n) || plan_reduction(n) || plan_take(n) || plan_matmul(n) || plan_dot_general(n) || plan_conv(n) || plan_gather(n) || plan_scatter(n) || plan_pool(n) || plan_quant(n) ||
        plan_scatter_elements(n))
      return;
  }
  plan_interpreted(n);
}

// ---------------------------------------------------------------------------------------------- memory

int Planner::new_buffer(DType dtype, std::int64_t elements, bool kept) {
  Buffer b;
  b.place = kept ? Buffer::Place::Kept : Buffer::Place::Arena;
  b.dtype = dtype;
  b.elements = elements;
  buffers_.push_back(std::move(b));
  return int(buffers_.size()) - 1;
}

View Planner::storage(Node n) {
  auto& state = at(n);
  if (state.memory) return *state.memory;
  if (state.concat >= 0) {
    View whole = storage(node(state.concat));
    int axis = normalize_axis(node(state.concat).attrs<AxisAttrs>().axis, n.rank());
    View part{whole.buffer, whole.offset + state.concat_start * whole.strides[std::size_t(axis)], state.shape, whole.strides};
    return *(state.memory = part);
  }
  return *(state.memory = laid_out(n, n.dtype()));
}

View Planner::laid_out(Node n, DType dtype) {
  auto& state = at(n);
  View view = contiguous_view(new_buffer(dtype, count(state.shape), state.kept), state.shape);
  std::int64_t step = 1;
  for (std::size_t d = state.layout.size(); d-- > 0;) {
    auto axis = std::size_t(state.layout[d]);
    view.strides[axis] = step;
    step *= state.shape[axis];
  }
  return view;
}

View Planner::memory(Node n) {
  auto& state = at(n);
  if (state.memory) return *state.memory;
  if (state.group >= 0 && n.op().kind != Kind::Movement && !n.is(ops::stop_gradient)) {
    Group& g = *groups_[std::size_t(state.group)];
    View view = storage(n);
    int reg = g.register_of.at(n.id());
    std::size_t after = 0;
    for (std::size_t i = 0; i < g.code.size(); ++i)
      if (g.code[i].dst == reg) after = i + 1;
    g.stores_after.emplace_back(after, n.id());
    g.writes.insert(view.buffer);
    return view;
  }
  if (state.wide && n.op().kind != Kind::Movement && !n.is(ops::stop_gradient)) {
    View out = storage(n);
    convert(*state.wide, DType::F32, out, n.dtype(), state.kept);
    return out;
  }
  // A movement op: its input's memory seen otherwise.
  View in = memory(n.input(0));
  auto view = move_view(n, in, state.shape, symbols_);
  if (!view) view = move_view(n, copied(in, n.dtype(), state.kept), state.shape, symbols_);
  if (!view) throw InternalError("no view for " + n.text());
  return *(state.memory = *view);
}

View Planner::contiguous_memory(Node n) {
  View view = memory(n);
  if (view.is_contiguous()) return view;
  return copied(view, n.dtype(), at(n).kept);
}

std::pair<View, DType> Planner::row_memory(Node n) {
  if (at(n).wide) return {*at(n).wide, DType::F32};
  return {memory(n), n.dtype()};
}

View Planner::f32_memory(Node n) {
  auto& state = at(n);
  if (n.dtype() == DType::F32) return memory(n);
  if (state.wide) return *state.wide;
  if (state.exact) return *state.exact;
  if (n.op().kind == Kind::Movement && n.inputs().size() == 1)
    if (auto view = move_view(n, f32_memory(n.input(0)), state.shape, symbols_)) return *(state.exact = view);
  if (state.group >= 0 && n.op().kind == Kind::Elementwise && !n.is(ops::stop_gradient)) {
    // Its program has it as f32 already and stores that, rounded.
    Group& g = *groups_[std::size_t(state.group)];
    View out = laid_out(n, DType::F32);
    int reg = g.register_of.at(n.id());
    reg = emit(g, {.op = Instr::Op::Round, .src = {reg}, .dtype = n.dtype()}, g.registers[std::size_t(reg)]);
    g.extra_stores.emplace_back(reg, store_access(g, out, DType::F32));
    g.writes.insert(out.buffer);
    return *(state.exact = out);
  }
  View from = memory(n), to = contiguous_view(new_buffer(DType::F32, count(from.shape), state.kept), from.shape);
  convert(from, n.dtype(), to, DType::F32, state.kept);
  return *(state.exact = to);
}

View Planner::contiguous_f32_memory(Node n) {
  View view = f32_memory(n);
  return view.is_contiguous() ? view : copied(view, DType::F32, at(n).kept);
}

View Planner::f32_storage(Node n) { return n.dtype() == DType::F32 ? storage(n) : laid_out(n, DType::F32); }

void Planner::finish_f32(Node n, const View& sums) {
  if (n.dtype() != DType::F32) {
    at(n).wide = sums;
    if (options_.strict_rounding) {
      memory(n);
      at(n).wide.reset();
    }
  }
  at(n).ready = int(steps_.size());
}

View Planner::copied(const View& view, DType dtype, bool kept) {
  View out = contiguous_view(new_buffer(dtype, count(view.shape), kept), view.shape);
  std::size_t width = size_of(dtype);
  add_step({.name = "copy " + to_string(view.shape), .reads = {view.buffer}, .writes = {out.buffer}, .kept = kept, .interpreted = false,
            .run = [=](std::byte* const* b) {
              copy_strided(b[view.buffer] + view.offset * std::int64_t(width), view.strides, b[out.buffer], out.strides, out.shape, width);
            }});
  return out;
}

int Planner::add_step(Step step) {
  steps_.push_back(std::move(step));
  groups_.push_back(nullptr);
  return int(steps_.size()) - 1;
}

// ---------------------------------------------------------------------------------------------- leaves and movement

void Planner::plan_leaf(Node n) {
  auto& state = at(n);
  int id = new_buffer(n.dtype(), count(state.shape), false);
  Buffer& b = buffers_[std::size_t(id)];
  if (n.is(constant_op)) {
    b.place = Buffer::Place::Constant;
    b.constant = n.attrs<ConstantAttrs>().value;
  } else if (n.is(ops::iota)) {
    b.place = Buffer::Place::Constant;
    b.constant = evaluate_node(n, {}, symbols_);
  } else {
    b.place = Buffer::Place::Leaf;
    b.leaf = n.name();
  }
  state.memory = contiguous_view(id, state.shape);
}

void Planner::plan_movement(Node n) {
  if (n.is(ops::iota)) return plan_leaf(n);
  if (n.is(ops::concat)) return plan_concat(n);
  if (n.is(ops::pad)) return plan_pad(n);
  auto& state = at(n);
  if (n.inputs().size() != 1) return plan_interpreted(n);
  if (alias_in_group(n)) return;
  Node in = n.input(0);
  if (at(in).wide)
    if (auto view = move_view(n, *at(in).wide, state.shape, symbols_)) {
      state.wide = view;
      state.ready = at(in).ready;
      return;
    }
  if (at(in).group >= 0) state.ready = std::max(state.ready, at(in).group + 1);
  if (!move_view(n, memory(in), state.shape, symbols_) && !n.is(ops::reshape)) return plan_interpreted(n);
  memory(n);
  state.ready = std::max(state.ready, int(steps_.size()));  // behind a copy, if it took one
  if (move_view(n, memory(in), state.shape, symbols_)) state.ready = at(in).group >= 0 ? at(in).group + 1 : at(in).ready;
}

void Planner::plan_concat(Node n) {
  View whole = storage(n);
  auto& state = at(n);
  int axis = normalize_axis(n.attrs<AxisAttrs>().axis, n.rank());
  std::int64_t start = 0;
  std::size_t width = size_of(n.dtype());
  for (auto& in : n.inputs()) {
    View part{whole.buffer, whole.offset + start * whole.strides[std::size_t(axis)], at(in).shape, whole.strides};
    start += at(in).shape[std::size_t(axis)];
    if (count(part.shape) == 0) continue;
    View from = memory(in);
    if (at(in).concat == n.id() && from.buffer == whole.buffer) {
      state.ready = std::max(state.ready, at(in).group >= 0 ? at(in).group + 1 : at(in).ready);
      continue;
    }
    add_step({.name = "concat " + label_of(n), .reads = {from.buffer}, .writes = {part.buffer}, .kept = state.kept, .interpreted = false,
              .run = [=](std::byte* const* b) {
                copy_strided(b[from.buffer] + from.offset * std::int64_t(width), from.strides, b[part.buffer] + part.offset * std::int64_t(width),
                             part.strides, part.shape, width);
              }});
    state.ready = int(steps_.size());
  }
}

void Planner::plan_pad(Node n) {
  View whole = storage(n);
  auto& attrs = n.attrs<PadAttrs>();
  View from = memory(n.input(0));
  View part{whole.buffer, whole.offset, from.shape, whole.strides};
  for (std::size_t d = 0; d < attrs.low.size(); ++d) {
    std::int64_t low = attrs.low[d].evaluate(symbols_);
    if (low < 0 || attrs.high[d].evaluate(symbols_) < 0) return plan_interpreted(n);
    part.offset += low * whole.strides[d];
  }
  Array value = Array::scalar(attrs.value, n.dtype());
  std::size_t width = size_of(n.dtype());
  Extents shape = at(n).shape, still(shape.size(), 0);
  add_step({.name = "pad " + label_of(n), .reads = {from.buffer}, .writes = {whole.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [=](std::byte* const* b) {
              copy_strided(value.bytes(), still, b[whole.buffer] + whole.offset * std::int64_t(width), whole.strides, shape, width);
              copy_strided(b[from.buffer] + from.offset * std::int64_t(width), from.strides, b[part.buffer] + part.offset * std::int64_t(width), part.strides,
                           part.shape, width);
            }});
  at(n).ready = int(steps_.size());
}

void Planner::plan_interpreted(Node n) {
  auto& state = at(n);
  std::vector<View> in;
  Step step{.name = label_of(n) + " (interpreted)", .reads = {}, .writes = {}, .kept = state.kept, .interpreted = true, .run = nullptr};
  for (auto& input : n.inputs()) {
    in.push_back(contiguous_memory(input));
    step.reads.push_back(in.back().buffer);
  }
  state.concat = -1, state.layout.clear();
  View out = storage(n);
  step.writes.push_back(out.buffer);
  std::vector<DType> dtypes;
  for (auto& input : n.inputs()) dtypes.push_back(input.dtype());
  Graph graph = graph_;  // keeps the node alive
  step.run = [=, symbols = symbols_](std::byte* const* b) {
    std::vector<Array> values;
    for (std::size_t i = 0; i < in.size(); ++i)
      values.push_back(Array::borrow(b[in[i].buffer] + in[i].offset * std::int64_t(size_of(dtypes[i])), dtypes[i], in[i].shape));
    Array result = evaluate_node(graph.node(n.id()), values, symbols);
    if (result.byte_size()) std::memcpy(b[out.buffer] + out.offset * std::int64_t(size_of(result.dtype())), result.bytes(), result.byte_size());
  };
  add_step(std::move(step));
  state.ready = int(steps_.size());
}

// ---------------------------------------------------------------------------------------------- the end

void Planner::finish_groups() {
  for (auto& g : groups_)
    if (g) finish_group(*g);
}

// An update is computed right into the param's next value where it has memory of its own.
void Planner::place_updates(Plan& plan) {
  for (auto& u : options_.updates) {
    auto& r = plan.results[std::size_t(u.output)];
    auto& b = buffers_[std::size_t(r.buffer)];
    View view{r.buffer, r.offset, r.shape, r.strides};
    if (b.place == Buffer::Place::Arena && view.is_contiguous() && r.offset == 0 && b.elements == count(r.shape)) b.place = Buffer::Place::Next, b.leaf = u.param;
  }
}

// First fit by size, largest first, among the buffers that live at the same time.
void Planner::assign_memory(Plan& plan) {
  constexpr std::size_t kAlign = 64;
  auto padded = [](std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; };
  for (int i = 0; i < int(steps_.size()); ++i)
    for (auto* list : {&steps_[std::size_t(i)].reads, &steps_[std::size_t(i)].writes})
      for (int b : *list) {
        auto& buffer = buffers_[std::size_t(b)];
        if (buffer.first < 0) buffer.first = i;
        buffer.first = std::min(buffer.first, i), buffer.last = std::max(buffer.last, i);
      }
  for (auto& r : plan.results) buffers_[std::size_t(r.buffer)].last = int(steps_.size());
  std::vector<int> order;
  for (int i = 0; i < int(buffers_.size()); ++i) {
    auto& b = buffers_[std::size_t(i)];
    if (b.place == Buffer::Place::Kept) b.offset = plan.kept_bytes, plan.kept_bytes += padded(b.bytes());
    if (b.place == Buffer::Place::Arena) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](int a, int b) { return buffers_[std::size_t(a)].bytes() > buffers_[std::size_t(b)].bytes(); });
  std::vector<int> placed;  // by offset
  for (int i : order) {
    auto& b = buffers_[std::size_t(i)];
    std::size_t offset = 0;
    for (int other : placed) {
      auto& o = buffers_[std::size_t(other)];
      if (o.last < b.first || o.first > b.last) continue;
      if (offset + padded(b.bytes()) <= o.offset) break;
      offset = std::max(offset, o.offset + padded(o.bytes()));
    }
    b.offset = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + padded(b.bytes()));
    placed.insert(std::ranges::lower_bound(placed, offset, {}, [&](int p) { return buffers_[std::size_t(p)].offset; }), i);
  }
  std::vector<std::size_t> live(steps_.size() + 1);
  for (int i : order)
    for (int s = std::max(0, buffers_[std::size_t(i)].first); s <= buffers_[std::size_t(i)].last && s < int(live.size()); ++s) live[std::size_t(s)] += padded(buffers_[std::size_t(i)].bytes());
  for (auto n : live) plan.peak_bytes = std::max(plan.peak_bytes, n);
  plan.buffers = std::move(buffers_);
  plan.steps = std::move(steps_);
}

Plan make_plan(const Graph& graph, const Bindings& symbols, const CompileOptions& options) {
  return Planner(graph, symbols, options).plan();
}

// ---------------------------------------------------------------------------------------------- copies

namespace {

template <class T> void copy_line(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step, std::int64_t n) {
  auto x = reinterpret_cast<const T*>(from);
  auto y = reinterpret_cast<T*>(to);
  if (from_step == 1 && to_step == 1) {
    std::memcpy(y, x, std::size_t(n) * sizeof(T));
  } else if (to_step == 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i * from_step];
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * to_step] = x[i * from_step];
  }
}

template <class T> void copy_typed(const std::byte* from, const Extents& fs, std::byte* to, const Extents& ts, const Extents& shape) {
  if (shape.empty()) return void(std::memcpy(to, from, sizeof(T)));
  std::int64_t n = shape.back(), lines = count(shape) / std::max<std::int64_t>(n, 1);
  constexpr std::int64_t kGrain = 1 << 14;
  parallel_for(lines, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(n, 1)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      std::int64_t rest = line, f = 0, t = 0;
      for (std::size_t d = shape.size() - 1; d-- > 0; rest /= shape[d]) {
        f += rest % shape[d] * fs[d];
        t += rest % shape[d] * ts[d];
      }
      copy_line<T>(from + f * std::int64_t(sizeof(T)), fs.back(), to + t * std::int64_t(sizeof(T)), ts.back(), n);
    }
  });
}

}  // namespace

void copy_strided(const std::byte* from, const Extents& from_strides, std::byte* to, const Extents& to_strides, const Extents& shape, std::size_t width) {
  if (count(shape) == 0) return;
  switch (width) {
    case 1: return copy_typed<std::uint8_t>(from, from_strides, to, to_strides, shape);
    case 2: return copy_typed<std::uint16_t>(from, from_strides, to, to_strides, shape);
    case 4: return copy_typed<std::uint32_t>(from, from_strides, to, to_strides, shape);
    case 8: return copy_typed<std::uint64_t>(from, from_strides, to, to_strides, shape);
    default: throw InternalError(fmt::format("no element has {} bytes", width));
  }
}

}  // namespace rlx::cpu
