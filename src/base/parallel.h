// The thread pool behind everything that runs on several cores: parallel_for over fixed chunks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace rlx {

/// How many threads parallel_for uses at most, the caller included.
int num_threads();
/// Bounds every pool of the process that RLX uses (oneDNN is only ever called on one thread of ours). Waits for running
/// work of other threads; throws UserError for n < 1 and when called from inside a parallel_for.
void set_num_threads(int n);
/// RLX_NUM_THREADS, or the smaller of the affinity mask and the cgroup CPU quota (v1 or v2, the tightest of the group and
/// its parents), at least 1. Throws UserError where the variable is not a whole number from 1.
int default_num_threads();

namespace detail {

/// Cores granted by the text of cgroup v2's `cpu.max` ("400000 100000" gives 4, a part of a core counts as none, but
/// never less than 1); nothing where it is unlimited or unreadable.
std::optional<int> cores_of_cpu_max(std::string_view text);
/// The same from cgroup v1's cpu.cfs_quota_us and cpu.cfs_period_us.
std::optional<int> cores_of_cfs(std::string_view quota, std::string_view period);
/// The group of this process in the text of /proc/self/cgroup: that of a v1 controller ("cpu"), or of v2 ("").
std::optional<std::string> cgroup_path(std::string_view proc_self_cgroup, std::string_view controller);
/// The tightest quota of the process's groups, looked up below `root` (empty: the real file system).
std::optional<int> cgroup_cores(const std::string& root);

using ChunkFunction = void (*)(void* context, std::int64_t chunk);
/// True where a loop started now would run on the calling thread alone.
bool runs_inline();
void run_chunks(std::int64_t n, ChunkFunction f, void* context);

}  // namespace detail

/// Calls f(i) for i in [0, n), each once, on up to num_threads() threads; returns when all are done. Which thread runs
/// a chunk is not fixed, so a result may depend only on i. Nested calls run inline. If chunks throw, the exception of
/// the lowest one is rethrown, whatever the number of threads; chunks above it may not have run.
template <class F>
void parallel_for(std::int64_t n, F&& f) {
  if (n <= 1 || detail::runs_inline()) {
    for (std::int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  using Function = std::remove_reference_t<F>;
  detail::run_chunks(
      n, [](void* context, std::int64_t i) { (*static_cast<Function*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

/// Calls f(begin, end) for the ranges [0, grain), [grain, 2 grain), … of [0, n): the split depends on n and grain only.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  if (grain < 1) grain = 1;
  parallel_for(n / grain + (n % grain > 0), [&](std::int64_t i) {
    std::int64_t begin = i * grain;
    f(begin, n - begin < grain ? n : begin + grain);
  });
}

}  // namespace rlx
