package hdfstest

import (
	"fmt"
	"slices"
)

// Calls returns how many calls of a method of ClientProtocol or
// ClientDatanodeProtocol have arrived.
func (c *Cluster) Calls(method string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[method]
}

// Syncs returns how many packets that ask for a sync of the disk datanode i
// has stored, empty ones included.
func (c *Cluster) Syncs(i int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.datanodes[i].syncs
}

// Content returns the bytes of a file that datanodes have, dead ones too,
// whatever length the namenode tells: of each block the longest replica.
func (c *Cluster) Content(path string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.file(path)
	if err != nil {
		return nil, fmt.Errorf("hdfstest: content: %w", err)
	}
	var all []byte
	for _, b := range n.blocks {
		var longest []byte
		for _, d := range c.datanodes {
			if r := d.replicas[b.id]; r != nil && len(r.data) > len(longest) {
				longest = r.data
			}
		}
		all = append(all, longest...)
	}
	return all, nil
}

// Replicas returns on how many live datanodes each block of a file has a
// current replica, at least. A file without blocks has none.
func (c *Cluster) Replicas(path string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.file(path)
	if err != nil {
		return 0, fmt.Errorf("hdfstest: replicas: %w", err)
	}
	least := -1
	for _, b := range n.blocks {
		have := 0
		for _, d := range c.datanodes {
			if r := d.replicas[b.id]; r != nil && r.stamp == b.stamp && d.up {
				have++
			}
		}
		if least < 0 || have < least {
			least = have
		}
	}
	return max(least, 0), nil
}

// Pipeline returns the datanodes that the last block of a file was given to,
// in order: the first is the one that the client talks to.
func (c *Cluster) Pipeline(path string) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.file(path)
	if err != nil {
		return nil, fmt.Errorf("hdfstest: pipeline: %w", err)
	}
	var all []int
	if b := n.last(); b != nil {
		for _, d := range b.pipeline {
			all = append(all, d.index)
		}
	}
	return all, nil
}

// Leases returns who has which file open. While a lease is being recovered it
// is the namenode.
func (c *Cluster) Leases() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := map[string]string{}
	c.ns.root.walk(func(n *inode) {
		if n.open() {
			open[n.path()] = n.holder
		}
	})
	return open
}

// OpenFiles returns the files that are not closed, sorted.
func (c *Cluster) OpenFiles() []string {
	var paths []string
	for p := range c.Leases() {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// Tree returns all paths, sorted, directories with a slash at the end.
func (c *Cluster) Tree() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var paths []string
	c.ns.root.walk(func(n *inode) {
		switch {
		case n.parent == nil:
		case n.dir:
			paths = append(paths, n.path()+"/")
		default:
			paths = append(paths, n.path())
		}
	})
	slices.Sort(paths)
	return paths
}

// Used returns how many bytes the datanodes have, replicas included.
func (c *Cluster) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, d := range c.datanodes {
		sum += d.used()
	}
	return sum
}
