"""The paper's constructions: automata, and Turing machines with CoT and with SCoT, as programs."""
