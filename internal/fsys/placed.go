package fsys

// PlacedOf returns the file system that serves a name if it is one that knows
// which hosts hold the bytes of a file, and can tell now; else nil.
func PlacedOf(f FS, name string) Placed {
	served, err := For(f, name)
	if err != nil {
		return nil
	}
	if r, ok := served.(Remote); ok && r.Away(name) {
		return nil
	}
	placed, _ := served.(Placed)
	return placed
}
