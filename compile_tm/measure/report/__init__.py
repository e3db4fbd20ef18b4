"""What the theorems say in numbers, and where other constructions lose their precision."""
