"""Report on the theorems: bounds in numbers, measured tightness, and limits of other encodings."""
