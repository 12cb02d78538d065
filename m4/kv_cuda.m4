# SPDX-License-Identifier: Apache-2.0
# KV_WITH_CUDA: --with-cuda=auto|yes|no|DIR.  auto builds what it can and says so; yes and DIR fail if
# they cannot.  The check compiles a kernel with nvcc and links it with $CC, as the build will.
AC_DEFUN([KV_WITH_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=auto|yes|no|DIR], [build the CUDA kernels (default: auto)])],
    [], [with_cuda=auto])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities (default: 80,86,89,90a)])],
    [], [with_cuda_arch=80,86,89,90a])
  AC_ARG_VAR([NVCC], [the CUDA compiler])
  kv_cuda=no
  AS_VAR_IF([with_cuda], [no], [], [
    AS_CASE([$with_cuda],
      [auto|yes], [kv_cuda_home=/usr/local/cuda kv_nvcc_path=$kv_cuda_home/bin:$PATH],
      [kv_cuda_home=$with_cuda kv_nvcc_path=$with_cuda/bin])
    AS_IF([test -z "$NVCC"], [AC_PATH_PROG([NVCC], [nvcc], [], [$kv_nvcc_path])])
    AS_IF([test -n "$NVCC"], [
      kv_nvcc_bin=`AS_DIRNAME(["$NVCC"])`
      AS_CASE([$with_cuda], [auto|yes], [kv_cuda_home=`cd "$kv_nvcc_bin/.." && pwd`])
      CUDA_CPPFLAGS="-I$kv_cuda_home/include"
      CUDA_LIBS="-L$kv_cuda_home/lib64 -lcudart_static -lstdc++ -lrt -ldl -lpthread -lm"
      NVCC_GENCODE=
      for kv_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',' ' '`; do
        NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_$kv_arch,code=sm_$kv_arch"
      done
      AC_MSG_CHECKING([whether $NVCC compiles what $CC can link])
      cat >conftest_cuda.cu <<'EOF'
#include <cuda_runtime.h>
__global__ void k(int *p) { *p = 1; }
extern "C" int kv_probe(void) { int n = 0; k<<<1, 1>>>(&n); return (int)cudaGetLastError(); }
EOF
      AS_ECHO(["int kv_probe(void); int main(void) { return kv_probe(); }"]) >conftest_main.c
      AS_IF([$NVCC $NVCC_GENCODE -c conftest_cuda.cu -o conftest_cuda.o >&AS_MESSAGE_LOG_FD 2>&1 &&
             $CC conftest_main.c conftest_cuda.o $CUDA_LIBS -o conftest_cuda >&AS_MESSAGE_LOG_FD 2>&1],
        [kv_cuda="$NVCC ($with_cuda_arch)"])
      AS_IF([test "x$kv_cuda" = xno], [AC_MSG_RESULT([no])], [AC_MSG_RESULT([yes])])
      rm -f conftest_cuda.cu conftest_cuda.o conftest_main.c conftest_cuda
    ])
    AS_IF([test "x$kv_cuda" = xno], [
      AS_VAR_IF([with_cuda], [auto],
        [AC_MSG_WARN([no usable CUDA toolkit: building for the CPU only])],
        [AC_MSG_ERROR([--with-cuda=$with_cuda: no nvcc that compiles and links; see config.log])])
    ])
  ])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([NVCC_GENCODE])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$kv_cuda" != xno])
])
