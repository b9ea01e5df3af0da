package hdfstest

import (
	"slices"
	"time"
)

// machine is where all clients are.
const machine = "127.0.0.1"

// Flags of create and append.
const (
	flagOverwrite = 0x02
	flagNewBlock  = 0x20
)

func (c *Cluster) create(cl call, out message) error {
	src, client := cl.request.str("src"), cl.request.str("clientName")
	old, dir, name, err := c.ns.findNew(src)
	if err != nil {
		return err
	}
	if err := c.ns.allowed(src, cl.user); err != nil {
		return err
	}
	replication := int(cl.request.num("replication"))
	if replication < 1 {
		return refuse(ioException, "Requested replication factor of %d is less than the required minimum of 1 for %s, clientName=%s", replication, src, machine)
	}
	if old != nil {
		if err := c.makeWay(old, src, client, cl.request.num("createFlag")); err != nil {
			return err
		}
	}
	if dir == nil {
		if dir, err = c.makeParent(src, cl.request.flag("createParent"), cl.user); err != nil {
			return err
		}
	}
	n, err := c.ns.make(dir, name, &inode{
		mode: uint32(cl.request.sub("masked").num("perm")), owner: cl.user,
		replication: replication, blockSize: cl.request.num("blockSize"), holder: client,
	})
	if err != nil {
		return err
	}
	c.leases[client] = time.Now()
	out.setSub("fs", status(n, ""))
	return nil
}

// makeWay refuses a create over old, or removes it.
func (c *Cluster) makeWay(old *inode, src, client string, flags int64) error {
	switch {
	case old.dir:
		return refuse(fileAlreadyExists, "%s already exists as a directory", src)
	case flags&flagOverwrite != 0:
		c.drop(c.ns.forget(old))
		return nil
	case old.open():
		return c.heldBy(old, "CREATE_FILE", client)
	}
	return refuse(fileAlreadyExists, "%s for client %s already exists", src, machine)
}

// makeParent makes the directory for path.
func (c *Cluster) makeParent(path string, wanted bool, user string) (*inode, error) {
	parts, err := split(path)
	if err != nil {
		return nil, err
	}
	parts = parts[:len(parts)-1]
	if !wanted {
		return nil, refuse(fileNotFound, "Parent directory doesn't exist: %s", join(parts))
	}
	return c.makeDirs(parts, 0o755, user)
}

// makeDirs makes the directories that are missing.
func (c *Cluster) makeDirs(parts []string, mode uint32, user string) (*inode, error) {
	dir := c.ns.root
	for _, p := range parts {
		next := dir.children[p]
		if next == nil {
			var err error
			next, err = c.ns.make(dir, p, &inode{dir: true, children: map[string]*inode{}, mode: mode, owner: user})
			if err != nil {
				return nil, err
			}
		}
		dir = next
	}
	return dir, nil
}

func (c *Cluster) mkdirs(cl call, out message) error {
	src := cl.request.str("src")
	old, dir, name, err := c.ns.findNew(src)
	if err != nil {
		return err
	}
	out.setFlag("result", true)
	switch {
	case old != nil && !old.dir:
		return refuse(fileAlreadyExists, "Path is not a directory: %s", src)
	case old != nil:
		return nil
	}
	if err := c.ns.allowed(src, cl.user); err != nil {
		return err
	}
	if dir == nil {
		if dir, err = c.makeParent(src, cl.request.flag("createParent"), cl.user); err != nil {
			return err
		}
	}
	_, err = c.ns.make(dir, name, &inode{
		dir: true, children: map[string]*inode{}, mode: uint32(cl.request.sub("masked").num("perm")), owner: cl.user,
	})
	return err
}

