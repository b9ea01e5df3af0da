// Package fsys is the small file system that the engine's durable and scratch
// files go through: the local disk, an in-memory one for tests, and whatever
// else can create exclusively, rename without replacing, and sync.
//
// Two rules carry the weight. Create is exclusive and Rename never replaces,
// so "the name exists" always means "somebody finished this", which is what
// output commit and file fencing rest on (Invariants 4 and 7). And nothing is
// durable before it is asked to be: Flush keeps a file's bytes from the death
// of the process, Sync from that of the machine, SyncDir the names in a directory.
//
// What only some file systems can do is an interface of its own. A [Locker] also
// keeps other processes out: Local with flock where there is one, Mem among its
// users. A [Recoverer] ends the writing of files whose writers have died.
//
// Mem is for tests of what goes wrong. It crashes at any of its operations
// (CrashAt) and then gives the file system that a successor finds, after the
// death of the process or of the machine; it fails operations with or without
// effect, or reports success without one (FailWith), and it is slow (Slow).
//
// Names are paths with forward slashes. Local uses them as they are given; Mem
// reads a relative name from its root and resolves ".." by spelling, since it
// has no links. A name on another file system has scheme://authority in front, and
// a [Router] brings each name to the file system that serves it. [Join], [Dir],
// [Base] and [Clean] know such names; those of package path do not.
//
// Errors are *fs.PathError, or *os.LinkError for Rename, with the operation,
// the name as the caller gave it and a cause that errors.Is compares with
// fs.ErrExist, fs.ErrNotExist, syscall.ENOTDIR and so on. The operations are
// "create", "write", "flush", "sync", "close", "open", "read", "mkdir", "mkdirall",
// "rename", "remove", "removeall", "list", "stat", "syncdir", "setmodtime", "lock".
//
// Threading: every FS may be used by many goroutines. A File has one writer at
// a time. A Reader's ReadAt may be called concurrently; its Read may not be.
// The package starts no goroutine. Mem's one mutex is never held while a hook
// runs or a slow operation sleeps, a Router's not while a file system is opened.
//
// Package fsystest has the tests that every FS must pass.
//
//	disk := fsys.NewMem()
//	if err := fsys.WriteFile(disk, "snapshot.tmp", data); err != nil { … }
//	if err := disk.Rename("snapshot.tmp", "snapshot-7"); errors.Is(err, fs.ErrExist) { … }
//	err := disk.SyncDir(".") // now the name survives a power loss too
//
// A crash test tries every operation in turn, until there are no more:
//
//	for n, crashed := int64(1), true; crashed; n++ {
//		disk := fsys.NewMem()
//		disk.CrashAt(n)
//		work(disk)
//		crashed = disk.Crashed()
//		check(disk.AfterPowerLoss(rng))
//	}
package fsys
