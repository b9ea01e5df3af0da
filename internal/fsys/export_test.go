package fsys

// LocalWithoutNoReplace is Local on a kernel or file system that does not
// know RENAME_NOREPLACE.
func LocalWithoutNoReplace() LocalFS { return LocalFS{checkedRename: true} }
