// oneDNN's engine and streams, its OpenMP kept at one thread, and scratch memory for each thread.
#include "backends/cpu/onednn.h"

#include <dlfcn.h>

#include <cstdlib>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>

#include "backends/cpu/isa.h"

namespace rlx::cpu {
namespace {

/// OpenMP's functions as oneDNN has loaded them; absent in a build of it with another runtime.
struct OpenMp {
  int (*max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
};

const OpenMp& openmp() {
  static const OpenMp functions;
  return functions;
}

struct Block {
  void* data = nullptr;
  std::size_t size = 0;
  ~Block() { std::free(data); }
};

}  // namespace

const dnnl::engine& onednn_engine() {
  // Never destroyed: threads may outlive the statics. The limit on oneDNN must precede its first primitive.
  static const dnnl::engine& instance = []() -> dnnl::engine& {
    if (cpu_features().isa == Isa::Avx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    if (cpu_features().isa == Isa::Portable) dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    return *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return instance;
}

dnnl::stream& onednn_stream() {
  thread_local dnnl::stream instance(onednn_engine());
  return instance;
}

OneThread::OneThread() {
  auto& omp = openmp();
  if (!omp.max_threads || !omp.set_threads) return;
  before_ = omp.max_threads();
  if (before_ != 1) omp.set_threads(1);
}

OneThread::~OneThread() {
  if (before_ != 1) openmp().set_threads(before_);
}

void* thread_scratch(Scratch slot, std::size_t bytes) {
  thread_local Block blocks[int(Scratch::ConvPartial) + 1];
  Block& s = blocks[int(slot)];
  if (s.size < bytes) {
    std::size_t size = (bytes + 4095) / 4096 * 4096;
    std::free(s.data);
    s.size = 0;
    s.data = std::aligned_alloc(64, size);
    if (!s.data) throw std::bad_alloc();
    s.size = size;
  }
  return s.data;
}

}  // namespace rlx::cpu
