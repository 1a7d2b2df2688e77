// A pool of std::threads: one job at a time, chunks claimed from a counter, bounded spinning before sleep.
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "rlx/base.h"

namespace rlx {
namespace {

thread_local bool t_inside = false;  // this thread is running chunks

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Spins until `done()` or about 30 µs have passed; says whether it is done.
template <class F>
bool spin_until(F&& done) {
  constexpr auto kSpin = std::chrono::microseconds(30);
  if (done()) return true;
  auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() - start < kSpin);
  return false;
}

class Pool {
 public:
  Pool() : threads_(default_num_threads()) {}
  ~Pool() { stop(); }

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  void set_threads(int n) {
    std::lock_guard lock(owner_);
    if (n == threads()) return;
    stop();
    threads_ = n;
  }

  void run(std::int64_t n, detail::ChunkFunction f, void* context) {
    std::unique_lock owner(owner_, std::try_to_lock);
    if (!owner) {  // another thread's job has the workers
      for (std::int64_t i = 0; i < n; ++i) f(context, i);
      return;
    }
    if (int(workers_.size()) + 1 < threads()) start();
    n_ = n, f_ = f, context_ = context, error_ = nullptr, error_chunk_ = n;
    next_.store(0, std::memory_order_relaxed);
    state_.fetch_add(1);  // opens the job: odd
    for (std::int64_t i = std::min<std::int64_t>(n - 1, std::int64_t(workers_.size())); i > 0; --i) state_.notify_one();
    work();
    state_.fetch_add(1);  // closes it; who entered before is waited for, who enters later sees it closed
    int left = 0;
    auto idle = [&] { return (left = running_.load()) == 0; };
    while (!spin_until(idle)) running_.wait(left);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  /// In the child of a fork, which has none of its parent's threads: the next run starts new ones.
  void forget_threads() {
    new (&owner_) std::mutex;
    new (&error_mutex_) std::mutex;
    for (auto& worker : workers_) (void)worker.release();
    workers_.clear();
    running_ = 0;
    if (state_ % 2 != 0) ++state_;
  }

 private:
  void start() {
    stopping_ = false;
    int wanted = threads() - 1, seen = state_.load();
    try {
      while (int(workers_.size()) < wanted)
        workers_.push_back(std::make_unique<std::thread>([=, this] { serve(seen); }));
    } catch (const std::system_error& e) {
      throw DeviceError("[threads] got " + std::to_string(workers_.size() + 1) + " of " + std::to_string(wanted + 1) +
                        " threads: " + e.what());
    }
  }

  void stop() {
    stopping_ = true;
    state_.fetch_add(2);
    state_.notify_all();
    for (auto& worker : workers_) worker->join();
    workers_.clear();
  }

  /// `seen` is the state when the worker was made, so that nothing that happened since is missed.
  void serve(int seen) {
    for (;;) {
      auto changed = [&] { return state_.load(std::memory_order_acquire) != seen; };
      if (!spin_until(changed)) state_.wait(seen);
      if (stopping_) return;
      running_.fetch_add(1);
      seen = state_.load();
      if (seen % 2 != 0) work();
      if (running_.fetch_sub(1) == 1) running_.notify_one();
    }
  }

  void work() {
    t_inside = true;
    for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) {
      try {
        f_(context_, i);
      } catch (...) {
        std::lock_guard lock(error_mutex_);
        if (i < error_chunk_) error_ = std::current_exception(), error_chunk_ = i;
        next_.store(n_, std::memory_order_relaxed);
      }
    }
    t_inside = false;
  }

  std::mutex owner_;  // held by the thread whose job runs
  std::atomic<int> threads_ = 1;
  std::vector<std::unique_ptr<std::thread>> workers_;
  std::atomic<bool> stopping_ = false;

