# SPDX-License-Identifier: Apache-2.0
# The options in a program's --help as items of a list in mdoc; those that every program has are left out.
/^  --/ {
    name = substr($1, 3)
    if (name ~ /^(config|print-config|help|version)$/) {
        next
    }
    text = $0
    sub(/^  --[a-z-]+ */, "", text)
    value = ""
    if ($0 ~ /^  --[a-z-]+ [A-Z|]+[ [,.]/) { # one blank before a value's name, many before the help
        value = $2
        sub(/^[^ ]+ +/, "", text)
    }
    gsub(/\\/, "\\e", text)
    printf ".It Li %s%s\n\\&%s\n", name, value == "" ? "" : " No = Ar " value, text
}
