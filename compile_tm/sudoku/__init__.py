"""The MRV backtracking solver as a program.

board       cells, digits, token ids and their codes
wires       registers and flags
schedule    layers of each part
sizes       dimensions by formula
latest      search for the latest matching token, a few position bits in each layer
reading     kinds of tokens and of the tokens before them
chain       ancestors of a token on the decision stack, by pointer doubling
solving     candidates, counts, next digit and next cell
summaries   when a summary is due, and the tokens that it copies
meanings    layers after which registers hold their values
compiled    the whole program, and generation of CoT and SCoT
"""
