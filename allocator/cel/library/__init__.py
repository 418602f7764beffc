"""The functions of the stored environment, one module a topic. Each exports `FUNCTIONS`.

A function takes and returns runtime values (`allocator.cel.values`), checks the exact classes of its arguments and
raises `CelRuntimeError` where upstream returns an error value. All are linear in their input, or in the cost counted.
"""
