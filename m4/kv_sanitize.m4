# SPDX-License-Identifier: Apache-2.0
# KV_ENABLE_SANITIZE: --enable-sanitize[=LIST] builds everything with sanitizers (default address,undefined).
AC_DEFUN([KV_ENABLE_SANITIZE], [
  AC_ARG_ENABLE([sanitize],
    [AS_HELP_STRING([--enable-sanitize@<:@=LIST@:>@],
                    [build with sanitizers (default list: address,undefined); needs --without-jemalloc])])
  kv_sanitize=no
  AS_CASE(["x$enable_sanitize"],
    [x|xno], [],
    [xyes], [kv_sanitize=address,undefined],
    [kv_sanitize=$enable_sanitize])
  AS_VAR_IF([kv_sanitize], [no], [], [
    AS_VAR_IF([with_jemalloc], [no], [],
      [AC_MSG_ERROR([--enable-sanitize needs --without-jemalloc: sanitizers must own malloc])])
    SANITIZE_CFLAGS="-fsanitize=$kv_sanitize -fno-sanitize-recover=all -fno-omit-frame-pointer"
    kv_saved_cflags=$CFLAGS
    CFLAGS="$CFLAGS $SANITIZE_CFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()], [],
      [AC_MSG_ERROR([--enable-sanitize=$kv_sanitize: $CC does not know or cannot link that; see config.log])])
    CFLAGS=$kv_saved_cflags
  ])
  AC_SUBST([SANITIZE_CFLAGS])
  AM_CONDITIONAL([SANITIZE], [test "x$kv_sanitize" != xno])
])
