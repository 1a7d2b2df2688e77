"""Every op of the table is checked against NumPy or PyTorch by one of the files beside this one."""

import importlib
import pathlib

import rlx_op


def test_every_op_is_checked():
    for file in sorted(pathlib.Path(__file__).parent.glob("*_test.py")):
        importlib.import_module(file.stem)
    ops = set(rlx_op.table())
    assert not ops - rlx_op.covered, f"no test covers {sorted(ops - rlx_op.covered)}"
    assert not rlx_op.covered - ops, f"there is no op {sorted(rlx_op.covered - ops)}"