func (c *Cluster) appendFile(cl call, out message) error {
	src, client := cl.request.str("src"), cl.request.str("clientName")
	n, err := c.ns.find(src)
	switch {
	case err != nil:
		return err
	case n == nil:
		return refuse(fileNotFound, "Failed to append to non-existent file %s for client %s", src, machine)
	case n.dir:
		return refuse(fileAlreadyExists, "Cannot append to directory %s; already exists as a directory.", src)
	}
	if err := c.ns.allowed(src, cl.user); err != nil {
		return err
	}
	if n.open() {
		return c.heldBy(n, "APPEND_FILE", client)
	}
	n.holder = client
	c.leases[client] = time.Now()
	if b := n.last(); b != nil && b.size < n.blockSize {
		b.pipeline = c.locations(b)
		if cl.request.num("flag")&flagNewBlock == 0 {
			b.state = underConstruction
		}
		out.setSub("block", c.located(b, n.length()-b.size, b.pipeline))
	}
	out.setSub("stat", status(n, ""))
	return nil
}

// file returns the file at path.
func (c *Cluster) file(path string) (*inode, error) {
	n, err := c.ns.find(path)
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return nil, refuse(fileNotFound, "File does not exist: %s", path)
	case n.dir:
		return nil, refuse(fileNotFound, "Path is not a file: %s", path)
	}
	return n, nil
}

func (c *Cluster) delete(cl call, out message) error {
	src := cl.request.str("src")
	n, err := c.ns.find(src)
	if err != nil {
		return err
	}
	out.setFlag("result", n != nil && n != c.ns.root)
	if n == nil || n == c.ns.root {
		return nil
	}
	if err := c.ns.allowed(src, cl.user); err != nil {
		return err
	}
	if n.dir && len(n.children) > 0 && !cl.request.flag("recursive") {
		return refuse(pathIsNotEmpty, "`%s is non empty': Directory is not empty", src)
	}
	c.drop(c.ns.forget(n))
	return nil
}

func (c *Cluster) rename2(cl call, _ message) error {
	src, dst := cl.request.str("src"), cl.request.str("dst")
	n, err := c.ns.find(src)
	if err != nil {
		return err
	}
	old, dir, name, err := c.ns.findNew(dst)
	if err != nil {
		return err
	}
	for _, path := range []string{src, dst} {
		if err := c.ns.allowed(path, cl.user); err != nil {
			return err
		}
	}
	switch {
	case n == nil:
		return refuse(fileNotFound, "rename source %s is not found.", src)
	case n == c.ns.root:
		return refuse(ioException, "rename source cannot be the root")
	case old == n:
		return refuse(fileAlreadyExists, "The source %s and destination %s are the same", src, dst)
	case c.ns.ancestor(dst).within(n):
		return refuse(ioException, "Rename destination %s is a directory or file under source %s", dst, src)
	case old == c.ns.root:
		return refuse(ioException, "rename destination cannot be the root")
	case dir == nil:
		return refuse(fileNotFound, "rename destination parent %s not found.", dst)
	}
	names, bytes := n.usage()
	if old != nil {
		if err := replaceable(n, old, src, dst, cl.request.flag("overwriteDest")); err != nil {
			return err
		}
		oldNames, oldBytes := old.usage()
		names, bytes = names-oldNames, bytes-oldBytes
	}
	if err := dir.room(names, bytes, n); err != nil {
		return err
	}
	if old != nil {
		c.drop(c.ns.forget(old))
	}
	c.ns.unlink(n)
	c.ns.link(dir, name, n)
	return nil
}

// replaceable checks that a rename of n may take the place of old.
func replaceable(n, old *inode, src, dst string, overwrite bool) error {
	switch {
	case n.dir != old.dir:
		return refuse(ioException, "Source %s and destination %s must both be directories", src, dst)
	case !overwrite:
		return refuse(fileAlreadyExists, "rename destination %s already exists", dst)
	case len(old.children) > 0:
		return refuse(ioException, "rename destination directory is not empty: %s", dst)
	}
	return nil
}

func (c *Cluster) getFileInfo(cl call, out message) error {
	n, err := c.ns.find(cl.request.str("src"))
	if err != nil || n == nil {
		return err
	}
	out.setSub("fs", status(n, ""))
	return nil
}

