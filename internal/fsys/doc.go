// Package fsys is the small file system that the engine's durable and scratch
// files go through: the local disk, an in-memory one for tests, and whatever
// else can create exclusively, rename without replacing, and sync.
//
// Two rules carry the weight. Create is exclusive and Rename never replaces,
// so "the name exists" always means "somebody finished this", which is what
// output commit and file fencing rest on (Invariants 4 and 7). And nothing is
// durable before it is asked to be: Sync makes a file's bytes durable,
// SyncDir the names in a directory.
//
// Names are paths with forward slashes. Local uses them as they are given; Mem
// reads a relative name from its root and resolves ".." by spelling, since it
// has no links.
//
// Errors are *fs.PathError, or *os.LinkError for Rename, with the operation,
// the name as the caller gave it and a cause that errors.Is compares with
// fs.ErrExist, fs.ErrNotExist, syscall.ENOTDIR and so on. The operations are
// "create", "write", "flush", "sync", "close", "open", "read", "mkdir", "mkdirall",
// "rename", "remove", "removeall", "list", "stat", "syncdir", "setmodtime".
//
// Threading: every FS may be used by many goroutines. A File has one writer at
// a time. A Reader's ReadAt may be called concurrently; its Read may not be.
// The package starts no goroutine. Mem's one lock is never held while the
// fault hook runs.
//
//	disk := fsys.NewMem()
//	if err := fsys.WriteFile(disk, "snapshot.tmp", data); err != nil { … }
//	if err := disk.Rename("snapshot.tmp", "snapshot-7"); errors.Is(err, fs.ErrExist) { … }
//	err := disk.SyncDir(".") // now the name survives a crash too
package fsys
