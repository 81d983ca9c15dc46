# scenario tests
