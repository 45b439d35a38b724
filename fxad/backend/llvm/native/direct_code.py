"""LLVM IR of `fx_call`: a compiled program as a function of Python. `library.py` fills in `$NAMES`.

    refused = function(*operands, *results)  # Arrays, then NumPy arrays to write to

It has the signature of CPython's METH_FASTCALL; `self` is a NumPy array of int64, the record
(`CallWord`). Operands are Arrays whose types and weakness must be the expected objects; anything
else is refused (True) before the first step, as are arrays that BIND cannot read in place. The
frame, the arena and the scratch are one block of memory for the call. The GIL is released while
the program runs; an exception that a signal's handler raises ends it.
"""

from enum import IntEnum


class CallWord(IntEnum):
    """The record: written when the function is made, the pool's words again when it changes."""

    TEMPLATE = 0  # address of the frame's first words, `WORDS` of them
    WORDS = 1
    ARGS_WORD = 2  # where the frame's argument area begins
    COUNT = 3  # operands and results
    OPERANDS = 4
    KINDS = 5  # address of what each operand must be: its type's and weakness's addresses
    BYTES = 6  # arena and scratch
    ARENA_BYTES = 7  # the arena alone
    STRIDE = 8
    POOL = 9
    INTERVAL = 10
    CLASS = 11  # the classes that operands may have, and where they keep what
    BORROWED = 12
    TYPE_AT = 13
    WEAK_AT = 14
    DATA_AT = 15
    SAVE = 16  # functions of CPython
    RESTORE = 17
    SIGNALS = 18
    BOOL = 19
    HOLD = 20
    RELEASE = 21


def _load(word: CallWord, kind: str = "i64") -> str:
    name = word.name.lower()
    return (
        f"  %c.{name}p = getelementptr i64, ptr %record, i64 {word.value}\n"
        f"  %c.{name} = load {kind}, ptr %c.{name}p\n"
    )


_POINTERS = {CallWord[n] for n in "TEMPLATE KINDS SAVE RESTORE SIGNALS BOOL HOLD RELEASE".split()}
_LOADS = "".join(_load(word, "ptr" if word in _POINTERS else "i64") for word in CallWord)


def _store(word: str, value: str, kind: str = "i64") -> str:
    return (
        f"  %f.{word}p = getelementptr i64, ptr %frame, i64 ${word}\n"
        f"  store {kind} {value}, ptr %f.{word}p\n"
    )


_FRAME = "".join(
    [
        _store("ARGS", "%argsat", "ptr"),
        _store("INTERVAL", "%c.interval"),
        _store("POOL", "%c.pool"),
        _store("ARENA", "%arena", "ptr"),
        _store("SCRATCH", "%scratch", "ptr"),
        _store("STRIDE", "%c.stride"),
        _store("ARGUMENTS", "%table", "ptr"),
        _store("RESULTS", "%buffers", "ptr"),
    ]
)

