"""LLVM IR of tapes: growable storage of residuals, written and read by loops of unknown length.

A tape is an address, 0 while nothing is written. It has a header and slabs of 4, 8, 16, ... slots:
slot n lies in slab log2(n + 4) - 2, so growth moves nothing. All memory of a run hangs on one
list, its region, newest first: a loop whose tapes do not outlive a trip marks the list before the
trip and frees it down to the mark after it; the end of the run frees the rest.

    header words   region, bytes of a slot, first written slot, last + 1, then the slabs' addresses
    region words   newest block, bytes in use, whether memory ran out, most bytes ever in use
    block words    next older block, bytes (-1: a mark), then the data

The `$NAMES` are filled in by `library.py`. `put`, `get`, `span`, `mark` and `release` are called
like kernels; their argument words are listed at each. `shape` is the address of words that say:
lanes, bytes of a slot, number of blocks, then each block's bytes and offset in the slot.
"""

SLABS = 30  # enough for 2**32 slots
HEADER = 4  # words before the slabs
KERNELS = ("put", "get", "span", "mark", "release")

_MEMORY = """
define internal ptr @fx_tape_take(ptr %region, i64 %bytes) #1 {
entry:
  %size = add i64 %bytes, 16
  %block = call ptr @calloc(i64 1, i64 %size)
  %none = icmp eq ptr %block, null
  br i1 %none, label %fail, label %link
fail:
  %failp = getelementptr i64, ptr %region, i64 2
  store i64 1, ptr %failp
  ret ptr null
link:
  %newest = load ptr, ptr %region
  store ptr %newest, ptr %block
  %bytesp = getelementptr i64, ptr %block, i64 1
  store i64 %bytes, ptr %bytesp
  store ptr %block, ptr %region
  %usedp = getelementptr i64, ptr %region, i64 1
  %used = load i64, ptr %usedp
  %now = add i64 %used, %bytes
  store i64 %now, ptr %usedp
  %mostp = getelementptr i64, ptr %region, i64 3
  %before = load i64, ptr %mostp
  %most = call i64 @llvm.smax.i64(i64 %before, i64 %now)
  store i64 %most, ptr %mostp
  %data = getelementptr i64, ptr %block, i64 2
  ret ptr %data
}

define internal i1 @fx_tape_drop(ptr %region) #1 { ; the newest block; whether it was a mark
entry:
  %block = load ptr, ptr %region
  %next = load ptr, ptr %block
  %bytesp = getelementptr i64, ptr %block, i64 1
  %bytes = load i64, ptr %bytesp
  %mark = icmp slt i64 %bytes, 0
  %freed = call i64 @llvm.smax.i64(i64 %bytes, i64 0)
  %usedp = getelementptr i64, ptr %region, i64 1
  %used = load i64, ptr %usedp
  %now = sub i64 %used, %freed
  store i64 %now, ptr %usedp
  store ptr %next, ptr %region
  call void @free(ptr %block)
  ret i1 %mark
}

define void @fx_tape_clear(ptr %region) #1 {
entry:
  br label %look
look:
  %block = load ptr, ptr %region
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %drop
drop:
  %mark = call i1 @fx_tape_drop(ptr %region)
  br label %look
done:
  ret void
}

define void @fx_tape_mark(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 { ; region
entry:
  %region = load ptr, ptr %args
  %data = call ptr @fx_tape_take(ptr %region, i64 0)
  %none = icmp eq ptr %data, null
  br i1 %none, label %done, label %mark
mark:
  %bytesp = getelementptr i64, ptr %data, i64 -1
  store i64 -1, ptr %bytesp
  br label %done
done:
  ret void
}

define void @fx_tape_release(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 { ; region
entry:
  %region = load ptr, ptr %args
  br label %look
look:
  %block = load ptr, ptr %region
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %drop
drop:
  %mark = call i1 @fx_tape_drop(ptr %region)
  br i1 %mark, label %done, label %look
done:
  ret void
}

define internal ptr @fx_tape_new(ptr %region, i64 %stride) #1 {
entry:
  %tape = call ptr @fx_tape_take(ptr %region, i64 $TAPE_BYTES)
  %none = icmp eq ptr %tape, null
  br i1 %none, label %done, label %fill
fill:
  store ptr %region, ptr %tape
  %stridep = getelementptr i64, ptr %tape, i64 1
  store i64 %stride, ptr %stridep
  br label %done
done:
  ret ptr %tape
}

; Where slot `number` (not negative) lies. Its slab is made if there is a region, else null.
define internal ptr @fx_tape_slot(ptr %tape, i64 %number, ptr %region) #1 {
entry:
  %place = add i64 %number, 4
  %zeros = call i64 @llvm.ctlz.i64(i64 %place, i1 true)
  %slabnumber = sub i64 61, %zeros
  %slots = shl i64 4, %slabnumber
  %within = sub i64 %place, %slots
  %stridep = getelementptr i64, ptr %tape, i64 1
  %stride = load i64, ptr %stridep
  %slabs = getelementptr i64, ptr %tape, i64 $TAPE_HEADER
  %slabp = getelementptr i64, ptr %slabs, i64 %slabnumber
  %found = load ptr, ptr %slabp
  %there = icmp ne ptr %found, null
  br i1 %there, label %have, label %lack
lack:
  %reading = icmp eq ptr %region, null
  br i1 %reading, label %none, label %make
make:
  %bytes = mul i64 %slots, %stride
  %made = call ptr @fx_tape_take(ptr %region, i64 %bytes)
  store ptr %made, ptr %slabp
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %have
have:
  %slab = phi ptr [ %found, %entry ], [ %made, %make ]
  %offset = mul i64 %within, %stride
  %slot = getelementptr i8, ptr %slab, i64 %offset
  ret ptr %slot
none:
  ret ptr null
}

; Small blocks are not worth a call.
define internal void @fx_tape_move(ptr %to, ptr %from, i64 %size) #0 {
entry:
  switch i64 %size, label %any [ i64 4, label %four
                                 i64 8, label %eight ]
four:
  %w = load i32, ptr %from, align 1
  store i32 %w, ptr %to, align 1
  ret void
eight:
  %d = load i64, ptr %from, align 1
  store i64 %d, ptr %to, align 1
  ret void
any:
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret void
}
"""

