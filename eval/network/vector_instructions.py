"""LLVM intrinsics for numba kernels: fused multiply-add and sums of scaled vectors.

LLVM must not contract a multiplication and an addition by itself, since that changes the result. A
sum of scaled vectors is kept in a register explicitly: for a loop over arrays, which may alias, the
compiler would load and store the sum for each term.
"""

from __future__ import annotations

from typing import Any

from solver.jit import IS_JIT

WIDTH = 16
"""Floats per vector: one register of AVX-512, two of AVX2, four of NEON."""

if IS_JIT:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    _INDEX = ir.IntType(32)
    _VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
    _SAME_LANE = ir.Constant(ir.VectorType(_INDEX, WIDTH), [0] * WIDTH)

    @intrinsic  # type: ignore[untyped-decorator]
    def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
        """Return a * b + c of float32."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.fma(*args)

        return types.float32(types.float32, types.float32, types.float32), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def add_combination(
        typingctx: Any,  # noqa: ARG001
        coefficients: Any,
        vectors: Any,
        column: Any,
        out: Any,
    ) -> Any:
        """Compute out[:WIDTH] += coefficients @ vectors[:, column : column + WIDTH].

        All arrays are float32: coefficients (n,), vectors (n, columns) and `out` with at least
        `WIDTH` elements. The terms are added in order.
        """

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            c, v, o = (
                context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 3)
            )
            count, stride = builder.extract_value(c.shape, 0), builder.extract_value(v.shape, 1)
            first = builder.gep(v.data, [args[2]])
            target = builder.bitcast(o.data, _VECTOR.as_pointer())
            kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
            vector_fma = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")
            total = cgutils.alloca_once_value(builder, builder.load(target, align=4))
            with cgutils.for_range(builder, count) as loop:
                number = builder.load(builder.gep(c.data, [loop.index]))
                lanes = builder.insert_element(
                    ir.Constant(_VECTOR, ir.Undefined), number, _INDEX(0)
                )
                lanes = builder.shuffle_vector(lanes, lanes, _SAME_LANE)
                place = builder.gep(first, [builder.mul(loop.index, stride)])
                row = builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=4)
                builder.store(builder.call(vector_fma, [lanes, row, builder.load(total)]), total)
            builder.store(builder.load(total), target, align=4)
            return context.get_dummy_value()

        return types.void(coefficients, vectors, column, out), codegen

else:

    def fma(a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c of float32."""
        return a * b + c

    def add_combination(coefficients: Any, vectors: Any, column: int, out: Any) -> None:
        """Compute out[:WIDTH] += coefficients @ vectors[:, column : column + WIDTH]."""
        rows = vectors[: len(coefficients), column : column + WIDTH]
        for number, row in zip(coefficients, rows, strict=True):
            out[:WIDTH] += number * row
