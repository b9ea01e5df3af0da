package hdfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Mkdir implements fsys.FS. HDFS has no exclusive mkdir: of several who make the
// same directory at once, the one has made it who can set an attribute.
func (f *FS) Mkdir(name string) error {
	p := pathOf(name)
	err := f.mkdir(p)
	return pathError("mkdir", name, err)
}

func (f *FS) mkdir(p string) error {
	if p == "" {
		return fs.ErrNotExist
	}
	switch _, err := f.status(p); {
	case err == nil:
		return fs.ErrExist
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := f.mkdirs(p, false); err != nil {
		return err
	}
	return f.mark(p)
}

const (
	// maker is the extended attribute of a directory that says who made it.
	maker = "tidemill.maker"
	// onlyCreate has setXAttr refuse an attribute that exists.
	onlyCreate = 1
)

// mark sets a directory's maker, which one of several who made it at once can.
// Where HDFS has extended attributes switched off, all of them can.
func (f *FS) mark(p string) error {
	me := token()
	return f.do("mark", p, func(c *client, again bool) error {
		attr, err := newMessage("hadoop.hdfs.XAttrProto")
		if err != nil {
			return err
		}
		fields := attr.Descriptor().Fields()
		attr.Set(fields.ByName("namespace"), protoreflect.ValueOfEnum(0)) // USER
		attr.Set(fields.ByName("name"), protoreflect.ValueOfString(maker))
		attr.Set(fields.ByName("value"), protoreflect.ValueOfBytes([]byte(me)))
		_, err = c.call("setXAttr", arg{"src", p}, arg{"xAttr", attr}, arg{"flag", uint32(onlyCreate)})
		var remote *remoteError
		if !errors.As(interpret(err), &remote) {
			return err
		}
		switch {
		case strings.Contains(remote.message, "already exists"):
			if again {
				// An attempt whose answer was lost may have set it.
				if set, err := c.GetXAttrs(p, "user."+maker); err == nil && set["user."+maker] == me {
					return nil
				}
			}
			return fs.ErrExist
		case strings.Contains(remote.message, "xattr") && strings.Contains(remote.message, "disabled"):
			return nil
		}
		return err
	})
}

// MkdirAll implements fsys.FS.
func (f *FS) MkdirAll(name string) error {
	return pathError("mkdirall", name, f.mkdirs(pathOf(name), true))
}

func (f *FS) mkdirs(p string, parents bool) error {
	mode, err := permission(dirPermission)
	if err != nil {
		return err
	}
	err = f.do("mkdir", p, func(c *client, _ bool) error {
		_, err := c.call("mkdirs", arg{"src", p}, arg{"masked", mode}, arg{"createParent", parents})
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return syscall.ENOTDIR // a directory that exists is fine
	}
	return err
}

// Rename implements fsys.FS.
func (f *FS) Rename(oldName, newName string) error {
	from, to := pathOf(oldName), pathOf(newName)
	err := fs.ErrNotExist
	if to != "" {
		err = f.rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	f.moved(from, to)
	return nil
}

// moved follows a rename with the paths of the files that are being written here.
func (f *FS) moved(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var files []*File
	for p, file := range f.open {
		if p == from || strings.HasPrefix(p, from+"/") {
			files = append(files, file)
			delete(f.open, p)
		}
	}
	for _, file := range files {
		file.path.set(to + strings.TrimPrefix(file.path.get(), from))
		f.open[file.path.get()] = file
	}
}

func (f *FS) rename(from, to string) error {
	return f.do("rename", from, func(c *client, again bool) error {
		_, err := c.call("rename2", arg{"src", from}, arg{"dst", to}, arg{"overwriteDest", false})
		if !again || err == nil {
			return err
		}
		// An attempt whose answer was lost may have done it.
		if _, gone := c.Stat(from); !errors.Is(gone, fs.ErrNotExist) {
			return err
		}
		if _, there := c.Stat(to); there != nil {
			return err
		}
		return nil
	})
}

// Remove implements fsys.FS.
func (f *FS) Remove(name string) error {
	return pathError("remove", name, f.delete(pathOf(name), false))
}

// RemoveAll implements fsys.FS.
func (f *FS) RemoveAll(name string) error {
	return pathError("removeall", name, ignore(f.delete(pathOf(name), true), fs.ErrNotExist))
}

func (f *FS) delete(p string, all bool) error {
	return f.do("remove", p, func(c *client, again bool) error {
		resp, err := c.call("delete", arg{"src", p}, arg{"recursive", all})
		if err == nil && !get(resp, "result").Bool() && !again {
			return fs.ErrNotExist
		}
		return err
	})
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
