// The cpu device: passes, then for each binding of the symbols a plan, kept while it is in use.
#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <list>
#include <set>

#include "backends/backend.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/view.h"
#include "base/env.h"
#include "ir/graph_data.h"
#include "passes/pipeline.h"

namespace rlx::cpu {
namespace {

// Zeroed memory, in huge pages where the system has them: the first touch of a small page costs more than its use.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 64)) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw DeviceError(fmt::format("cpu: cannot get {} bytes of memory", bytes_));
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

// Counts the writes to tensors of this device, and what is bound where: what is equal has not changed.
std::uint64_t next_stamp() {
  static std::atomic<std::uint64_t> stamps = 0;
  return ++stamps;
}

class CpuTensor : public DeviceTensor {
 public:
  explicit CpuTensor(Array value) : DeviceTensor(value.dtype(), value.shape()), value_(std::move(value)) {}
  void upload(const Array& value) override {
    if (value.byte_size()) std::memcpy(value_.bytes(), value.bytes(), value.byte_size());
    written_ = next_stamp();
  }
  Array read() const override { return value_.clone(); }
  const Array& value() const { return value_; }
  std::uint64_t written() const { return written_; }
  /// Takes another memory for its own.
  void swap(Array& other) {
    std::swap(value_, other);
    written_ = next_stamp();
  }

 private:
  Array value_;
  std::uint64_t written_ = next_stamp();
};

// A bound leaf.
struct Leaf {
  std::shared_ptr<CpuTensor> tensor;
  Array next;  // where an update is written; the tensor's memory and this change places after a run
  bool stays = true;  // no update of the graph writes it
  std::uint64_t bound = 0;
  std::uint64_t changed() const { return std::max(bound, tensor->written()); }
};

struct PlanEntry {
  Bindings symbols;
  Plan plan;
  std::unique_ptr<Memory> arena, kept;
  std::vector<std::byte*> buffers;
  std::map<int, Array> fed;              // after a run: outputs that are inputs which were fed
  std::vector<int> leaf_buffers;         // whose memory is another's at each run
  std::uint64_t kept_stamp = 0;          // when the kept values were computed; 0: never
  std::vector<std::set<std::string>> kept_leaves;  // the params that each kept step depends on
  std::vector<double> seconds;           // of each step, while times are asked for
};

// Steps that write one buffer depend on the same, so that they run again together.
std::vector<std::set<std::string>> leaves_of_kept_steps(const Plan& plan) {
  std::vector<std::set<std::string>> of_steps(plan.steps.size()), of_buffers(plan.buffers.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].place == Buffer::Place::Leaf) of_buffers[b].insert(plan.buffers[b].leaf);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      auto& step = plan.steps[i];
      if (!step.kept) continue;
      std::size_t before = of_steps[i].size();
      for (auto* list : {&step.reads, &step.writes})
        for (int b : *list) of_steps[i].insert(of_buffers[std::size_t(b)].begin(), of_buffers[std::size_t(b)].end());
      changed |= of_steps[i].size() != before;
      for (int b : step.writes) of_buffers[std::size_t(b)].insert(of_steps[i].begin(), of_steps[i].end());
    }
  }
  return of_steps;
}

class CpuExecutable : public Executable {
 public:
  CpuExecutable(const Graph& graph, const CompileOptions& options) : options_(options) {
    graph_ = run_passes(graph, cpu_passes(is_claimed), {.name = options.name}).graph;
    for (auto& u : options.updates) changing_.insert(u.param);
    time_steps_ = debug_level() >= 2;
  }

  ~CpuExecutable() override {
    if (time_steps_ && !plans_.empty()) std::fputs(report().c_str(), stderr);
  }

  void bind(const std::string& name, DeviceTensorPtr tensor) override {
    auto& leaf = leaves_[name];
    leaf.tensor = std::static_pointer_cast<CpuTensor>(std::move(tensor));
    leaf.stays = !changing_.contains(name);
    leaf.bound = next_stamp();
  }

