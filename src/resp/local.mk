# the RESP edge
