# SQL that is compiled in
