# Compiles src/backends/cpu/*_impl.cpp once per instruction set into rlx; RLX_ISA_NAMESPACE keeps their symbols apart.
# Floating-point contraction is off, so that every set gives the same bits.
file(GLOB RLX_ISA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/cpu/*_impl.cpp)

function(rlx_add_isa name)
  add_library(rlx_kernels_${name} OBJECT ${RLX_ISA_SOURCES})
  target_include_directories(rlx_kernels_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(rlx_kernels_${name} PRIVATE RLX_ISA_NAMESPACE=${name})
  target_compile_options(rlx_kernels_${name} PRIVATE -Wall -Wextra -Wno-psabi -O3 -ffp-contract=off -fno-math-errno
                                                     -fno-trapping-math -fwrapv ${ARGN})
  if(RLX_SANITIZE MATCHES "address")  # its stack for use after return is not aligned to a 64-byte register
    target_compile_options(rlx_kernels_${name} PRIVATE --param=asan-use-after-return=0)
  endif()
  target_sources(rlx PRIVATE $<TARGET_OBJECTS:rlx_kernels_${name}>)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  rlx_add_isa(portable -march=x86-64-v2)
  rlx_add_isa(avx2 -march=x86-64-v3)
  rlx_add_isa(avx512 -march=x86-64-v4 -mprefer-vector-width=512)
else()
  rlx_add_isa(portable)
endif()
