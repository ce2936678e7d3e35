"""Pickles that version 0.1.0 made are read."""

from __future__ import annotations

import base64
import pickle
import zlib

import tracecomp as torch
from tracecomp import nn

MADE_BY_0_1_0 = (
    b"c-o~@$xakO7@my*1W_T15fkHWJUDTS!NkA;y*OkfpkB-B?i#9MPt{mm1r7nDMi7!R9{7C)4<392k*m+)Qy35W_rfgTa<C5lb^ZHV"
    b"FG}w(lyk}1fQl;{CL^W6oiv*I%va4;^?)=)H1n(o1K5QMFSzo9l(7r$jI_;GyGneeS+!|HBdFH24Q>>5d?h2Jt#4w<fkYDApbS!x"
    b"U8v<YVJ`2%8(4%&Enh3tid(>sxq-m6TP#*8h-ui_PWeTbzYX<z{oYSJ$)}bx;O)#^$z>;>VIjj}hNTP#GK5%d1HX&lhFetACNm84"
    b"Jkw2G%4!c|c%k#Z3%pd}Wj@SD<M8=dCwRO}xI*JbH();byKskcx&2v;V!tPh?X5VLQY6+GxUp^+DWS9!1J)}k&?dYDR}R>U@L6BG"
    b"G7_K0!WI3Ng?eH&tEL<8N(x<#X%V=Qgh?c37kAeUHbO<s^=s$_Rm)8k*bsFm`znKdHB?BZ(ZI1K_S7<oeGgIp(o2YkX$ZxI6ml81"
    b"-3aLvGD0Q}lV=-^&L#B_C2ILA;3oP!h3JK11IqL1&w&SC+vfAh*se0M%nk61e`rgwR=}C6?982gRQbMl_wCs1+4Ucv@5#3_pDqM@"
    b"=f5q@9BqRqX!IA0n~A+qt1i#(J^nhgaC7p@VH=j$H-Il-hEqf;Nm`h%h;X0GLG~nK2Hs)5#H0R`RjLEh(u{DWp2ThORTwhg2;3mN"
    b"-PZxrEVv_*Rl0;Rp6IHjD*RbY9wQB<k5I=u)UJz^bBaWU8b$)N+{ZZG%Q&ocj^L04f0LLxDxso&4<ka72BXGm?0&7_MwK-^grfCa"
    b"{_5e$qgav^8kYszw8-Wk9-fGUy7TBAaGQAIYbmU!@H~YVDZEPIbqZT)XoEtwLi7qd*0cX(33Diiw2heozr{afvATg|-_Q@fjv~Ot"
    b"i%<?*)TFVTJKkhXrQ0N<WLo^AJMMETB?}`G(#XVGB~PjFA1{)3wf6~K|Lqf6$oD^r%M7=h8hqpHw)zXf-)xE"
)


def test_tensors_modules_and_descriptors_of_version_0_1_are_unpickled() -> None:
    found = pickle.loads(zlib.decompress(base64.b85decode(MADE_BY_0_1_0)))
    assert found["tensor"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["tensor"].dtype is torch.int64
    assert isinstance(found["parameter"], nn.Parameter) and found["parameter"].requires_grad
    assert found["parameter"].tolist() == [1.5, -2.0]
    assert found["size"] == torch.Size([2, 3]) and type(found["size"]) is torch.Size
    assert found["device"] == torch.device("cpu") and type(found["device"]) is torch.device
    assert found["dtype"] is torch.float32 and repr(found["layout"]) == "torch.strided"
    assert found["module"](torch.ones(1, 2)).shape == (1, 3)
    assert found["bool"].tolist() == [True, False]


def test_layouts_and_formats_survive_pickling_as_themselves() -> None:
    for one in (torch.strided, torch.channels_last, torch.preserve_format):
        assert pickle.loads(pickle.dumps(one)) is one
