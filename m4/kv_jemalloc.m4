# SPDX-License-Identifier: Apache-2.0
# KV_WITH_JEMALLOC: --without-jemalloc leaves malloc to libc (sanitizers and valgrind need that).
AC_DEFUN([KV_WITH_JEMALLOC], [
  AC_ARG_WITH([jemalloc],
    [AS_HELP_STRING([--without-jemalloc], [use the C library's malloc])], [], [with_jemalloc=yes])
  kv_jemalloc=libc
  AS_IF([test "x$with_jemalloc" != xno], [
    PKG_CHECK_MODULES([JEMALLOC], [jemalloc])
    AC_DEFINE([HAVE_JEMALLOC], [1], [Define to 1 when the programs link jemalloc.])
    kv_jemalloc=jemalloc
  ])
])
