"""LLVM IR of the thread pool, the clock and the copy kernel. `library.py` fills in the `$NAMES`.

A parallel kernel is a *job*: the caller opens it, threads claim runs of units from one counter,
and the caller closes it. A run is a share of the units that are left, so that a thread stays in
one place of memory for long at first, and all end together. A worker that wakes up late finds the
job closed and does not join, so the caller never waits for a thread that does no work.

    fx_parallel(frame, function, units, chunk, cost) -> first unit not done (units: all done)
"""

TEXT = """
define internal { i64, i64 } @fx_take(ptr %pool) #1 {
entry:
  %up = getelementptr i8, ptr %pool, i64 $POOL_UNITS
  %cp = getelementptr i8, ptr %pool, i64 $POOL_CHUNK
  %lp = getelementptr i8, ptr %pool, i64 $POOL_LEAST
  %tp = getelementptr i8, ptr %pool, i64 $POOL_THREADS
  %next = getelementptr i8, ptr %pool, i64 $POOL_NEXT
  %units = load i64, ptr %up
  %most = load i64, ptr %cp
  %least = load i64, ptr %lp
  %threads = load i64, ptr %tp
  %parts = shl i64 %threads, 1
  %now = load atomic i64, ptr %next monotonic, align 8
  br label %try
try:
  %begin = phi i64 [ %now, %entry ], [ %seen, %take ]
  %left = sub i64 %units, %begin
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %take, label %none
take:
  %share = udiv i64 %left, %parts
  %enough = call i64 @llvm.smax.i64(i64 %share, i64 %least)
  %size = call i64 @llvm.smin.i64(i64 %enough, i64 %most)
  %far = add i64 %begin, %size
  %end = call i64 @llvm.smin.i64(i64 %far, i64 %units)
  %swap = cmpxchg ptr %next, i64 %begin, i64 %end monotonic monotonic
  %seen = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %done, label %try
done:
  %first = insertvalue { i64, i64 } undef, i64 %begin, 0
  %run = insertvalue { i64, i64 } %first, i64 %end, 1
  ret { i64, i64 } %run
none:
  ret { i64, i64 } zeroinitializer
}

define internal void @fx_claim(ptr %pool, i64 %thread) #1 {
entry:
  %fp = getelementptr i8, ptr %pool, i64 $POOL_FUNCTION
  %ap = getelementptr i8, ptr %pool, i64 $POOL_ARGUMENTS
  %sp = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  %tp = getelementptr i8, ptr %pool, i64 $POOL_STRIDE
  %function = load ptr, ptr %fp
  %args = load ptr, ptr %ap
  %all = load ptr, ptr %sp
  %stride = load i64, ptr %tp
  %offset = mul i64 %stride, %thread
  %scratch = getelementptr i8, ptr %all, i64 %offset
  br label %claim
claim:
  %run = call { i64, i64 } @fx_take(ptr %pool)
  %begin = extractvalue { i64, i64 } %run, 0
  %end = extractvalue { i64, i64 } %run, 1
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %done
work:
  call void %function(ptr %args, i64 %begin, i64 %end, ptr %scratch)
  br label %claim
done:
  ret void
}

define ptr @fx_worker(ptr %record) #1 {
entry:
  %pool = load ptr, ptr %record
  %numberp = getelementptr i64, ptr %record, i64 1
  %number = load i64, ptr %numberp
  %state = getelementptr i8, ptr %pool, i64 $POOL_STATE
  %sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %spinp = getelementptr i8, ptr %pool, i64 $POOL_SPIN
  %exitp = getelementptr i8, ptr %pool, i64 $POOL_EXIT
  %spin = load i64, ptr %spinp
  %mode = call i64 @fx_enter_fp()
  br label %wait
wait:
  %last = phi i32 [ 0, %entry ], [ %seen, %leave ]
  br label %look
look:
  %turns = phi i64 [ 0, %wait ], [ %more, %pause ], [ 0, %sleep ]
  %seen = load atomic i32, ptr %pool acquire, align 4
  %same = icmp eq i32 %seen, %last
  br i1 %same, label %pause, label %enter
pause:
  call void @fx_pause()
  %more = add i64 %turns, 1
  %tired = icmp sgt i64 %more, %spin
  br i1 %tired, label %sleep, label %look
sleep:
  %s0 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  call void @fx_wait(ptr %pool, i32 %last)
  %s1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
enter:
  %exit = load atomic i32, ptr %exitp acquire, align 4
  %leaving = icmp ne i32 %exit, 0
  br i1 %leaving, label %finish, label %join
join:
  %before = atomicrmw add ptr %state, i64 1 acq_rel
  %open = icmp uge i64 %before, $OPEN
  br i1 %open, label %work, label %leave
work:
  call void @fx_claim(ptr %pool, i64 %number)
  br label %leave
leave:
  %after = atomicrmw sub ptr %state, i64 1 acq_rel
  br label %wait
finish:
  ret ptr null
}

define internal i64 @fx_serial(ptr %frame, ptr %function, i64 %units, i64 %chunk, i64 %cost) #1 {
entry:
  %argsp = getelementptr i64, ptr %frame, i64 $ARGS
  %args = load ptr, ptr %argsp
  %scratchp = getelementptr i64, ptr %frame, i64 $SCRATCH
  %scratch = load ptr, ptr %scratchp
  %firstp = getelementptr i64, ptr %frame, i64 $UNIT
  %first = load i64, ptr %firstp
  br label %more
more:
  %begin = phi i64 [ %first, %entry ], [ %end, %again ]
  %far = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %far, i64 %units)
  call void %function(ptr %args, i64 %begin, i64 %end, ptr %scratch)
  %rest = icmp slt i64 %end, %units
  br i1 %rest, label %again, label %done
again:
  %late = call i1 @fx_poll(ptr %frame, i64 %cost)
  br i1 %late, label %done, label %more
done:
  ret i64 %end
}

define internal i64 @fx_parallel(ptr %frame, ptr %function, i64 %units, i64 %chunk, i64 %cost) #1 {
entry:
  %poolp = getelementptr i64, ptr %frame, i64 $POOL
  %pool = load ptr, ptr %poolp
  %none = icmp eq ptr %pool, null
  br i1 %none, label %alone, label %try
try:
  %busy = getelementptr i8, ptr %pool, i64 $POOL_BUSY
  %swap = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %open, label %alone
alone:
  %serial = call i64 @fx_serial(ptr %frame, ptr %function, i64 %units, i64 %chunk, i64 %cost)
  ret i64 %serial
open:
  %state = getelementptr i8, ptr %pool, i64 $POOL_STATE
  %sleepersp = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %fp = getelementptr i8, ptr %pool, i64 $POOL_FUNCTION
  %ap = getelementptr i8, ptr %pool, i64 $POOL_ARGUMENTS
  %up = getelementptr i8, ptr %pool, i64 $POOL_UNITS
  %cp = getelementptr i8, ptr %pool, i64 $POOL_CHUNK
  %sp = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  %tp = getelementptr i8, ptr %pool, i64 $POOL_STRIDE
  %lp = getelementptr i8, ptr %pool, i64 $POOL_LEAST
  %next = getelementptr i8, ptr %pool, i64 $POOL_NEXT
  %threadsp = getelementptr i8, ptr %pool, i64 $POOL_THREADS
  %argsp = getelementptr i64, ptr %frame, i64 $ARGS
  %scratchp = getelementptr i64, ptr %frame, i64 $SCRATCH
  %stridep = getelementptr i64, ptr %frame, i64 $STRIDE
  %firstp = getelementptr i64, ptr %frame, i64 $UNIT
  %args = load ptr, ptr %argsp
  %scratch = load ptr, ptr %scratchp
  %stride = load i64, ptr %stridep
  %first = load i64, ptr %firstp
  %threads = load i64, ptr %threadsp
  %left = sub i64 %units, %first
  %parts = shl i64 %threads, 5
  %part = udiv i64 %left, %parts
  %least = call i64 @llvm.smax.i64(i64 %part, i64 1)
  store ptr %function, ptr %fp
  store ptr %args, ptr %ap
  store i64 %units, ptr %up
  store i64 %chunk, ptr %cp
  store i64 %least, ptr %lp
  store ptr %scratch, ptr %sp
  store i64 %stride, ptr %tp
  store atomic i64 %first, ptr %next monotonic, align 8
  %o = atomicrmw or ptr %state, i64 $OPEN acq_rel
  %g = atomicrmw add ptr %pool, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepersp seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake, label %claim
wake:
  %others = sub i64 %left, 1
  %useful = call i64 @llvm.smin.i64(i64 %others, i64 %threads)
  %few = trunc i64 %useful to i32
  call void @fx_wake(ptr %pool, i32 %few)
  br label %claim
claim:
  %run = call { i64, i64 } @fx_take(ptr %pool)
  %begin = extractvalue { i64, i64 } %run, 0
  %end = extractvalue { i64, i64 } %run, 1
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %close
work:
  call void %function(ptr %args, i64 %begin, i64 %end, ptr %scratch)
  %late = call i1 @fx_poll(ptr %frame, i64 %cost)
  br i1 %late, label %stop, label %claim
stop:
  %claimed = atomicrmw xchg ptr %next, i64 $NEVER monotonic
  br label %close
close:
  %reached = phi i64 [ %units, %claim ], [ %claimed, %stop ]
  %result = call i64 @llvm.smin.i64(i64 %reached, i64 %units)
  %c = atomicrmw and ptr %state, i64 $INSIDE acq_rel
  br label %join
join:
  %turns = phi i64 [ 0, %close ], [ %more, %pause ], [ 0, %yield ]
  %inside = load atomic i64, ptr %state acquire, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %out, label %pause
pause:
  call void @fx_pause()
  %more = add i64 %turns, 1
  %tired = icmp sgt i64 %more, 2000
  br i1 %tired, label %yield, label %join
yield:
  %y = call i32 @sched_yield()
  br label %join
out:
  store atomic i32 0, ptr %busy release, align 4
  ret i64 %result
}
define void @fx_stop(ptr %pool) #1 {
entry:
  %busy = getelementptr i8, ptr %pool, i64 $POOL_BUSY
  %exitp = getelementptr i8, ptr %pool, i64 $POOL_EXIT
  br label %try
try:
  ; Never released again: whoever still holds this pool runs on one thread.
  %swap = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %go, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %try
go:
  store atomic i32 1, ptr %exitp release, align 4
  %g = atomicrmw add ptr %pool, i32 1 seq_cst
  call void @fx_wake(ptr %pool, i32 2147483647)
  ret void
}

define internal i64 @fx_now() #1 {
  %time = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %nsp = getelementptr i64, ptr %time, i64 1
  %s = load i64, ptr %time
  %ns = load i64, ptr %nsp
  %whole = mul i64 %s, 1000000000
  %all = add i64 %whole, %ns
  ret i64 %all
}

define internal i1 @fx_poll(ptr %frame, i64 %cost) #1 {
entry:
  %budgetp = getelementptr i64, ptr %frame, i64 $BUDGET
  %budget = load i64, ptr %budgetp
  %rest = sub i64 %budget, %cost
  store i64 %rest, ptr %budgetp
  %enough = icmp sgt i64 %rest, 0
  br i1 %enough, label %go, label %look
go:
  ret i1 false
look:
  %now = call i64 @fx_now()
  %deadlinep = getelementptr i64, ptr %frame, i64 $DEADLINE
  %deadline = load i64, ptr %deadlinep
  %late = icmp sge i64 %now, %deadline
  ; Out of time the budget stays empty: the next poll says so again, whoever asks.
  %refill = select i1 %late, i64 0, i64 $POLL_NS
  store i64 %refill, ptr %budgetp
  ret i1 %late
}

define void @fx_copy(ptr %args, i64 %begin, i64 %end, ptr %scratch) #1 {
  %sourcep = getelementptr i64, ptr %args, i64 1
  %bytesp = getelementptr i64, ptr %args, i64 2
  %target = load ptr, ptr %args
  %source = load ptr, ptr %sourcep
  %bytes = load i64, ptr %bytesp
  %from = mul i64 %begin, $COPY_BLOCK
  %far = mul i64 %end, $COPY_BLOCK
  %to = call i64 @llvm.smin.i64(i64 %far, i64 %bytes)
  %count = sub i64 %to, %from
  %t = getelementptr i8, ptr %target, i64 %from
  %s = getelementptr i8, ptr %source, i64 %from
  call void @llvm.memmove.p0.p0.i64(ptr %t, ptr %s, i64 %count, i1 false)
  ret void
}
"""
