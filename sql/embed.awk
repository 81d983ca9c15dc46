# Turns sql/*.sql into C: each file as SQL_FILE_name, and the named statements of statements.sql as an enum with their
# texts. Comments are kept in schema files (SQLite stores the ones inside a statement), dropped elsewhere.
function c_string(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    gsub(/\n/, "\\n", text)
    return "\"" text "\""
}
FNR == 1 {
    file = FILENAME
    sub(/.*\//, "", file)
    sub(/\.sql$/, "", file)
    if (file != "statements") {
        files[++n_files] = file
    }
}
file == "statements" && /^-- :/ {
    name = $2
    sub(/^:/, "", name)
    names[++n_names] = name
    next
}
file == "statements" && /^--/ || /^[ \t]*$/ { next }
file == "statements" { statement[name] = statement[name] (statement[name] == "" ? "" : "\n") $0; next }
{ body[file] = body[file] $0 "\n" }
END {
    print "/* Made from sql/ by sql/embed.awk. */"
    print "#ifndef UNSEEN_GEN_SQL_H\n#define UNSEEN_GEN_SQL_H"
    print "enum sql_statement {"
    for (i = 1; i <= n_names; i++) {
        print "    SQL_" toupper(names[i]) ","
    }
    print "    SQL_STATEMENTS\n};"
    print "extern const char *const sql_statements[SQL_STATEMENTS];"
    for (i = 1; i <= n_files; i++) {
        print "extern const char sql_file_" files[i] "[];"
    }
    print "#endif"
    print "#ifdef SQL_IMPLEMENTATION"
    print "const char *const sql_statements[SQL_STATEMENTS] = {"
    for (i = 1; i <= n_names; i++) {
        print "    [SQL_" toupper(names[i]) "] = " c_string(statement[names[i]]) ","
    }
    print "};"
    for (i = 1; i <= n_files; i++) {
        print "const char sql_file_" files[i] "[] = " c_string(body[files[i]]) ";"
    }
    print "#endif"
}
