// Package fsystest has the tests that every implementation of package fsys must
// pass. They ask for what package fsys promises and the engine rests on: Create,
// Mkdir and Rename are exclusive also when many try at once (Invariants 4 and 7),
// what was flushed is read back, lists are complete, errors name what was asked.
//
// What fsys leaves open, such as whether a removed file can be read on, is not
// asked for. Locks and modification times are tested where a file system has
// them.
//
//	func TestConformance(t *testing.T) {
//		fsystest.Run(t, func(t *testing.T) (fsys.FS, string) { return fsys.Local(), t.TempDir() })
//	}
package fsystest