  std::vector<Array> run(const ArrayMap& inputs, std::span<const int> outputs, const Bindings& symbols) override {
    ran_ = 0;
    PlanEntry& e = entry(symbols);
    for (int b : e.leaf_buffers) {
      auto& buffer = e.plan.buffers[std::size_t(b)];
      auto it = inputs.find(buffer.leaf);
      bool next = buffer.place == Buffer::Place::Next;
      e.buffers[std::size_t(b)] = next ? next_value(buffer.leaf).bytes() : it != inputs.end() ? it->second.bytes() : leaves_.at(buffer.leaf).tensor->value().bytes();
    }
    run_steps(e);
    std::vector<Array> out;
    for (int i : outputs) out.push_back(read(e, i));
    keep_fed(e, inputs);
    for (auto& u : options_.updates) {
      auto& r = e.plan.results[std::size_t(u.output)];
      auto& b = e.plan.buffers[std::size_t(r.buffer)];
      if (b.place != Buffer::Place::Next || b.leaf != u.param) copy_result(e, r, next_value(u.param));
    }
    for (auto& u : options_.updates) leaves_.at(u.param).tensor->swap(leaves_.at(u.param).next);
    ran_ = next_stamp();
    return out;
  }

  DeviceTensorPtr result(int output) override;
  std::string report() const override;

 private:
  PlanEntry& entry(const Bindings& symbols);
  void run_steps(PlanEntry& e);
  Array read(const PlanEntry& e, int output) const;
  static void copy_result(const PlanEntry& e, const Result& r, Array to);
  Array next_value(const std::string& param);
  void keep_fed(PlanEntry& e, const ArrayMap& inputs) const;
  bool is_stale(const PlanEntry& e, std::size_t kept_step) const;

  static constexpr std::size_t kMostPlans = 16;
  CompileOptions options_;
  Graph graph_;
  std::set<std::string> changing_;
  std::map<std::string, Leaf, std::less<>> leaves_;
  std::uint64_t ran_ = 0;      // when the last run ended; 0: it failed, or there was none
  std::list<PlanEntry> plans_;  // most recently used first
  bool time_steps_ = false;
};

PlanEntry& CpuExecutable::entry(const Bindings& symbols) {
  auto it = std::ranges::find(plans_, symbols, &PlanEntry::symbols);
  if (it != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, it);
    return plans_.front();
  }
  PlanEntry e;
  e.symbols = symbols;
  e.plan = make_plan(graph_, symbols, options_);
  e.arena = std::make_unique<Memory>(e.plan.arena_bytes);
  e.kept = std::make_unique<Memory>(e.plan.kept_bytes);
  e.seconds.resize(e.plan.steps.size());
  e.kept_leaves = leaves_of_kept_steps(e.plan);
  for (int i = 0; i < int(e.plan.buffers.size()); ++i) {
    auto& b = e.plan.buffers[std::size_t(i)];
    switch (b.place) {
      case Buffer::Place::Arena: e.buffers.push_back(e.arena->data() + b.offset); break;
      case Buffer::Place::Kept: e.buffers.push_back(e.kept->data() + b.offset); break;
      case Buffer::Place::Constant: e.buffers.push_back(b.constant.bytes()); break;
      case Buffer::Place::Next:
      case Buffer::Place::Leaf: e.buffers.push_back(nullptr), e.leaf_buffers.push_back(i); break;
    }
  }
  if (debug_level() >= 1)
    for (auto& s : e.plan.steps)
      if (s.interpreted) fmt::print(stderr, "rlx: {}: {}\n", options_.name, s.name);
  plans_.push_front(std::move(e));
  if (plans_.size() > kMostPlans) plans_.pop_back();
  return plans_.front();
}

