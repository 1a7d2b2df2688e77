// What every caller of oneDNN here needs; its own headers stay in the .cpp files.
#pragma once
#include <cstddef>

namespace dnnl {
struct engine;
struct stream;
}  // namespace dnnl

namespace rlx::cpu {

/// oneDNN's CPU engine, held to the instruction sets of cpu_features(), and this thread's stream on it.
const dnnl::engine& onednn_engine();
dnnl::stream& onednn_stream();

/// While it lives, OpenMP regions entered by this thread have one thread, so oneDNN starts none of its own. To be held
/// when a primitive is made (its blocking depends on the count) and when it runs.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 1;
};

/// Scratch memory of this thread, aligned to 64 bytes, kept and grown. `slot` tells apart what is in use at once.
inline constexpr int kScratchSlots = 6;
void* thread_scratch(int slot, std::size_t bytes);

}  // namespace rlx::cpu
