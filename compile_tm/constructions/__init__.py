"""The paper's constructions: programs of automata and of Turing machines with CoT and SCoT."""
