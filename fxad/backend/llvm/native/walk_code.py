"""LLVM IR of `fx_execute`, which interprets encoded plans. `library.py` fills in the `$NAMES`.

Everything that outlives an instruction is in the frame (`library.Word`), so that execution can
stop at any instruction, even between two chunks of a kernel, and go on later.
"""

TEXT = """
define i64 @fx_execute(ptr %frame) #1 {
entry:
  %mode = call i64 @fx_enter_fp()
  %deadlinep = getelementptr i64, ptr %frame, i64 $DEADLINE
  %budgetp = getelementptr i64, ptr %frame, i64 $BUDGET
  %intervalp = getelementptr i64, ptr %frame, i64 $INTERVAL
  %now = call i64 @fx_now()
  %interval = load i64, ptr %intervalp
  %deadline = add i64 %now, %interval
  store i64 %deadline, ptr %deadlinep
  store i64 $POLL_NS, ptr %budgetp
  %status = call i64 @fx_walk(ptr %frame)
  call void @fx_leave_fp(i64 %mode)
  ret i64 %status
}

define internal i64 @fx_walk(ptr %frame) #1 {
entry:
  %code = load ptr, ptr %frame
  %deadlinep = getelementptr i64, ptr %frame, i64 $DEADLINE
  %intervalp = getelementptr i64, ptr %frame, i64 $INTERVAL
  %reportp = getelementptr i64, ptr %frame, i64 $REPORT
  %pcp = getelementptr i64, ptr %frame, i64 $PC
  %unitp = getelementptr i64, ptr %frame, i64 $UNIT
  %arenap = getelementptr i64, ptr %frame, i64 $ARENA
  %argsp = getelementptr i64, ptr %frame, i64 $ARGS
  %args = load ptr, ptr %argsp
  %budgetp = getelementptr i64, ptr %frame, i64 $BUDGET
  %scratchp = getelementptr i64, ptr %frame, i64 $SCRATCH
  %scratch = load ptr, ptr %scratchp
  br label %next
next:
  %pc = load i64, ptr %pcp
  %ip = getelementptr i64, ptr %code, i64 %pc
  %w1p = getelementptr i64, ptr %ip, i64 1
  %w2p = getelementptr i64, ptr %ip, i64 2
  %w3p = getelementptr i64, ptr %ip, i64 3
  %op = load i64, ptr %ip
  switch i64 %op, label %finish [
    i64 $OP_BIND, label %bind
    i64 $OP_PLACE, label %place
    i64 $OP_RUN, label %run
    i64 $OP_SET, label %set
    i64 $OP_LOOP, label %loop
    i64 $OP_NEXT, label %step
    i64 $OP_SWAP, label %swap
    i64 $OP_UNLESS, label %unless
    i64 $OP_SWITCH, label %switch
    i64 $OP_JUMP, label %jump
    i64 $OP_HOST, label %host
    i64 $OP_COMMIT, label %commit
  ]
finish:
  ret i64 $DONE

bind:
  %b.count = load i64, ptr %w1p
  %b.arrays = load i64, ptr %w2p
  br label %bind.next
bind.next:
  %b.i = phi i64 [ 0, %bind ], [ %b.i1, %bind.good ]
  %b.at = phi ptr [ %w3p, %bind ], [ %b.following, %bind.good ]
  %b.more = icmp slt i64 %b.i, %b.count
  br i1 %b.more, label %bind.one, label %bind.done
bind.one:
  %b.numberp = getelementptr i64, ptr %b.at, i64 1
  %b.wordp = getelementptr i64, ptr %b.at, i64 2
  %b.dtypep = getelementptr i64, ptr %b.at, i64 3
  %b.ndimp = getelementptr i64, ptr %b.at, i64 4
  %b.shape = getelementptr i64, ptr %b.at, i64 5
  %b.tableword = load i64, ptr %b.at
  %b.number = load i64, ptr %b.numberp
  %b.word = load i64, ptr %b.wordp
  %b.dtype = load i64, ptr %b.dtypep
  %b.ndim = load i64, ptr %b.ndimp
  %b.tablep = getelementptr i64, ptr %frame, i64 %b.tableword
  %b.table = load ptr, ptr %b.tablep
  %b.objectp = getelementptr i64, ptr %b.table, i64 %b.number
  %b.object = load ptr, ptr %b.objectp
  %b.classp = getelementptr i8, ptr %b.object, i64 $CLASS_AT
  %b.class = load i64, ptr %b.classp
  %b.isarray = icmp eq i64 %b.class, %b.arrays
  br i1 %b.isarray, label %bind.array, label %bind.bad
bind.array:
  %b.datap = getelementptr i8, ptr %b.object, i64 $DATA_AT
  %b.nd.p = getelementptr i8, ptr %b.object, i64 $NDIM_AT
  %b.dims.p = getelementptr i8, ptr %b.object, i64 $SHAPE_AT
  %b.descr.p = getelementptr i8, ptr %b.object, i64 $DTYPE_AT
  %b.flags.p = getelementptr i8, ptr %b.object, i64 $FLAGS_AT
  %b.data = load i64, ptr %b.datap
  %b.nd32 = load i32, ptr %b.nd.p
  %b.dims = load ptr, ptr %b.dims.p
  %b.descr = load i64, ptr %b.descr.p
  %b.flags = load i32, ptr %b.flags.p
  %b.nd = sext i32 %b.nd32 to i64
  %b.masked = and i32 %b.flags, $IN_PLACE
  %b.ok1 = icmp eq i32 %b.masked, $IN_PLACE
  %b.ok2 = icmp eq i64 %b.descr, %b.dtype
  %b.ok3 = icmp eq i64 %b.nd, %b.ndim
  %b.ok12 = and i1 %b.ok1, %b.ok2
  %b.ok = and i1 %b.ok12, %b.ok3
  br i1 %b.ok, label %bind.shape, label %bind.bad
bind.shape:
  %b.d = phi i64 [ 0, %bind.array ], [ %b.d1, %bind.same ]
  %b.dmore = icmp slt i64 %b.d, %b.ndim
  br i1 %b.dmore, label %bind.dim, label %bind.good
bind.dim:
  %b.hasp = getelementptr i64, ptr %b.dims, i64 %b.d
  %b.wantp = getelementptr i64, ptr %b.shape, i64 %b.d
  %b.has = load i64, ptr %b.hasp
  %b.want = load i64, ptr %b.wantp
  %b.equal = icmp eq i64 %b.has, %b.want
  br i1 %b.equal, label %bind.same, label %bind.bad
bind.same:
  %b.d1 = add i64 %b.d, 1
  br label %bind.shape
bind.good:
  %b.slotp = getelementptr i64, ptr %frame, i64 %b.word
  store i64 %b.data, ptr %b.slotp
  %b.following = getelementptr i64, ptr %b.shape, i64 %b.ndim
  %b.i1 = add i64 %b.i, 1
  br label %bind.next
bind.bad:
  store i64 %b.tableword, ptr %reportp
  store i64 %b.number, ptr %unitp
  ret i64 $REBIND
bind.done:
  %b.end = ptrtoint ptr %b.at to i64
  %b.start = ptrtoint ptr %code to i64
  %b.bytes = sub i64 %b.end, %b.start
  %b.words = lshr i64 %b.bytes, 3
  store i64 %b.words, ptr %pcp
  br label %next

place:
  %p.count = load i64, ptr %w1p
  %p.arena = load i64, ptr %arenap
  br label %place.next
place.next:
  %p.i = phi i64 [ 0, %place ], [ %p.i1, %place.one ]
  %p.more = icmp slt i64 %p.i, %p.count
  br i1 %p.more, label %place.one, label %place.done
place.one:
  %p.two = shl i64 %p.i, 1
  %p.slotat = getelementptr i64, ptr %w2p, i64 %p.two
  %p.offsetat = getelementptr i64, ptr %p.slotat, i64 1
  %p.slot = load i64, ptr %p.slotat
  %p.offset = load i64, ptr %p.offsetat
  %p.address = add i64 %p.arena, %p.offset
  %p.slotp = getelementptr i64, ptr %frame, i64 %p.slot
  store i64 %p.address, ptr %p.slotp
  %p.i1 = add i64 %p.i, 1
  br label %place.next
place.done:
  %p.words = shl i64 %p.count, 1
  %p.pc1 = add i64 %pc, 2
  %p.pc = add i64 %p.pc1, %p.words
  store i64 %p.pc, ptr %pcp
  br label %next

run:
  %r.unitsp = getelementptr i64, ptr %ip, i64 3
  %r.chunkp = getelementptr i64, ptr %ip, i64 4
  %r.costp = getelementptr i64, ptr %ip, i64 5
  %r.countp = getelementptr i64, ptr %ip, i64 6
  %r.list = getelementptr i64, ptr %ip, i64 7
  %r.function = load ptr, ptr %w1p
  %r.parallel = load i64, ptr %w2p
  %r.units = load i64, ptr %r.unitsp
  %r.chunk = load i64, ptr %r.chunkp
  %r.cost = load i64, ptr %r.costp
  %r.count = load i64, ptr %r.countp
  br label %run.args
run.args:
  %r.i = phi i64 [ 0, %run ], [ %r.i1, %run.arg ]
  %r.more = icmp slt i64 %r.i, %r.count
  br i1 %r.more, label %run.arg, label %run.call
run.arg:
  %r.wordat = getelementptr i64, ptr %r.list, i64 %r.i
  %r.word = load i64, ptr %r.wordat
  %r.from = getelementptr i64, ptr %frame, i64 %r.word
  %r.value = load i64, ptr %r.from
  %r.to = getelementptr i64, ptr %args, i64 %r.i
  store i64 %r.value, ptr %r.to
  %r.i1 = add i64 %r.i, 1
  br label %run.args
run.call:
  %r.single = icmp eq i64 %r.units, 1
  br i1 %r.single, label %run.one, label %run.many
run.one: ; small kernels in loops: nothing to divide, and seldom a look at the clock
  call void %r.function(ptr %args, i64 0, i64 1, ptr %scratch)
  %r.one.pc1 = add i64 %pc, 7
  %r.one.pc = add i64 %r.one.pc1, %r.count
  store i64 %r.one.pc, ptr %pcp
  %r.budget = load i64, ptr %budgetp
  %r.rest = sub i64 %r.budget, %r.cost
  store i64 %r.rest, ptr %budgetp
  %r.enough = icmp sgt i64 %r.rest, 0
  br i1 %r.enough, label %next, label %run.look
run.look:
  %r.due = call i1 @fx_poll(ptr %frame, i64 0)
  br i1 %r.due, label %tick, label %next
run.many:
  %r.alone = icmp eq i64 %r.parallel, 0
  br i1 %r.alone, label %run.serial, label %run.parallel
run.serial:
  %r.s = call i64 @fx_serial(ptr %frame, ptr %r.function, i64 %r.units, i64 %r.chunk, i64 %r.cost)
  br label %run.check
run.parallel:
  %r.p = call i64 @fx_parallel(ptr %frame, ptr %r.function, i64 %r.units, i64 %r.chunk, i64 %r.cost)
  br label %run.check
run.check:
  %r.reached = phi i64 [ %r.s, %run.serial ], [ %r.p, %run.parallel ]
  %r.whole = icmp sge i64 %r.reached, %r.units
  br i1 %r.whole, label %run.done, label %run.cut
run.cut:
  store i64 %r.reached, ptr %unitp
  ret i64 $TICK
run.done:
  store i64 0, ptr %unitp
  %r.pc1 = add i64 %pc, 7
  %r.pc = add i64 %r.pc1, %r.count
  store i64 %r.pc, ptr %pcp
  %r.late = call i1 @fx_poll(ptr %frame, i64 %r.cost)
  br i1 %r.late, label %tick, label %next
tick:
  ret i64 $TICK

set:
  %s.word = load i64, ptr %w1p
  %s.value = load i64, ptr %w2p
  %s.at = getelementptr i64, ptr %frame, i64 %s.word
  store i64 %s.value, ptr %s.at
  %s.pc = add i64 %pc, 3
  store i64 %s.pc, ptr %pcp
  br label %next

loop:
  %l.exitp = getelementptr i64, ptr %ip, i64 4
  %l.countp = getelementptr i64, ptr %ip, i64 5
  %l.list = getelementptr i64, ptr %ip, i64 6
  %l.word = load i64, ptr %w1p
  %l.trips = load i64, ptr %w2p
  %l.reverse = load i64, ptr %w3p
  %l.count = load i64, ptr %l.countp
  %l.counterp = getelementptr i64, ptr %frame, i64 %l.word
  %l.counter = load i64, ptr %l.counterp
  %l.inside = icmp slt i64 %l.counter, %l.trips
  br i1 %l.inside, label %loop.go, label %loop.exit
loop.exit:
  %l.exit = load i64, ptr %l.exitp
  store i64 %l.exit, ptr %pcp
  br label %next
loop.go:
  %l.last = sub i64 %l.trips, 1
  %l.back = sub i64 %l.last, %l.counter
  %l.forward = icmp eq i64 %l.reverse, 0
  %l.index = select i1 %l.forward, i64 %l.counter, i64 %l.back
  br label %loop.views
loop.views:
  %l.i = phi i64 [ 0, %loop.go ], [ %l.i1, %loop.view ]
  %l.more = icmp slt i64 %l.i, %l.count
  br i1 %l.more, label %loop.view, label %loop.body
loop.view:
  %l.three = mul i64 %l.i, 3
  %l.slotat = getelementptr i64, ptr %l.list, i64 %l.three
  %l.baseat = getelementptr i64, ptr %l.slotat, i64 1
  %l.strideat = getelementptr i64, ptr %l.slotat, i64 2
  %l.slot = load i64, ptr %l.slotat
  %l.base = load i64, ptr %l.baseat
  %l.stride = load i64, ptr %l.strideat
  %l.basep = getelementptr i64, ptr %frame, i64 %l.base
  %l.origin = load i64, ptr %l.basep
  %l.shift = mul i64 %l.stride, %l.index
  %l.address = add i64 %l.origin, %l.shift
  %l.slotp = getelementptr i64, ptr %frame, i64 %l.slot
  store i64 %l.address, ptr %l.slotp
  %l.i1 = add i64 %l.i, 1
  br label %loop.views
loop.body:
  %l.words = mul i64 %l.count, 3
  %l.pc1 = add i64 %pc, 6
  %l.pc = add i64 %l.pc1, %l.words
  store i64 %l.pc, ptr %pcp
  br label %next

step:
  %n.word = load i64, ptr %w1p
  %n.target = load i64, ptr %w2p
  %n.counterp = getelementptr i64, ptr %frame, i64 %n.word
  %n.counter = load i64, ptr %n.counterp
  %n.more = add i64 %n.counter, 1
  store i64 %n.more, ptr %n.counterp
  store i64 %n.target, ptr %pcp
  br label %next

swap:
  %x.count = load i64, ptr %w1p
  br label %swap.next
swap.next:
  %x.i = phi i64 [ 0, %swap ], [ %x.i1, %swap.one ]
  %x.more = icmp slt i64 %x.i, %x.count
  br i1 %x.more, label %swap.one, label %swap.done
swap.one:
  %x.two = shl i64 %x.i, 1
  %x.firstat = getelementptr i64, ptr %w2p, i64 %x.two
  %x.secondat = getelementptr i64, ptr %x.firstat, i64 1
  %x.first = load i64, ptr %x.firstat
  %x.second = load i64, ptr %x.secondat
  %x.firstp = getelementptr i64, ptr %frame, i64 %x.first
  %x.secondp = getelementptr i64, ptr %frame, i64 %x.second
  %x.a = load i64, ptr %x.firstp
  %x.b = load i64, ptr %x.secondp
  store i64 %x.b, ptr %x.firstp
  store i64 %x.a, ptr %x.secondp
  %x.i1 = add i64 %x.i, 1
  br label %swap.next
swap.done:
  %x.words = shl i64 %x.count, 1
  %x.pc1 = add i64 %pc, 2
  %x.pc = add i64 %x.pc1, %x.words
  store i64 %x.pc, ptr %pcp
  br label %next

unless:
  %u.word = load i64, ptr %w1p
  %u.target = load i64, ptr %w2p
  %u.slotp = getelementptr i64, ptr %frame, i64 %u.word
  %u.address = load ptr, ptr %u.slotp
  %u.value = load i8, ptr %u.address
  %u.false = icmp eq i8 %u.value, 0
  %u.following = add i64 %pc, 3
  %u.pc = select i1 %u.false, i64 %u.target, i64 %u.following
  store i64 %u.pc, ptr %pcp
  br label %next

switch:
  %c.list = getelementptr i64, ptr %ip, i64 4
  %c.word = load i64, ptr %w1p
  %c.wide = load i64, ptr %w2p
  %c.count = load i64, ptr %w3p
  %c.slotp = getelementptr i64, ptr %frame, i64 %c.word
  %c.address = load ptr, ptr %c.slotp
  %c.narrow = icmp eq i64 %c.wide, 0
  br i1 %c.narrow, label %switch.bool, label %switch.int
switch.bool:
  %c.v8 = load i8, ptr %c.address
  %c.b = zext i8 %c.v8 to i64
  br label %switch.go
switch.int:
  %c.v32 = load i32, ptr %c.address
  %c.n = sext i32 %c.v32 to i64
  br label %switch.go
switch.go:
  %c.index = phi i64 [ %c.b, %switch.bool ], [ %c.n, %switch.int ]
  %c.last = sub i64 %c.count, 1
  %c.low = call i64 @llvm.smax.i64(i64 %c.index, i64 0)
  %c.choice = call i64 @llvm.smin.i64(i64 %c.low, i64 %c.last)
  %c.targetp = getelementptr i64, ptr %c.list, i64 %c.choice
  %c.target = load i64, ptr %c.targetp
  store i64 %c.target, ptr %pcp
  br label %next

jump:
  %j.target = load i64, ptr %w1p
  store i64 %j.target, ptr %pcp
  br label %next

host:
  %h.number = load i64, ptr %w1p
  store i64 %h.number, ptr %reportp
  %h.pc = add i64 %pc, 2
  store i64 %h.pc, ptr %pcp
  ret i64 $HOST

commit:
  store i64 $NEVER, ptr %deadlinep
  store i64 $NEVER, ptr %intervalp
  %m.pc = add i64 %pc, 1
  store i64 %m.pc, ptr %pcp
  br label %next
}
"""
