# the loops and connections