void CpuExecutable::run_steps(PlanEntry& e) {
  auto run = [&](bool kept) {
    for (std::size_t i = 0; i < e.plan.steps.size(); ++i) {
      auto& step = e.plan.steps[i];
      if (step.kept != kept || (kept && !is_stale(e, i))) continue;
      if (!time_steps_) {
        step.run(e.buffers.data());
        continue;
      }
      auto start = std::chrono::steady_clock::now();
      step.run(e.buffers.data());
      e.seconds[i] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  };
  if (e.kept_stamp == 0 || std::ranges::any_of(leaves_, [&](auto& leaf) { return leaf.second.stays && leaf.second.changed() > e.kept_stamp; })) {
    run(true);
    e.kept_stamp = next_stamp();
  }
  run(false);
}

void CpuExecutable::copy_result(const PlanEntry& e, const Result& r, Array to) {
  std::size_t width = size_of(r.dtype);
  copy_strided(e.buffers[std::size_t(r.buffer)] + r.offset * std::int64_t(width), r.strides, to.bytes(), contiguous_strides(r.shape), r.shape, width);
}

Array CpuExecutable::read(const PlanEntry& e, int output) const {
  auto& r = e.plan.results[std::size_t(output)];
  Array out(r.dtype, r.shape);
  copy_result(e, r, out);
  return out;
}

Array CpuExecutable::next_value(const std::string& param) {
  Leaf& leaf = leaves_.at(param);
  const Array& value = leaf.tensor->value();
  if (!leaf.next.bytes() || leaf.next.shape() != value.shape()) leaf.next = Array(value.dtype(), value.shape());
  return leaf.next;
}

bool CpuExecutable::is_stale(const PlanEntry& e, std::size_t kept_step) const {
  return e.kept_stamp == 0 ||
         std::ranges::any_of(e.kept_leaves[kept_step], [&](auto& name) { return leaves_.at(name).changed() > e.kept_stamp; });
}

// The caller may change what it fed once the run is over.
void CpuExecutable::keep_fed(PlanEntry& e, const ArrayMap& inputs) const {
  e.fed.clear();
  for (int i = 0; i < int(e.plan.results.size()); ++i) {
    auto& b = e.plan.buffers[std::size_t(e.plan.results[std::size_t(i)].buffer)];
    if (b.place == Buffer::Place::Leaf && inputs.contains(b.leaf)) e.fed.emplace(i, read(e, i));
  }
}

DeviceTensorPtr CpuExecutable::result(int output) {
  if (!ran_) return nullptr;
  PlanEntry& e = plans_.front();
  if (auto it = e.fed.find(output); it != e.fed.end()) return std::make_shared<CpuTensor>(it->second);
  auto& r = e.plan.results[std::size_t(output)];
  auto& b = e.plan.buffers[std::size_t(r.buffer)];
  bool of_leaf = b.place == Buffer::Place::Leaf || b.place == Buffer::Place::Next;
  if (of_leaf && leaves_.at(b.leaf).changed() > ran_) return nullptr;
  if (of_leaf || !View{r.buffer, r.offset, r.shape, r.strides}.is_contiguous()) return std::make_shared<CpuTensor>(read(e, output));
  std::byte* bytes = e.buffers[std::size_t(r.buffer)] + r.offset * std::int64_t(size_of(r.dtype));
  return std::make_shared<CpuTensor>(Array::borrow(bytes, r.dtype, r.shape));
}

std::string CpuExecutable::report() const {
  std::string out;
  for (auto& e : plans_) {
    std::size_t interpreted = std::size_t(std::ranges::count_if(e.plan.steps, [](auto& s) { return s.interpreted; }));
    out += fmt::format("cpu: {}: {} nodes in {} steps ({} interpreted), arena {} bytes (at least {} live at once), kept {} bytes\n", options_.name,
                       graph_.size(), e.plan.steps.size(), interpreted, e.plan.arena_bytes, e.plan.peak_bytes, e.plan.kept_bytes);
    for (std::size_t i = 0; i < e.plan.steps.size(); ++i) {
      auto& s = e.plan.steps[i];
      out += time_steps_ ? fmt::format("  {:10.3f} ms  {}{}\n", e.seconds[i] * 1e3, s.kept ? "kept " : "", s.name) : fmt::format("  {}{}\n", s.kept ? "kept " : "", s.name);
    }
  }
  return out;
}

class CpuBackend : public Backend {
  std::string name() const override { return "cpu"; }
  std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) override {
    return std::make_unique<CpuExecutable>(graph, options);
  }
  DeviceTensorPtr make_tensor(DType dtype, Extents shape) override { return std::make_shared<CpuTensor>(Array(dtype, std::move(shape))); }
};

}  // namespace
}  // namespace rlx::cpu

namespace rlx {
std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<cpu::CpuBackend>(); }
}  // namespace rlx
