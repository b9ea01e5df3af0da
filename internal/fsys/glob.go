package fsys

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Glob returns the names that match a pattern, sorted. Each element between
// slashes is matched by path.Match, so no element matches across a slash. A
// pattern without meta characters gives itself if it exists. No match is an
// empty result, not an error; a directory that cannot be listed is an error,
// since leaving it out would look like an empty one. Scheme and authority in front
// of a pattern are no part of it and stand before each name.
func Glob(f FS, pattern string) ([]string, error) {
	front, below := cut(pattern)
	elems := slices.DeleteFunc(strings.Split(below, "/"), func(e string) bool { return e == "" })
	for _, e := range elems {
		if _, err := path.Match(e, ""); err != nil {
			return nil, fmt.Errorf("glob %q: element %q: %w", pattern, e, err)
		}
	}
	if !hasMeta(below) {
		return existing(f, pattern)
	}
	start := front
	if strings.HasPrefix(below, "/") {
		start += "/"
	}
	names := []string{start}
	// Elements without meta characters are joined unseen: the List or the
	// Stat at the next one says whether they exist.
	checked := true
	for _, e := range elems {
		if !hasMeta(e) {
			for i := range names {
				names[i] = join(names[i], e)
			}
			checked = false
			continue
		}
		var next []string
		for _, dir := range names {
			infos, err := f.List(cmp.Or(dir, "."))
			if absent(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, in := range infos {
				if ok, _ := path.Match(e, in.Name); ok {
					next = append(next, join(dir, in.Name))
				}
			}
		}
		names, checked = next, true
	}
	if !checked {
		var found []string
		for _, n := range names {
			one, err := existing(f, n)
			if err != nil {
				return nil, err
			}
			found = append(found, one...)
		}
		names = found
	}
	slices.Sort(names)
	return names, nil
}

// existing returns name alone if it exists.
func existing(f FS, name string) ([]string, error) {
	_, err := f.Stat(name)
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []string{name}, nil
}

// absent reports whether err says that a name is not there. A path through a
// file is as absent as one through nothing.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func hasMeta(pattern string) bool { return strings.ContainsAny(pattern, `*?[\`) }

// join does not clean: the names that come out begin as the pattern did.
func join(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}