func (c *Cluster) getListing(cl call, out message) error {
	n, err := c.ns.find(cl.request.str("src"))
	if err != nil || n == nil {
		return err
	}
	list := hdfsMessage("DirectoryListingProto").setNum("remainingEntries", 0)
	if !n.dir {
		list.add("partialListing", status(n, ""))
	} else {
		names := n.sorted()
		after := string(cl.request.raw("startAfter"))
		from, found := slices.BinarySearch(names, after)
		if found {
			from++
		}
		to := min(len(names), from+c.opts.ListPage)
		for _, name := range names[from:to] {
			list.add("partialListing", status(n.children[name], name))
		}
		list.setNum("remainingEntries", int64(len(names)-to))
	}
	out.setSub("dirList", list)
	return nil
}

// status describes n, under its name within what was asked for.
func status(n *inode, name string) message {
	const isDir, isFile = 1, 2
	m := hdfsMessage("HdfsFileStatusProto").
		setNum("fileType", isFile).setRaw("path", []byte(name)).setNum("length", n.length()).
		setSub("permission", hdfsMessage("FsPermissionProto").setNum("perm", int64(n.mode))).
		setStr("owner", n.owner).setStr("group", "supergroup").
		setNum("modification_time", n.mtime.UnixMilli()).setNum("access_time", n.atime.UnixMilli()).
		setNum("block_replication", int64(n.replication)).setNum("blocksize", n.blockSize).setNum("fileId", int64(n.id))
	if n.dir {
		m.setNum("fileType", isDir).setNum("access_time", 0).setNum("childrenNum", int64(len(n.children)))
	}
	return m
}

func (c *Cluster) getContentSummary(cl call, out message) error {
	path := cl.request.str("path")
	n, err := c.ns.find(path)
	if err != nil {
		return err
	}
	if n == nil {
		return refuse(fileNotFound, "File does not exist: %s", path)
	}
	var length, files, dirs int64
	n.walk(func(i *inode) {
		if length += i.length(); i.dir {
			dirs++
		} else {
			files++
		}
	})
	_, space := n.usage()
	out.setSub("summary", hdfsMessage("ContentSummaryProto").
		setNum("length", length).setNum("fileCount", files).setNum("directoryCount", dirs).setNum("spaceConsumed", space).
		setNum("quota", quota(n.maxNames)).setNum("spaceQuota", quota(n.maxBytes)))
	return nil
}

func quota(v int64) int64 {
	if v == 0 {
		return -1
	}
	return v
}

// existing returns what the call's src names.
func (c *Cluster) existing(cl call) (*inode, error) {
	src := cl.request.str("src")
	n, err := c.ns.find(src)
	if err == nil && n == nil {
		err = refuse(fileNotFound, "File/Directory %s does not exist.", src)
	}
	if err == nil {
		err = c.ns.allowed(src, cl.user)
	}
	return n, err
}

func (c *Cluster) setPermission(cl call, _ message) error {
	n, err := c.existing(cl)
	if err == nil {
		n.mode = uint32(cl.request.sub("permission").num("perm"))
	}
	return err
}

func (c *Cluster) setOwner(cl call, _ message) error {
	n, err := c.existing(cl)
	if err == nil && cl.request.has("username") {
		n.owner = cl.request.str("username")
	}
	return err
}

func (c *Cluster) setReplication(cl call, out message) error {
	n, err := c.existing(cl)
	if err != nil {
		return err
	}
	if !n.dir {
		n.replication = int(cl.request.num("replication"))
	}
	out.setFlag("result", !n.dir)
	return nil
}

// setTimes sets what is not -1.
func (c *Cluster) setTimes(cl call, _ message) error {
	n, err := c.existing(cl)
	if err != nil {
		return err
	}
	if t := cl.request.num("mtime"); t != -1 {
		n.mtime = time.UnixMilli(t)
	}
	if t := cl.request.num("atime"); t != -1 {
		n.atime = time.UnixMilli(t)
	}
	return nil
}
