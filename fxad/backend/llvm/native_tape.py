"""LLVM IR of tapes: growable storage of residuals, written and read by loops of unknown length.

A tape is an address, 0 while nothing is written. It has a header and slabs of 4, 8, 16, ... slots:
slot n lies in slab log2(n + 4) - 2, so growth moves nothing. All memory of a run hangs on one
list, its region, newest first: a loop whose tapes do not outlive a trip marks the list before the
trip and frees it down to the mark after it; the end of the run frees the rest.

    header words   region, bytes of a slot, first written slot, last + 1, then the slabs' addresses
    region words   newest block, bytes in use, whether memory ran out, most bytes ever in use
    block words    next older block, bytes (-1: a mark), then the data

The `$NAMES` are filled in by `native.py`. `put`, `get`, `span`, `mark` and `release` are called
like kernels; their argument words are listed at each. `shape` is the address of words that say:
lanes, bytes of a slot, number of blocks, then each block's bytes and offset in the slot.
"""

SLABS = 30  # enough for 2**32 slots
HEADER = 4  # words before the slabs
KERNELS = ("put", "get", "span", "mark", "release")

TEXT = """
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

; region, handles out, handles in, slot numbers, shape, *blocks
define void @fx_tape_put(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 {
entry:
  %outp = getelementptr i64, ptr %args, i64 1
  %inp = getelementptr i64, ptr %args, i64 2
  %numbersp = getelementptr i64, ptr %args, i64 3
  %shapep = getelementptr i64, ptr %args, i64 4
  %blocks = getelementptr i64, ptr %args, i64 5
  %region = load ptr, ptr %args
  %outs = load ptr, ptr %outp
  %ins = load ptr, ptr %inp
  %numbers = load ptr, ptr %numbersp
  %shape = load ptr, ptr %shapep
  %stridep = getelementptr i64, ptr %shape, i64 1
  %countp = getelementptr i64, ptr %shape, i64 2
  %parts = getelementptr i64, ptr %shape, i64 3
  %lanes = load i64, ptr %shape
  %stride = load i64, ptr %stridep
  %count = load i64, ptr %countp
  br label %lane
lane:
  %l = phi i64 [ 0, %entry ], [ %l1, %next ]
  %more = icmp slt i64 %l, %lanes
  br i1 %more, label %one, label %done
one:
  %from = getelementptr i64, ptr %ins, i64 %l
  %to = getelementptr i64, ptr %outs, i64 %l
  %given = load ptr, ptr %from
  store ptr %given, ptr %to
  %numberp = getelementptr i32, ptr %numbers, i64 %l
  %narrow = load i32, ptr %numberp
  %number = sext i32 %narrow to i64
  %before = icmp slt i64 %number, 0
  br i1 %before, label %next, label %find
find:
  %empty = icmp eq ptr %given, null
  br i1 %empty, label %create, label %owned
create:
  %fresh = call ptr @fx_tape_new(ptr %region, i64 %stride)
  store ptr %fresh, ptr %to
  %nothing = icmp eq ptr %fresh, null
  br i1 %nothing, label %next, label %locate
owned:
  %owner = load ptr, ptr %given
  %mine = icmp eq ptr %owner, %region
  br i1 %mine, label %locate, label %foreign
foreign: ; another run's tape: it must not hang on this run's memory
  %failp = getelementptr i64, ptr %region, i64 2
  store i64 2, ptr %failp
  br label %next
locate:
  %tape = phi ptr [ %fresh, %create ], [ %given, %owned ]
  %slot = call ptr @fx_tape_slot(ptr %tape, i64 %number, ptr %region)
  %lost = icmp eq ptr %slot, null
  br i1 %lost, label %next, label %note
note:
  %lowp = getelementptr i64, ptr %tape, i64 2
  %highp = getelementptr i64, ptr %tape, i64 3
  %low0 = load i64, ptr %lowp
  %high0 = load i64, ptr %highp
  %first = icmp eq i64 %high0, 0
  %after = add i64 %number, 1
  %low1 = call i64 @llvm.smin.i64(i64 %low0, i64 %number)
  %low = select i1 %first, i64 %number, i64 %low1
  %high = call i64 @llvm.smax.i64(i64 %high0, i64 %after)
  store i64 %low, ptr %lowp
  store i64 %high, ptr %highp
  br label %block
block:
  %b = phi i64 [ 0, %note ], [ %b1, %copy ]
  %some = icmp slt i64 %b, %count
  br i1 %some, label %copy, label %next
copy:
  %two = shl i64 %b, 1
  %sizep = getelementptr i64, ptr %parts, i64 %two
  %offsetp = getelementptr i64, ptr %sizep, i64 1
  %size = load i64, ptr %sizep
  %offset = load i64, ptr %offsetp
  %sourcep = getelementptr i64, ptr %blocks, i64 %b
  %source = load ptr, ptr %sourcep
  %skip = mul i64 %l, %size
  %s = getelementptr i8, ptr %source, i64 %skip
  %t = getelementptr i8, ptr %slot, i64 %offset
  call void @fx_tape_move(ptr %t, ptr %s, i64 %size)
  %b1 = add i64 %b, 1
  br label %block
next:
  %l1 = add i64 %l, 1
  br label %lane
done:
  ret void
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

; handles, slot numbers, shape, *blocks
define void @fx_tape_get(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 {
entry:
  %numbersp = getelementptr i64, ptr %args, i64 1
  %shapep = getelementptr i64, ptr %args, i64 2
  %blocks = getelementptr i64, ptr %args, i64 3
  %handles = load ptr, ptr %args
  %numbers = load ptr, ptr %numbersp
  %shape = load ptr, ptr %shapep
  %countp = getelementptr i64, ptr %shape, i64 2
  %parts = getelementptr i64, ptr %shape, i64 3
  %lanes = load i64, ptr %shape
  %count = load i64, ptr %countp
  br label %lane
lane:
  %l = phi i64 [ 0, %entry ], [ %l1, %next ]
  %more = icmp slt i64 %l, %lanes
  br i1 %more, label %one, label %done
one:
  %handlep = getelementptr i64, ptr %handles, i64 %l
  %tape = load ptr, ptr %handlep
  %numberp = getelementptr i32, ptr %numbers, i64 %l
  %narrow = load i32, ptr %numberp
  %number = sext i32 %narrow to i64
  %empty = icmp eq ptr %tape, null
  br i1 %empty, label %found, label %bounds
bounds:
  %lowp = getelementptr i64, ptr %tape, i64 2
  %highp = getelementptr i64, ptr %tape, i64 3
  %low = load i64, ptr %lowp
  %high = load i64, ptr %highp
  %above = icmp sge i64 %number, %low
  %below = icmp slt i64 %number, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %locate, label %found
locate:
  %slot0 = call ptr @fx_tape_slot(ptr %tape, i64 %number, ptr null)
  br label %found
found:
  %slot = phi ptr [ null, %one ], [ null, %bounds ], [ %slot0, %locate ]
  %blank = icmp eq ptr %slot, null
  br label %block
block:
  %b = phi i64 [ 0, %found ], [ %b1, %copied ]
  %some = icmp slt i64 %b, %count
  br i1 %some, label %copy, label %next
copy:
  %two = shl i64 %b, 1
  %sizep = getelementptr i64, ptr %parts, i64 %two
  %offsetp = getelementptr i64, ptr %sizep, i64 1
  %size = load i64, ptr %sizep
  %offset = load i64, ptr %offsetp
  %targetp = getelementptr i64, ptr %blocks, i64 %b
  %target = load ptr, ptr %targetp
  %skip = mul i64 %l, %size
  %t = getelementptr i8, ptr %target, i64 %skip
  br i1 %blank, label %zero, label %move
zero:
  call void @llvm.memset.p0.i64(ptr %t, i8 0, i64 %size, i1 false)
  br label %copied
move:
  %s = getelementptr i8, ptr %slot, i64 %offset
  call void @fx_tape_move(ptr %t, ptr %s, i64 %size)
  br label %copied
copied:
  %b1 = add i64 %b, 1
  br label %block
next:
  %l1 = add i64 %l, 1
  br label %lane
done:
  ret void
}

; handles, lanes (a number), first slots out, ends out
define void @fx_tape_span(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 {
entry:
  %lanesp = getelementptr i64, ptr %args, i64 1
  %lowsp = getelementptr i64, ptr %args, i64 2
  %highsp = getelementptr i64, ptr %args, i64 3
  %handles = load ptr, ptr %args
  %lanes = load i64, ptr %lanesp
  %lows = load ptr, ptr %lowsp
  %highs = load ptr, ptr %highsp
  br label %lane
lane:
  %l = phi i64 [ 0, %entry ], [ %l1, %store ]
  %more = icmp slt i64 %l, %lanes
  br i1 %more, label %one, label %done
one:
  %handlep = getelementptr i64, ptr %handles, i64 %l
  %tape = load ptr, ptr %handlep
  %empty = icmp eq ptr %tape, null
  br i1 %empty, label %store, label %read
read:
  %lowp = getelementptr i64, ptr %tape, i64 2
  %highp = getelementptr i64, ptr %tape, i64 3
  %low0 = load i64, ptr %lowp
  %high0 = load i64, ptr %highp
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
  %l1 = add i64 %l, 1
  br label %lane
done:
  ret void
}
"""