_BOUNDS = """
  %lowp = getelementptr i64, ptr %tape, i64 2
  %highp = getelementptr i64, ptr %tape, i64 3
  %low0 = load i64, ptr %lowp
  %high0 = load i64, ptr %highp
"""


def _kernel(name: str, arguments: tuple[str, ...], before: str, lane: str) -> str:
    """A kernel that does `lane` for every lane %l; it starts with the lane's tape %tape in the
    block `one` and ends by going to `next`. `before` says how many %lanes there are."""
    loads = "".join(
        f"  %{name}.at = getelementptr i64, ptr %args, i64 {n}\n"
        f"  %{name} = load ptr, ptr %{name}.at\n"
        for n, name in enumerate(arguments)
    )
    return f"""
define void @fx_tape_{name}(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 {{
entry:
{loads}{before}
  br label %lane
lane:
  %l = phi i64 [ 0, %entry ], [ %l1, %next ]
  %more = icmp slt i64 %l, %lanes
  br i1 %more, label %one, label %done
one:
  %handlep = getelementptr i64, ptr %handles, i64 %l
  %tape = load ptr, ptr %handlep
{lane}
next:
  %l1 = add i64 %l, 1
  br label %lane
done:
  ret void
}}
"""


def _layout(blocks: int) -> str:
    """What %shape says; the blocks' pointers begin with the argument of number `blocks`."""
    return f"""
  %stridep = getelementptr i64, ptr %shape, i64 1
  %countp = getelementptr i64, ptr %shape, i64 2
  %parts = getelementptr i64, ptr %shape, i64 3
  %lanes = load i64, ptr %shape
  %stride = load i64, ptr %stridep
  %count = load i64, ptr %countp
  %blocks = getelementptr i64, ptr %args, i64 {blocks}
"""


def _every_block(entered: str, copy: str) -> str:
    """For every block of the lane: `copy` between %own, the argument's part for this lane, and
    the place %offset in the slot. It ends by going to `copied`."""
    return f"""
block:
  %b = phi i64 [ 0, %{entered} ], [ %b1, %copied ]
  %some = icmp slt i64 %b, %count
  br i1 %some, label %copy, label %next
copy:
  %two = shl i64 %b, 1
  %sizep = getelementptr i64, ptr %parts, i64 %two
  %offsetp = getelementptr i64, ptr %sizep, i64 1
  %size = load i64, ptr %sizep
  %offset = load i64, ptr %offsetp
  %ownp = getelementptr i64, ptr %blocks, i64 %b
  %whole = load ptr, ptr %ownp
  %skip = mul i64 %l, %size
  %own = getelementptr i8, ptr %whole, i64 %skip
{copy}
copied:
  %b1 = add i64 %b, 1
  br label %block
"""