  alignas(64) std::atomic<int> state_ = 0;    // odd while a job is open
  alignas(64) std::atomic<int> running_ = 0;  // workers that may be reading the job
  alignas(64) std::atomic<std::int64_t> next_ = 0;
  alignas(64) std::int64_t n_ = 0;
  detail::ChunkFunction f_ = nullptr;
  void* context_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::int64_t error_chunk_ = 0;
};

Pool& pool() {
  static Pool instance;
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { instance.forget_threads(); });
  return instance;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The number at the start of `text`, which is moved past it.
std::optional<std::int64_t> take_number(std::string_view& text) {
  while (!text.empty() && (text[0] == ' ' || text[0] == '\t' || text[0] == '\n')) text.remove_prefix(1);
  std::int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(std::size_t(end - text.data()));
  return value;
}

std::optional<int> cores(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return int(std::clamp<std::int64_t>(quota / period, 1, 1 << 16));
}

void keep_smaller(std::optional<int>& best, std::optional<int> other) {
  if (other && (!best || *other < *best)) best = other;
}

int affinity_cores() {
  for (std::size_t bits = 1024; bits <= (1u << 20); bits *= 4) {  // the call fails while the set is too small
    cpu_set_t* set = CPU_ALLOC(bits);
    if (!set) break;
    bool got = sched_getaffinity(0, CPU_ALLOC_SIZE(bits), set) == 0;
    int count = got ? CPU_COUNT_S(CPU_ALLOC_SIZE(bits), set) : 0;
    CPU_FREE(set);
    if (got) return std::max(1, count);
  }
  return std::max(1, int(std::thread::hardware_concurrency()));
}

}  // namespace

int num_threads() { return pool().threads(); }

void set_num_threads(int n) {
  if (n < 1) throw UserError("[set_num_threads] got " + std::to_string(n) + ", expected at least 1");
  if (t_inside) throw UserError("[set_num_threads] called from inside a parallel loop");
  pool().set_threads(n);
}

int default_num_threads() {
  if (std::string text = env("RLX_NUM_THREADS"); !text.empty()) {
    int asked = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), asked);
    if (error != std::errc() || end != text.data() + text.size() || asked < 1)
      throw UserError("RLX_NUM_THREADS: got \"" + text + "\", expected a whole number from 1");
    return asked;
  }
  int n = affinity_cores();
  if (auto quota = detail::cgroup_cores("")) n = std::min(n, *quota);
  return n;
}

namespace detail {

std::optional<int> cores_of_cpu_max(std::string_view text) {
  auto quota = take_number(text);  // not a number: "max"
  if (!quota) return std::nullopt;
  auto period = take_number(text);
  return cores(*quota, period.value_or(100000));
}

std::optional<int> cores_of_cfs(std::string_view quota, std::string_view period) {
  auto q = take_number(quota), p = take_number(period);
  return q && p ? cores(*q, *p) : std::nullopt;
}

std::optional<std::string> cgroup_path(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    auto list = line.substr(first + 1, second - first - 1);
    if (controller.empty()) {
      if (list.empty()) return std::string(line.substr(second + 1));
      continue;
    }
    while (!list.empty()) {
      auto name = list.substr(0, list.find(','));
      if (name == controller) return std::string(line.substr(second + 1));
      list.remove_prefix(std::min(list.size(), name.size() + 1));
    }
  }
  return std::nullopt;
}

std::optional<int> cgroup_cores(const std::string& root) {
  auto groups = read_file(root + "/proc/self/cgroup");
  if (!groups) return std::nullopt;
  std::optional<int> best;
  auto visit = [&](std::string_view controller, std::initializer_list<const char*> mounts) {
    auto path = cgroup_path(*groups, controller);
    if (!path) return;
    for (const char* mount : mounts) {
      for (std::string group = *path;;) {  // this group and all above it
        std::string dir = root + mount + group + "/";
        if (controller.empty()) {
          if (auto text = read_file(dir + "cpu.max")) keep_smaller(best, cores_of_cpu_max(*text));
        } else if (auto quota = read_file(dir + "cpu.cfs_quota_us")) {
          keep_smaller(best, cores_of_cfs(*quota, read_file(dir + "cpu.cfs_period_us").value_or("")));
        }
        if (group.empty()) break;
        auto slash = group.rfind('/');
        group.resize(slash == group.npos ? 0 : slash);
      }
    }
  };
  visit("", {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"});
  visit("cpu", {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"});
  return best;
}

bool runs_inline() { return t_inside || pool().threads() == 1; }

void run_chunks(std::int64_t n, ChunkFunction f, void* context) { pool().run(n, f, context); }

}  // namespace detail
}  // namespace rlx
