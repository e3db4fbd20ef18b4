"""The MRV backtracking solver as a transformer: a program on the layer that machines use.

board       cells, digits, token ids and their codes
wires       registers and flags
schedule    which part is done by which layer
latest      the latest token that matches, a few bits of its position a layer
reading     what a token is, and what stands before it
chain       a token's ancestors on the decision stack, gathered by pointer doubling
solving     candidates, counts, the cell to try next, the digit to write next
summaries   when a summary is due, and the tokens that it copies
meanings    what the registers hold after which layers, for people and programs
compiled    the whole program, with sizes, and generation of CoT and SCoT
"""