TEXT = f"""
define ptr @fx_call(ptr %self, ptr %given, i64 %number) #1 {{
entry:
  %recordp = getelementptr i8, ptr %self, i64 $DATA_AT
  %record = load ptr, ptr %recordp
{_LOADS}
  %right = icmp eq i64 %number, %c.count
  br i1 %right, label %prepare, label %refuse
prepare: ; frame, table of arrays, arena
  %framebytes = shl i64 %c.words, 3
  %tablebytes = shl i64 %c.count, 3
  %front = add i64 %framebytes, %tablebytes
  %whole = add i64 %front, %c.bytes
  %size = add i64 %whole, 64
  %frame = call ptr @malloc(i64 %size)
  %none = icmp eq ptr %frame, null
  br i1 %none, label %refuse, label %fill
fill:
  call void @llvm.memcpy.p0.p0.i64(ptr %frame, ptr %c.template, i64 %framebytes, i1 false)
  %table = getelementptr i64, ptr %frame, i64 %c.words
  %buffers = getelementptr i64, ptr %table, i64 %c.operands
  %argsat = getelementptr i64, ptr %frame, i64 %c.args_word
  %after = getelementptr i8, ptr %frame, i64 %front
  %afteri = ptrtoint ptr %after to i64
  %past = add i64 %afteri, 63
  %line = and i64 %past, -64
  %arena = inttoptr i64 %line to ptr
  %scratch = getelementptr i8, ptr %arena, i64 %c.arena_bytes
{_FRAME}
  br label %check
check:
  %i = phi i64 [ 0, %fill ], [ %i1, %known ]
  %more = icmp slt i64 %i, %c.operands
  br i1 %more, label %operand, label %results
operand:
  %objectp = getelementptr ptr, ptr %given, i64 %i
  %object = load ptr, ptr %objectp
  %itsclassp = getelementptr i8, ptr %object, i64 $CLASS_AT
  %itsclass = load i64, ptr %itsclassp
  %isown = icmp eq i64 %itsclass, %c.class
  %islent = icmp eq i64 %itsclass, %c.borrowed
  %isarray = or i1 %isown, %islent
  br i1 %isarray, label %array, label %drop
array:
  %kind = shl i64 %i, 1
  %kindp = getelementptr i64, ptr %c.kinds, i64 %kind
  %kindp1 = getelementptr i64, ptr %kindp, i64 1
  %itstypep = getelementptr i8, ptr %object, i64 %c.type_at
  %itsweakp = getelementptr i8, ptr %object, i64 %c.weak_at
  %itsdatap = getelementptr i8, ptr %object, i64 %c.data_at
  %wanttype = load i64, ptr %kindp
  %wantweak = load i64, ptr %kindp1
  %itstype = load i64, ptr %itstypep
  %itsweak = load i64, ptr %itsweakp
  %itsdata = load ptr, ptr %itsdatap
  %sametype = icmp eq i64 %itstype, %wanttype
  %sameweak = icmp eq i64 %itsweak, %wantweak
  %hasdata = icmp ne ptr %itsdata, null
  %same = and i1 %sametype, %sameweak
  %good = and i1 %same, %hasdata
  br i1 %good, label %known, label %drop
known:
  %entry.i = getelementptr ptr, ptr %table, i64 %i
  store ptr %itsdata, ptr %entry.i
  %i1 = add i64 %i, 1
  br label %check
results:
  %left = sub i64 %c.count, %c.operands
  %leftbytes = shl i64 %left, 3
  %from = getelementptr ptr, ptr %given, i64 %c.operands
  call void @llvm.memcpy.p0.p0.i64(ptr %buffers, ptr %from, i64 %leftbytes, i1 false)
  br label %hold
hold: ; another thread may give an operand's memory away while the GIL is not ours
  %h = phi i64 [ 0, %results ], [ %h1, %hold.one ]
  %h.more = icmp slt i64 %h, %c.operands
  br i1 %h.more, label %hold.one, label %run
hold.one:
  %h.at = getelementptr ptr, ptr %table, i64 %h
  %h.array = load ptr, ptr %h.at
  call void %c.hold(ptr %h.array)
  %h1 = add i64 %h, 1
  br label %hold
run:
  %thread = call ptr %c.save()
  %status = call i64 @fx_execute(ptr %frame)
  call void %c.restore(ptr %thread)
  %ticked = icmp eq i64 %status, $TICK
  br i1 %ticked, label %tick, label %release
tick:
  %raised = call i32 %c.signals()
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %run, label %release
release:
  %failed = phi i1 [ false, %run ], [ true, %tick ]
  br label %release.next
release.next:
  %r = phi i64 [ 0, %release ], [ %r1, %release.one ]
  %r.more = icmp slt i64 %r, %c.operands
  br i1 %r.more, label %release.one, label %end
release.one:
  %r.at = getelementptr ptr, ptr %table, i64 %r
  %r.array = load ptr, ptr %r.at
  call void %c.release(ptr %r.array)
  %r1 = add i64 %r, 1
  br label %release.next
end:
  call void @free(ptr %frame)
  br i1 %failed, label %error, label %answer
answer:
  %undone = icmp ne i64 %status, $DONE
  %wide = zext i1 %undone to i64
  %said = call ptr %c.bool(i64 %wide)
  ret ptr %said
error:
  ret ptr null
drop:
  call void @free(ptr %frame)
  br label %refuse
refuse:
  %no = call ptr %c.bool(i64 1)
  ret ptr %no
}}
"""
