package fsys

import (
	"fmt"
	"path"
	"strings"
)

// SplitURL takes a name of the form scheme://authority/path apart. Of any other
// name, which is local, scheme and authority are empty and path is all of it.
func SplitURL(name string) (scheme, authority, path string) {
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok || !isScheme(scheme) {
		return "", "", name
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		return scheme, rest, ""
	}
	return scheme, rest[:end], rest[end:]
}

// isScheme follows RFC 3986, but one letter is a drive.
func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return len(s) > 1
}

// CheckName refuses a name such as hdfs:/a/b, which is what package path makes
// of hdfs://a/b. Taken for a local one it would put a job's files elsewhere.
func CheckName(name string) error {
	if err := badName(name); err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	return nil
}

func badName(name string) error {
	scheme, rest, ok := strings.Cut(name, ":")
	if !ok || !isScheme(scheme) || !strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "//") {
		return nil
	}
	return fmt.Errorf("names of a file system other than the local one look like %s://host:port/path", scheme)
}

// cut returns what stands before the path of a name, which functions of names
// leave alone, and the path. Below a URL that is never relative.
func cut(name string) (front, path string) {
	scheme, authority, path := SplitURL(name)
	if scheme == "" {
		return "", path
	}
	if path == "" {
		path = "/"
	}
	return scheme + "://" + authority, path
}

// Join is path.Join for names: scheme and authority in front of dir stay as they
// are, and no ".." leads out of them.
func Join(dir string, elem ...string) string {
	for dir == "" && len(elem) > 0 {
		dir, elem = elem[0], elem[1:]
	}
	front, p := cut(dir)
	return front + path.Join(append([]string{p}, elem...)...)
}

// Dir is path.Dir for names. The directory of a root is itself.
func Dir(name string) string {
	front, p := cut(name)
	return front + path.Dir(p)
}

// Base is path.Base for names; that of a root is "/".
func Base(name string) string {
	_, p := cut(name)
	return path.Base(p)
}

// Clean is path.Clean for names.
func Clean(name string) string {
	front, p := cut(name)
	return front + path.Clean(p)
}
