"""`python run_block.py FILE`: runs a program that may `await` at its top level, as fragments do."""

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from types import CodeType, FunctionType

path = Path(sys.argv.pop(1))
names: dict[str, object] = {"__name__": "__main__", "__file__": str(path)}
code: CodeType = compile(path.read_text("utf-8"), str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
if code.co_flags & inspect.CO_COROUTINE:
    asyncio.run(FunctionType(code, names)())
else:
    exec(code, names)