_NUMBER = """
  %numberp = getelementptr i32, ptr %numbers, i64 %l
  %narrow = load i32, ptr %numberp
  %number = sext i32 %narrow to i64
"""

_PUT = f"""
  %to = getelementptr i64, ptr %outs, i64 %l
  store ptr %tape, ptr %to
{_NUMBER}
  %before = icmp slt i64 %number, 0
  br i1 %before, label %next, label %find
find:
  %empty = icmp eq ptr %tape, null
  br i1 %empty, label %create, label %owned
create:
  %fresh = call ptr @fx_tape_new(ptr %region, i64 %stride)
  store ptr %fresh, ptr %to
  %nothing = icmp eq ptr %fresh, null
  br i1 %nothing, label %next, label %locate
owned:
  %owner = load ptr, ptr %tape
  %mine = icmp eq ptr %owner, %region
  br i1 %mine, label %locate, label %foreign
foreign: ; another run's tape: it must not hang on this run's memory
  %failp = getelementptr i64, ptr %region, i64 2
  store i64 2, ptr %failp
  br label %next
locate:
  %own.tape = phi ptr [ %fresh, %create ], [ %tape, %owned ]
  %slot = call ptr @fx_tape_slot(ptr %own.tape, i64 %number, ptr %region)
  %lost = icmp eq ptr %slot, null
  br i1 %lost, label %next, label %note
note:
{_BOUNDS.replace("%tape", "%own.tape")}
  %first = icmp eq i64 %high0, 0
  %after = add i64 %number, 1
  %low1 = call i64 @llvm.smin.i64(i64 %low0, i64 %number)
  %low = select i1 %first, i64 %number, i64 %low1
  %high = call i64 @llvm.smax.i64(i64 %high0, i64 %after)
  store i64 %low, ptr %lowp
  store i64 %high, ptr %highp
  br label %block
"""

_GET = f"""
{_NUMBER}
  %empty = icmp eq ptr %tape, null
  br i1 %empty, label %found, label %bounds
bounds:
{_BOUNDS}
  %above = icmp sge i64 %number, %low0
  %below = icmp slt i64 %number, %high0
  %inside = and i1 %above, %below
  br i1 %inside, label %locate, label %found
locate:
  %slot0 = call ptr @fx_tape_slot(ptr %tape, i64 %number, ptr null)
  br label %found
found:
  %slot = phi ptr [ null, %one ], [ null, %bounds ], [ %slot0, %locate ]
  %blank = icmp eq ptr %slot, null
  br label %block
"""

_SPAN = f"""
  %empty = icmp eq ptr %tape, null
  br i1 %empty, label %store, label %read
read:
{_BOUNDS}
  br label %store
store:
  %low = phi i64 [ 0, %one ], [ %low0, %read ]
  %high = phi i64 [ 0, %one ], [ %high0, %read ]
  %lowto = getelementptr i32, ptr %lows, i64 %l
  %highto = getelementptr i32, ptr %highs, i64 %l
  %low32 = trunc i64 %low to i32
  %high32 = trunc i64 %high to i32
  store i32 %low32, ptr %lowto
  store i32 %high32, ptr %highto
  br label %next
"""

_INTO_SLOT = """
  %t = getelementptr i8, ptr %slot, i64 %offset
  call void @fx_tape_move(ptr %t, ptr %own, i64 %size)
  br label %copied
"""

_FROM_SLOT = """
  br i1 %blank, label %zero, label %move
zero:
  call void @llvm.memset.p0.i64(ptr %own, i8 0, i64 %size, i1 false)
  br label %copied
move:
  %s = getelementptr i8, ptr %slot, i64 %offset
  call void @fx_tape_move(ptr %own, ptr %s, i64 %size)
  br label %copied
"""

TEXT = "\n".join(
    [
        _MEMORY,
        # region, handles out, handles, slot numbers, shape, *blocks
        _kernel(
            "put",
            ("region", "outs", "handles", "numbers", "shape"),
            _layout(5),
            _PUT + _every_block("note", _INTO_SLOT),
        ),
        # handles, slot numbers, shape, *blocks
        _kernel(
            "get",
            ("handles", "numbers", "shape"),
            _layout(3),
            _GET + _every_block("found", _FROM_SLOT),
        ),
        # handles, lanes (a number), first slots out, ends out
        _kernel(
            "span",
            ("handles", "number.of.lanes", "lows", "highs"),
            "  %lanes = ptrtoint ptr %number.of.lanes to i64",
            _SPAN,
        ),
    ]
)
