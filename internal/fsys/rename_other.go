//go:build !linux

package fsys

func renameNoReplace(oldName, newName string) error { return renameChecked(oldName, newName) }
