# SPDX-License-Identifier: Apache-2.0
# KV_ENABLE_FUZZ: compiles the tree for libFuzzer (clang only); `make fuzz` does it in a folder of its own.
AC_DEFUN([KV_ENABLE_FUZZ], [
  AC_ARG_ENABLE([fuzz],
    [AS_HELP_STRING([--enable-fuzz], [instrument for libFuzzer; needs CC=clang (see make fuzz)])],
    [], [enable_fuzz=no])
  AS_VAR_IF([enable_fuzz], [no], [],
    [SANITIZE_CFLAGS="$SANITIZE_CFLAGS -fsanitize=fuzzer-no-link"])
  # Not a literal in Makefile.am: automake wants linker flags out of LDADD.
  AC_SUBST([FUZZ_ENGINE], [-fsanitize=fuzzer])
  AM_CONDITIONAL([FUZZ], [test "x$enable_fuzz" != xno])
])
